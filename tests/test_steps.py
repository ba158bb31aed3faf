"""The kernels of a decoding step against the plain modules, on the CPU by Triton's interpreter."""

from typing import Any

import pytest
import torch

from attendo.config import TransformerConfig
from attendo.data.packing import pad_grid
from attendo.models import CausalLM, Seq2Seq, build_model
from attendo.nn import fast
from attendo.nn.fixed import FixedStack, Size

if not fast.AVAILABLE:
    pytest.skip("Triton is not installed", allow_module_level=True)

from attendo.nn.fast import rows, steps, top
from attendo.nn.fast.steps import FusedStack

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, SLOTS, LENGTH = 19, 3, 64

KINDS: list[tuple[type[Any], int, dict[str, Any]]] = [
    (Seq2Seq, 3, {"positions": "sinusoidal"}),
    (CausalLM, 1, {"positions": "learned", "norm_order": "pre"}),
    (
        Seq2Seq,
        5,  # more than one group
        {"positions": "rotary", "query_key_norm": True, "norm": "rms", "norm_order": "pre"},
    ),
    (CausalLM, 2, {"positions": "rotary", "norm": "rms"}),
    (Seq2Seq, 1, {"positions": "none", "query_key_norm": True, "feed_forward": "gated"}),
]


def decoder_of(promise: type[Any], **settings: Any) -> tuple[Any, Any, Any]:
    """Return the embedding and the stack of a small decoder, and its state before any token."""
    torch.manual_seed(1)
    sizes = {"d_model": 32, "n_heads": 2, "d_ff": 40, "encoder_layers": 1, "decoder_layers": 2}
    config = TransformerConfig.model_validate({**sizes, **settings})
    vocabularies = (VOCABULARY, VOCABULARY) if promise is Seq2Seq else (VOCABULARY,)
    model = build_model(config, *vocabularies, promise=promise).eval().to(DEVICE)
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    if promise is CausalLM:
        return model.embedding, model.decoder, model.start(SLOTS)
    grid = pad_grid([[7, 8, 9], [5] * 40, [6]], 0).to(DEVICE)
    return model.target_embedding, model.decoder, model.start(model.encode(grid))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("is_few", [False, True])
@pytest.mark.parametrize(("promise", "n_beams", "kind"), KINDS)
@torch.no_grad()
def test_steps_are_those_of_the_plain_modules(promise, n_beams, kind, is_few, monkeypatch):
    monkeypatch.setattr(rows, "is_few", lambda x, projection: is_few)
    embedding, stack, state = decoder_of(promise, **kind)
    assert steps.fits(stack)
    size = Size(SLOTS, 2 * SLOTS, n_beams, LENGTH)
    plain, fused = (make(stack, size, state) for make in (FixedStack, FusedStack))
    entries = torch.tensor([4, 0, 2], device=DEVICE)
    for one in (plain, fused):
        one.load(entries, state, torch.arange(SLOTS, device=DEVICE))
    lengths = torch.tensor([0, 32, 3], device=DEVICE)
    # Positions before the first step have been cached by hypotheses of their own.
    history = torch.randn_like(plain.past)
    plain.past.copy_(history)
    fused.past.copy_(history)
    if kind["positions"] == "rotary":  # the kernels keep another order of coordinates
        keys = history[:, 0].unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
        fused.past[:, 0] = keys
    origins = torch.randint(0, n_beams, (SLOTS, n_beams, LENGTH), device=DEVICE)
    for n_slots in (SLOTS, 2):
        beams = torch.arange(n_beams, device=DEVICE)
        origins[torch.arange(SLOTS)[:, None], beams, lengths[:, None]] = beams
        tokens = torch.randint(0, VOCABULARY, (n_slots, n_beams), device=DEVICE)
        given, tolerance = lengths[:n_slots], 2e-2 if DEVICE == "cuda" else 1e-4
        found, expected = (
            one.step(
                one.embed(embedding, tokens, given), given, origins[:n_slots], entries[:n_slots]
            )
            for one in (fused, plain)
        )
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        lengths += 1


