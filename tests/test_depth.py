"""Deep stacks: activation checkpointing changes memory and nothing else; scaled initialisation."""

import math
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attendo.bundle import load_task, parameters_of, read_tensors
from attendo.config import TransformerConfig, load_recipe
from attendo.data.texts import open_texts
from attendo.errors import ConfigError
from attendo.models import CausalLM, Encoder, build_model
from attendo.nn.fast.stacks import CheckpointedRun, ReversibleRun, accelerate
from attendo.nn.grid import Grid
from attendo.nn.stack import Memory, Stack
from attendo.training.log import read_log
from conftest import held_bytes, small_config
from small_runs import same_tensors, small_run, timeless_log

ROWS, TOKENS, SOURCE = 3, 11, 7


def make_stack(n_layers: int = 3, *, causal: bool, cross: bool, **changes) -> Stack:
    torch.manual_seed(5)
    return Stack(small_config(**changes), n_layers, causal=causal, cross=cross)


def make_grid(width: int) -> Grid:
    """Lay two sequences into every row, the second one short of the end by a position."""
    places = torch.arange(width).expand(ROWS, -1)
    segments = torch.where(places < 4, 1, 2).masked_fill(places == width - 1, 0)
    return Grid(torch.ones_like(places), segments, torch.where(places < 4, places, places - 4))


def outcome(stack: Stack) -> list[Tensor]:
    """Run a stack in training mode; return the hidden states and all gradients."""
    torch.manual_seed(7)
    x = torch.randn(ROWS, TOKENS, stack_width(stack), requires_grad=True)
    hidden = torch.randn(ROWS, SOURCE, stack_width(stack), requires_grad=True)
    memory = Memory(hidden, make_grid(SOURCE).segments) if stack.cross else None
    result = stack(x, make_grid(TOKENS), memory)
    learned = [x, *([hidden] if stack.cross else []), *stack.parameters()]
    after = torch.rand(1)  # the random numbers that follow must be the same, too
    return [result, *torch.autograd.grad(result.sin().sum(), learned), after, torch.rand(1)]


def stack_width(stack: Stack) -> int:
    return stack.typed_layers()[0].self_attention.query.in_features


