"""What `attendo plan` says, held against published numbers, real models and counted operations."""

import json
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attendo.cli import main
from attendo.config import load_recipe, presets
from attendo.errors import ConfigError
from attendo.losses import linear_cross_entropy
from attendo.models import CausalLM, Encoder, build_model
from attendo.nn.fast.stacks import accelerate
from attendo.nn.grid import Grid
from attendo.training.optimization import OPTIMIZERS, build_optimizers, count_moments
from attendo.training.plan import GPU_BYTES, GPU_FLOPS, GPU_SHARE, check_memory, make_plan
from conftest import held_bytes, without_checks

GPT_3 = "gpt3-175b"
BILLION = 10**9


def gpt(n_layers: int, d_model: int, n_heads: int, context: int = 2048, **changes):
    """Change the recipe of the largest GPT-3 to a smaller one."""
    sizes = {"d_model": d_model, "d_ff": 4 * d_model, "n_heads": n_heads}
    sizes |= {"decoder_layers": n_layers, "max_positions": context}
    return load_recipe(GPT_3, {f"model.{key}": value for key, value in sizes.items()} | changes)


def test_gpt_2_has_the_published_number_of_parameters():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    assert make_plan(gpt(12, 768, 12, 1024)).parameters == theirs.num_parameters() == 124_439_808


@pytest.mark.parametrize(
    ("published", "n_layers", "d_model", "n_heads"),
    [
        (0.125, 12, 768, 12),
        (0.350, 24, 1024, 16),
        (0.760, 24, 1536, 16),
        (1.3, 24, 2048, 16),  # the paper prints 24 heads of 128, more than the width
        (2.7, 32, 2560, 32),
        (6.7, 32, 4096, 32),
        (13, 40, 5120, 40),  # the paper prints a width of 5140, which 40 heads do not divide
        (175, 96, 12288, 96),
    ],
)
def test_the_rows_of_table_2_1_of_gpt_3(published, n_layers, d_model, n_heads):
    found = make_plan(gpt(n_layers, d_model, n_heads)).parameters
    assert found == pytest.approx(published * BILLION, rel=0.02)


def test_gpt_3_took_the_operations_that_the_paper_reports():
    """Table D.1: 3.14e23, where attention between positions is left out."""
    plan = make_plan(load_recipe(GPT_3))
    assert plan.tokens == 300 * BILLION
    assert 6 * plan.matrix_parameters * plan.tokens == pytest.approx(3.14e23, rel=0.002)
    assert plan.flops == pytest.approx(3.14e23, rel=0.04)


@pytest.mark.parametrize("name", sorted(set(presets()) - {"auto"}))
def test_the_parts_of_every_recipe_are_all_of_it(name):
    plan = make_plan(load_recipe(name))
    assert sum(plan.parts.values()) == plan.parameters
    for stack, n_layers in plan.n_layers.items():
        rest = plan.parts[stack] - n_layers * plan.layer_parameters[stack]
        assert 0 <= rest <= 2 * load_recipe(name).model.d_model, "the last norm"
    assert plan.memory.activations_recomputed < plan.memory.activations_stored or not plan.n_layers


@pytest.mark.parametrize("name", ["demo", "demo-gru", "demo-conv", "classification", "tiny"])
def test_parameters_are_those_of_the_real_model(name):
    recipe = load_recipe(name)
    n_tokens, is_classifier = recipe.tokenizer.vocabulary, recipe.task == "classification"
    vocabularies = (n_tokens,) if is_classifier else (n_tokens, n_tokens)
    options = {"promise": Encoder} if is_classifier else {}
    model = build_model(recipe.model, *vocabularies, **options)
    own = sum(parameter.numel() for parameter in model.parameters())
    labels = 2 * recipe.model.d_model if is_classifier else 0
    assert make_plan(recipe).parameters == own + labels


SMALL = {"model.d_model": 64, "model.d_ff": 160, "model.n_heads": 4, "model.decoder_layers": 3}
SMALL |= {"tokenizer.vocabulary": 700, "data.max_length": 48, "training.precision": "fp32"}
SMALL |= {"training.batch_tokens": 240, "training.accumulate": 1}


def small_model(recipe) -> tuple[CausalLM, Grid]:
    model = build_model(recipe.model, recipe.tokenizer.vocabulary, promise=CausalLM)
    accelerate(model, compiled=False, checkpointed=recipe.training.activation_checkpointing)
    width = recipe.data.max_length
    n_rows = recipe.training.batch_tokens // width
    ids = torch.randint(recipe.tokenizer.vocabulary, (n_rows, width))
    positions = torch.arange(width).repeat(n_rows, 1)
    return model, Grid(ids, torch.ones_like(ids), positions)


@pytest.mark.parametrize("tied", ["all", "none"])
def test_operations_are_those_that_are_counted(tied):
    recipe = load_recipe(
        GPT_3, {**SMALL, "model.tied": tied, "training.activation_checkpointing": False}
    )
    model, grid = small_model(recipe)
    counter = FlopCounterMode(display=False)
    with without_checks(), counter, sdpa_kernel(SDPBackend.MATH):
        hidden = model.decode(grid)
        linear_cross_entropy(hidden[None], model.output.weight, grid.ids, 0.0, 0.0).total.backward()
    planned = make_plan(recipe).flops_per_token * grid.ids.numel()
    # The plan counts norms and biases as if they were matrices.
    assert planned == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("feed_forward", ["relu", "gelu", "gated"])