def test_filled_positions_move_with_their_slot():
    _, stack, state = decoder_of(CausalLM, positions="rotary")
    size = Size(SLOTS, SLOTS, 2, LENGTH)
    plain, fused = (make(stack, size, state) for make in (FixedStack, FusedStack))
    history = torch.randn_like(plain.past)
    # Slot 2 moves to slot 0, which has its length by now; slot 1 stays where it is.
    sources, targets = torch.tensor([[2, 1], [0, 1]], device=DEVICE)
    lengths = torch.tensor([9, 5, 9], device=DEVICE)
    for one in (plain, fused):
        one.past.copy_(history)
        one.move(sources, targets, lengths)
    torch.testing.assert_close(fused.past[:, :, 0, :, :9], plain.past[:, :, 0, :, :9])
    torch.testing.assert_close(fused.past[:, :, 0, :, 9:], history[:, :, 0, :, 9:])
    torch.testing.assert_close(fused.past[:, :, 1:], history[:, :, 1:])


@pytest.mark.parametrize(
    "settings", [{"attention": "additive"}, {"positions": "alibi"}, {"d_model": 24}]
)
def test_other_stacks_are_left_to_the_plain_modules(settings):
    assert not steps.fits(decoder_of(Seq2Seq, **settings)[1])


def logits_of(n_rows: int, n_tokens: int) -> torch.Tensor:
    """Draw logits, many of them equal, and rows that are not finite."""
    torch.manual_seed(3)
    logits = (torch.randn(n_rows, n_tokens, device=DEVICE) * 2).round() / 2
    logits[3] = -torch.inf
    logits[4, 7] = torch.nan
    logits[5, 2:] = -torch.inf
    logits[6, 2] = torch.inf
    return logits


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("count", [1, 6])
def test_the_best_tokens_are_those_of_a_stable_sort(count, monkeypatch):
    monkeypatch.setattr(top, "COLUMNS", 16)
    monkeypatch.setattr(top, "CHUNK", 4)
    logits = logits_of(8, 50)
    only = torch.tensor([-1, 9, -1, -1, -1, -1, -1, 0], device=DEVICE)
    shift = torch.randn(len(logits), device=DEVICE)
    found = top.best_tokens(logits, count, only=only, shift=shift, forbidden=(0, 3), marked=5)

    log_probs = logits.log_softmax(dim=1)
    is_broken = log_probs[:, 0].isnan()
    torch.testing.assert_close(found.is_broken, is_broken)
    torch.testing.assert_close(found.marked, log_probs[:, 5], equal_nan=True)
    allowed = log_probs.clone()
    allowed[:, [0, 3]] = -torch.inf
    for row in (1, 7):
        token = int(only[row])
        allowed[row] = -torch.inf
        allowed[row, token] = log_probs[row, token]
    values, tokens = (allowed + shift[:, None]).sort(dim=1, descending=True, stable=True)
    values, tokens = values[:, :count], tokens[:, :count]
    torch.testing.assert_close(found.values[~is_broken], values[~is_broken])
    is_possible = (values > -torch.inf) & ~is_broken[:, None]
    torch.testing.assert_close(found.tokens[is_possible], tokens[is_possible])
    assert is_possible.sum() > 2 * count


def test_log_probabilities_are_ranked_as_they_are():
    logits = logits_of(8, 50)[:3].log_softmax(dim=1)
    logits[:, :20] = -torch.inf
    free, shift = torch.full((3,), -1, device=DEVICE), torch.zeros(3, device=DEVICE)
    found = top.best_tokens(
        logits, 2, only=free, shift=shift, forbidden=(-1, -1), marked=5, is_normal=True
    )
    values, tokens = logits.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(found.values, values[:, :2])
    torch.testing.assert_close(found.tokens, tokens[:, :2])