@pytest.mark.parametrize(
    ("causal", "cross", "norm_order"),
    list(product([False, True], [False, True], ["post", "pre"])),
)
def test_recomputed_layers_give_the_same_bits(causal, cross, norm_order):
    dropouts = {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_inner": 0.1}
    stack = make_stack(causal=causal, cross=cross, norm_order=norm_order, **dropouts)
    plain = outcome(stack)
    accelerate(stack, compiled=False, checkpointed=True)
    assert isinstance(stack.faster, CheckpointedRun)
    for left, right in zip(outcome(stack), plain, strict=True):
        assert torch.equal(left, right)


def test_reversible_layers_are_recomputed_in_their_own_way():
    stack = make_stack(causal=True, cross=False, norm_order="pre", reversible=True)
    accelerate(stack, compiled=False, checkpointed=True)
    assert isinstance(stack.faster, ReversibleRun)


def bytes_of_depth(n_layers: int, *, checkpointed: bool) -> int:
    stack = make_stack(n_layers, causal=True, cross=False, norm_order="pre", d_ff=200)
    accelerate(stack, compiled=False, checkpointed=checkpointed)
    x, grid = torch.randn(ROWS, TOKENS, stack_width(stack)), make_grid(TOKENS)
    return held_bytes(lambda: stack(x, grid))


def test_memory_grows_with_depth_by_one_hidden_state_a_layer():
    plain = bytes_of_depth(9, checkpointed=False) - bytes_of_depth(3, checkpointed=False)
    less = bytes_of_depth(9, checkpointed=True) - bytes_of_depth(3, checkpointed=True)
    hidden_state = ROWS * TOKENS * small_config().d_model * 4
    assert plain > 6 * 10 * hidden_state
    assert less == 6 * hidden_state


@pytest.mark.usefixtures("unchecked")
def test_a_run_with_recomputed_layers_ends_with_the_same_parameters(tmp_path):
    changes = {"model.p_drop": 0.2, "training.precision": "bf16", "training.accumulate": 2}
    for name in (False, True):
        small_run(tmp_path / str(name), {**changes, "training.activation_checkpointing": name})
    left, right = (tmp_path / str(name) for name in (False, True))
    assert same_tensors(*(read_tensors(run / "model.safetensors") for run in (left, right)))
    assert timeless_log(left) == timeless_log(right)


def test_only_stacks_can_be_recomputed():
    with pytest.raises(ConfigError, match=r'needs model\.kind = "transformer", not "recurrent"'):
        load_recipe("demo-gru", {"training.activation_checkpointing": True})


# -- initialisation ------------------------------------------------------------------------------


def build(promise: type, **changes) -> dict[str, Tensor]:
    torch.manual_seed(3)
    config = TransformerConfig(**{"d_model": 32, "d_ff": 64, "n_heads": 4, **changes})
    vocabularies = (41,) if promise in (CausalLM, Encoder) else (41, 41)
    options = {} if len(vocabularies) == 2 else {"promise": promise}
    return parameters_of(build_model(config, *vocabularies, **options))


ENDS = (".self_attention.output.weight", ".cross_attention.output.weight", ".outer.weight")


@pytest.mark.parametrize(
    ("promise", "n_sublayers"),
    [
        (CausalLM, {"decoder": 8}),
        (Encoder, {"encoder": 6}),
        (object, {"encoder": 6, "decoder": 12}),
    ],
)
@pytest.mark.parametrize("kind", ["scaled", "zero"])
def test_only_what_ends_a_sublayer_is_scaled(promise, n_sublayers, kind):
    sizes = {"encoder_layers": 3, "decoder_layers": 4}
    plain, other = build(promise, **sizes), build(promise, **sizes, initialisation=kind)
    n_scaled = dict.fromkeys(n_sublayers, 0)
    for name, tensor in plain.items():
        stack = name.partition(".")[0]
        factor = 1.0
        if name.endswith(ENDS):
            factor = 0.0 if kind == "zero" else 1 / math.sqrt(n_sublayers[stack])
            n_scaled[stack] += 1
        assert torch.equal(other[name], tensor * factor), name
    assert n_scaled == n_sublayers


def hidden_size(n_layers: int, initialisation: str) -> float:
    """Return the root mean square of the sum that leaves a stack, before its last norm."""
    torch.manual_seed(3)
    config = small_config(
        norm_order="pre", decoder_layers=n_layers, initialisation=initialisation, d_ff=200
    )
    model = build_model(config, 41, promise=CausalLM)
    with torch.inference_mode():
        _, recorded = model.record(make_grid(TOKENS))
    return float(recorded.hidden_states[-1].square().mean().sqrt())


@pytest.mark.usefixtures("unchecked")
def test_scaled_layers_keep_the_hidden_states_of_a_deep_stack_small():
    entering = hidden_size(1, "zero")
    assert hidden_size(96, "zero") == pytest.approx(entering)
    assert hidden_size(96, "scaled") < 1.5 * entering
    assert hidden_size(96, "glorot") > 3 * entering


# -- 96 blocks -----------------------------------------------------------------------------------


def unigram_entropy(run: Path) -> float:
    """Return the loss of a model that knows how frequent each token is, and nothing else."""
    recipe, task = load_task(run)
    texts = open_texts(recipe.data, task.record_type, task.convert)
    examples = task.encode(list(texts.train()), recipe.data, Counter())
    counts = Counter(
        token for _, (ids,) in examples for token in [*ids, task.tokenizer.specials.eos]
    )
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


@pytest.mark.slow
def test_96_blocks_learn_through_the_command_line(tmp_path):
    """After 20 small batches, half the perplexity of a model that knows frequencies only."""
    settings = {
        "data.builtin": 2000,
        "data.hold_out": 20,
        "tokenizer.vocabulary": 500,
        "training.steps": 20,
        "training.warmup_steps": 4,
        "training.batch_tokens": 512,
        "training.validate_every": 20,
        "training.validation_bleu": 0,
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    train = ["train", "demo-deep", "--out", str(tmp_path / "run"), "--device", "cpu", *options]
    subprocess.run([sys.executable, "-m", "attendo", *train], check=True, capture_output=True)
    recipe, _ = load_task(tmp_path / "run")
    assert recipe.model.decoder_layers == 96
    assert recipe.training.activation_checkpointing
    *_, last = read_log(tmp_path / "run" / "log.jsonl")
    assert last["valid_loss"] < unigram_entropy(tmp_path / "run") - math.log(2)