@pytest.mark.parametrize("p_drop", [0.0, 0.1])
def test_activations_are_about_those_that_are_held(is_checkpointed, feed_forward, p_drop):
    changes = {"model.feed_forward": feed_forward, "model.p_drop": p_drop}
    changes |= {"model.decoder_layers": 12}
    changes |= {"training.activation_checkpointing": is_checkpointed}
    recipe = load_recipe(GPT_3, SMALL | changes)
    model, grid = small_model(recipe)
    with without_checks():
        held = held_bytes(lambda: model.decode(grid))
    memory = make_plan(recipe).memory
    planned = memory.activations_stored
    if is_checkpointed:  # the plan also has the layer that is being recomputed
        ends = 3 * 64 * grid.ids.numel() * 4
        planned = memory.activations_recomputed - (memory.activations_stored - ends) // 12
    assert planned == pytest.approx(held, rel=0.2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_moments_are_those_that_an_optimizer_keeps(optimizer):
    recipe = load_recipe(GPT_3, {**SMALL, "training.optimizer": optimizer})
    model, grid = small_model(recipe)
    optimizers = build_optimizers(model, recipe.training)
    with without_checks():
        model.logits(model.decode(grid)).sum().backward()
    for one in optimizers:
        one.step()
    kept = [
        tensor for one in optimizers for state in one.state.values() for tensor in state.items()
    ]
    n_kept = sum(tensor.numel() for name, tensor in kept if name != "step")
    assert count_moments(model, recipe.training) == n_kept


def test_reversible_layers_hold_less_than_recomputed_ones():
    changes = {"model.norm_order": "pre", "training.activation_checkpointing": True}
    less = make_plan(load_recipe("paper-base", changes)).memory
    least = make_plan(load_recipe("paper-base", {**changes, "model.reversible": True})).memory
    assert least.activations_recomputed < less.activations_recomputed < less.activations_stored


def test_memory_adds_up():
    plan = make_plan(load_recipe(GPT_3, {"training.ema": 0.999}))
    memory, size = plan.memory, plan.parameters
    assert memory.parameters == memory.gradients == 4 * size
    assert memory.moments == 12 * size
    assert memory.total > 20 * size
    assert (plan.fewest_gpus - 1) * GPU_BYTES < memory.total <= plan.fewest_gpus * GPU_BYTES
    assert plan.cache_values_per_token == 2 * 96 * 12288
    assert plan.seconds(10) == pytest.approx(plan.computed_flops / GPU_FLOPS / GPU_SHARE / 10)


def test_long_attention_costs_no_more_than_all_pairs():
    changes = {"data.max_length": 4096, "model.d_model": 64}
    dot = make_plan(load_recipe("demo", changes))
    window = make_plan(load_recipe("demo-longformer", changes))
    assert window.attention_flops < dot.attention_flops


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ConfigError, match="chooses its settings when it sees the data"):
        make_plan(load_recipe("auto"))
    with pytest.raises(ConfigError, match=r"model\.positions = 'curved' is not known"):
        make_plan(load_recipe("demo", {"model.positions": "curved"}))


# -- command line --------------------------------------------------------------------------------

MEASURED = """
import resource, sys
from attendo.cli import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def attendo(*words: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run a command in a process of its own; return also its peak memory in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=False
    )
    return done, 1024 * int(done.stderr.splitlines()[-1])


def test_the_largest_gpt_3_is_planned_in_no_memory():
    done, peak = attendo("plan", GPT_3, "--gpus", "1024", "--tokens", "3e11", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert 174.6 * BILLION < plan["parameters"] < 175.0 * BILLION
    assert peak < 2 * BILLION < plan["inference"]["int8"]
    assert plan["seconds_on_gpus"] == pytest.approx(plan["seconds"] / 1024)
    assert not plan["fits_one_gpu"]


def test_a_plan_is_a_table(capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["attendo", "plan", "paper-base", "--gpus", "8"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    printed = capfd.readouterr().out
    for words in ("63,082,496", "6 layers of 3,152,384", "fits on one", "time on 8 H200s"):
        assert words in printed


def test_a_training_that_cannot_fit_is_refused_before_anything_is_allocated(tmp_path):
    done, peak = attendo("train", GPT_3, "--out", str(tmp_path / "run"), "--device", "cpu")
    error, _ = done.stderr.splitlines()
    assert done.returncode == 2
    assert error.startswith("error: the model has 174,604,259,328 parameters")
    assert "needs at least 2,794 GB" in error
    assert peak < 2 * BILLION
    assert not (tmp_path / "run").exists()


def test_what_may_fit_is_not_refused(monkeypatch):
    recipe, device = load_recipe("tiny"), torch.device("cpu")
    needed = make_plan(recipe).memory.state
    monkeypatch.setattr("attendo.training.plan.memory_of", lambda device: needed)
    check_memory(recipe, device)
    monkeypatch.setattr("attendo.training.plan.memory_of", lambda device: needed - 1)
    with pytest.raises(ConfigError, match=r"lower model\.d_model or the number of layers"):
        check_memory(recipe, device)
