"""Window and chunk attention against full attention with a mask, and against Longformer's own."""

import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from alone import run_alone, run_python
from attendo.nn.attention.band import Averages, Band, band_attention, merge
from attendo.nn.attention.flex import BLOCK, SHORTEST, block_mask, fits, fused_attention
from attendo.nn.attention.window import (
    chunk_attention,
    chunk_span,
    chunk_step,
    window_attention,
    window_spans,
    window_step,
)
from attendo.nn.grid import Span, own_span

BENCH = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCH))

from growth import Growth  # noqa: E402 -- found only now

HEADS, LENGTH, WIDTH, VALUES = 3, 97, 7, 5

Sees = Callable[[Tensor, Tensor], Tensor]


class Kind(NamedTuple):
    """A kind of attention, and a plain rule for which positions may attend to which."""

    attend: Callable[..., Tensor]
    step: Callable[..., Tensor]
    spans: Callable[..., Sequence[Span]]
    sees: Sees


def window_kind(window: int, n_global: int) -> Kind:
    def sees(asker: Tensor, asked: Tensor) -> Tensor:
        return ((asker - asked).abs() <= window) | (asker < n_global) | (asked < n_global)

    sizes = {"window": window, "n_global": n_global}
    functions = window_attention, window_step, window_spans
    return Kind(*(partial(function, **sizes) for function in functions), sees)


def chunk_kind(chunk: int, overlap: int) -> Kind:
    def sees(asker: Tensor, asked: Tensor) -> Tensor:
        begin = asker // chunk * chunk
        return (asked >= begin - overlap) & (asked < begin + chunk + overlap)

    def spans(segments: Tensor, positions: Tensor, is_causal: bool) -> list[Span]:
        return [chunk_span(segments, positions, chunk, overlap, is_causal)]

    sizes = {"chunk": chunk, "overlap": overlap}
    return Kind(partial(chunk_attention, **sizes), partial(chunk_step, **sizes), spans, sees)


KINDS = {
    **{
        f"window {window}, global {n_global}": window_kind(window, n_global)
        for window in (0, 5, 40, 200)
        for n_global in (0, 1, 3)
    },
    **{
        f"chunk {chunk}, overlap {overlap}": chunk_kind(chunk, overlap)
        for chunk, overlap in ((1, 0), (1, 2), (8, 3), (8, 19), (36, 0), (200, 1))
    },
}
FEW = ["window 5, global 0", "window 5, global 1", "window 5, global 3", "chunk 8, overlap 3"]

ROWS = {
    "alone": [[LENGTH]],
    "padded": [[LENGTH], [60], [2], [1]],
    "packed": [[50, 20, 2, 1, 24], [1, 1, 1, 30], [32, 33, 32], []],
}

both_ways = pytest.mark.parametrize("is_causal", [False, True])
few_kinds = pytest.mark.parametrize("kind", FEW)


class Places(NamedTuple):
    segments: Tensor
    positions: Tensor

    @property
    def is_token(self) -> Tensor:
        return self.segments != 0


def lay_out(rows: list[list[int]], length: int = LENGTH) -> Places:
    """Lay sentences of these lengths one after the other; the rest is padding."""
    places = Places(*torch.zeros(2, len(rows), length, dtype=torch.long))
    for row, lengths in enumerate(rows):
        begins = [sum(lengths[:n]) for n in range(len(lengths))]
        for label, (begin, n) in enumerate(zip(begins, lengths, strict=True), start=1):
            places.segments[row, begin : begin + n] = label
            places.positions[row, begin : begin + n] = torch.arange(n)
    return places


def mask_of(rows: list[list[int]], length: int, sees: Sees, is_causal: bool) -> Tensor:
    """Return for every pair of a sentence whether one attends to the other: (R, 1, T, T)."""
    mask = torch.zeros(len(rows), 1, length, length, dtype=torch.bool)
    for row, lengths in enumerate(rows):
        for number, n in enumerate(lengths):
            asker, asked = torch.arange(n)[:, None], torch.arange(n)
            own = slice(sum(lengths[:number]), sum(lengths[: number + 1]))
            mask[row, 0, own, own] = sees(asker, asked) & (asked <= asker if is_causal else True)
    return mask


def draw(
    n_rows: int, length: int = LENGTH, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw queries, keys and values."""
    widths = WIDTH, WIDTH, VALUES
    q, k, v = (torch.randn(n_rows, HEADS, length, width, dtype=dtype) for width in widths)
    return q, k, v


def full(inputs: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Attend with the whole matrix; padding gets zeros."""
    q, k, v = inputs
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e300)
    return scores.softmax(dim=-1) @ v * mask.any(dim=-1, keepdim=True)


def of_tokens(x: Tensor, places: Places) -> Tensor:
    """Leave padding out."""
    return x * places.is_token[:, None, :, None]


def gradients(found: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    return torch.autograd.grad(found, inputs, grad.to(found))


# The same as with a mask


@both_ways
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_full_attention_with_a_mask_and_so_are_its_gradients(kind, rows, is_causal):
    places, lengths = lay_out(ROWS[rows]), ROWS[rows]
    inputs = [x.requires_grad_() for x in draw(len(lengths))]
    ours = KINDS[kind].attend(*inputs, *places, is_causal=is_causal)
    theirs = full(inputs, mask_of(lengths, LENGTH, KINDS[kind].sees, is_causal))
    ours = of_tokens(ours, places)
    torch.testing.assert_close(ours, theirs)
    for left, right in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        torch.testing.assert_close(left, right)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=3),
    padding=st.integers(0, 5),
    sizes=st.tuples(st.integers(0, 9), st.integers(0, 4)),
    is_causal=st.booleans(),
)
def test_it_is_full_attention_whatever_stands_in_the_rows(rows, padding, sizes, is_causal):
    length = max(1, *map(sum, rows)) + padding
    places = lay_out(rows, length)
    inputs = draw(len(rows), length)
    chunk, overlap = sizes[0] + 1, sizes[1]
    for kind in (window_kind(*sizes), chunk_kind(chunk, overlap)):
        ours = of_tokens(kind.attend(*inputs, *places, is_causal=is_causal), places)
        torch.testing.assert_close(ours, full(inputs, mask_of(rows, length, kind.sees, is_causal)))


def test_scores_of_any_size_are_shared_out_right():
    """The greatest score of a sentence may be far from everybody, and far from other sentences'."""
    rows = [[60, 37]]
    places = lay_out(rows)
    q, k, v = draw(1)
    k[:, :, 55] *= 1000
    k[:, :, 60:] *= 300
    kind = window_kind(3, 2)
    ours = kind.attend(q, k, v, *places, is_causal=False)
    torch.testing.assert_close(ours, full((q, k, v), mask_of(rows, LENGTH, kind.sees, False)))


@few_kinds
@both_ways
def test_identity_as_values_shows_the_weights(kind, is_causal):
    q, k, _ = draw(3)
    places = lay_out(ROWS["packed"][:3])
    identity = torch.eye(LENGTH, dtype=q.dtype).expand(3, HEADS, -1, -1)
    weights = KINDS[kind].attend(q, k, identity, *places, is_causal=is_causal)
    mask = mask_of(ROWS["packed"][:3], LENGTH, KINDS[kind].sees, is_causal)
    weights = of_tokens(weights, places)
    assert (weights[~mask.expand_as(weights)] == 0).all()
    assert (weights[mask.expand_as(weights)] > 0).all()
    sums = weights.sum(dim=-1)[places.is_token[:, None].expand(-1, HEADS, -1)]
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("n_global", [0, 1, 3])
@pytest.mark.parametrize("padding", [0, 11])
def test_it_is_longformers(n_global, padding):
    window, length = 6, 48
    config = LongformerConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        attention_window=[2 * window],
        attention_probs_dropout_prob=0.0,
    )
    theirs = LongformerSelfAttention(config, layer_id=0).double().eval()
    for name in ("query", "key", "value"):
        getattr(theirs, f"{name}_global").load_state_dict(getattr(theirs, name).state_dict())
    x = torch.randn(2, length, HEADS * WIDTH, dtype=torch.float64)
    # Mask: -10000 for padding, 0 for a token that attends to its window, 10000 for a global one.
    mask = torch.zeros(2, length, dtype=torch.float64)
    mask[:, :n_global] = 10000
    mask[1, length - padding :] = -10000
    expected = theirs(
        x.clone(),
        attention_mask=mask,
        is_index_masked=mask < 0,
        is_index_global_attn=mask > 0,
        is_global_attn=n_global > 0,
    )[0]
    layers = theirs.query, theirs.key, theirs.value
    heads = [layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in layers]
    places = lay_out([[length], [length - padding]], length)
    ours = window_attention(*heads, *places, window, n_global, is_causal=False)
    torch.testing.assert_close(
        of_tokens(ours, places).transpose(1, 2).flatten(2), expected * places.is_token[..., None]
    )


# One at a time, and in company


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_the_last_place_of_the_whole(kind):
    inputs = draw(2)
    for length in (1, 2, 7, 8, 9, 17, 50, LENGTH):
        q, k, v = (x[:, :, :length] for x in inputs)
        places = lay_out([[length]] * 2, length)
        whole = KINDS[kind].attend(q, k, v, *places, is_causal=True)
        step = KINDS[kind].step(q[:, :, -1:], k, v)
        torch.testing.assert_close(step, whole[:, :, -1:])


@few_kinds
def test_the_future_changes_nothing_before_it(kind):
    inputs, others = draw(3), draw(3)
    places = lay_out(ROWS["packed"][:3])
    now = 40
    pairs = zip(inputs, others, strict=True)
    mixed = [torch.cat((x[:, :, :now], y[:, :, now:]), dim=2) for x, y in pairs]
    before, after = (KINDS[kind].attend(*x, *places, is_causal=True) for x in (inputs, mixed))
    torch.testing.assert_close(before[:, :, :now], after[:, :, :now], rtol=0, atol=0)
    assert not torch.equal(before[:, :, now:], after[:, :, now:])


@few_kinds
@both_ways
def test_packed_is_each_sentence_alone(kind, is_causal):
    lengths = [50, 20, 2, 1, 24]
    inputs = draw(1)
    together = KINDS[kind].attend(*inputs, *lay_out([lengths]), is_causal=is_causal)
    begin = 0
    for n in lengths:
        own = [x[:, :, begin : begin + n] for x in inputs]
        alone = KINDS[kind].attend(*own, *lay_out([[n]], n), is_causal=is_causal)
        torch.testing.assert_close(together[:, :, begin : begin + n], alone)
        begin += n


@few_kinds
@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_reaches_nobody_and_gives_finite_gradients(kind, is_causal, dtype):
    places = lay_out([[60, 5], [], [1]])
    inputs = draw(3, dtype=dtype)
    is_token = places.is_token[:, None, :, None]
    wild = [torch.where(is_token, x, 1e4 * x) for x in inputs]
    found = []
    for one in (inputs, wild):
        leaves = [x.clone().requires_grad_() for x in one]
        out = KINDS[kind].attend(*leaves, *places, is_causal=is_causal)
        of_all = torch.autograd.grad(out.float().square().sum(), leaves, retain_graph=True)
        assert all(x.isfinite().all() for x in (out, *of_all))
        own = gradients(of_tokens(out, places), leaves)
        assert all((x * ~is_token == 0).all() for x in own)
        found.append((of_tokens(out, places), *own))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


# Precision and cost


@few_kinds
@both_ways
def test_half_precision_is_close(kind, is_causal):
    places = lay_out(ROWS["packed"])
    half = [x.requires_grad_() for x in draw(4, dtype=torch.bfloat16)]
    exact = [x.detach().double().requires_grad_() for x in half]
    ours, theirs = (
        of_tokens(KINDS[kind].attend(*x, *places, is_causal=is_causal), places)
        for x in (half, exact)
    )
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.double(), theirs, rtol=0.02, atol=0.02)
    for left, right in zip(gradients(ours, half), gradients(theirs, exact), strict=True):
        torch.testing.assert_close(left.double(), right, rtol=0.02, atol=0.06)


def test_gradients_of_a_global_token_add_up_in_full_precision():
    """In half precision, a sum of thousands of small numbers stops growing."""
    length = 4096
    q, k, v = (torch.zeros(1, 1, length, 1, dtype=torch.bfloat16) for _ in range(3))
    v.requires_grad_()
    found = window_attention(q, k, v, *lay_out([[length]], length), 0, 1, is_causal=False)
    found.sum().backward()
    # Every token but the first gives it a half of its weight, and the first all of them the same.
    assert float(v.grad[0, 0, 0]) == pytest.approx((length - 1) / 2 + 1 / length, rel=0.01)


def saved_bytes(kind: Kind, length: int, is_causal: bool) -> int:
    """Count what is kept for the backward pass, each memory once."""
    sizes: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    inputs = [x.requires_grad_() for x in draw(1, length, torch.float32)]
    places = lay_out([[length]], length)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        found = kind.attend(*inputs, *places, is_causal=is_causal)
    found.sum().backward()
    return sum(sizes.values())


@few_kinds
@both_ways
def test_memory_is_linear_in_the_length(kind, is_causal):
    short, long, longer = (saved_bytes(KINDS[kind], n, is_causal) for n in (512, 1024, 2048))
    assert long / short == pytest.approx(2, rel=0.05)
    assert longer / long == pytest.approx(2, rel=0.05)


@few_kinds
@both_ways
def test_nothing_in_the_computation_depends_on_the_data(kind, is_causal):
    """What is recorded on one batch is right for any other, as compilers and CUDA graphs need."""

    def run(segments: Tensor, positions: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        found = KINDS[kind].attend(*leaves, segments, positions, is_causal=is_causal)
        return found.detach(), *torch.autograd.grad(found.square().sum(), leaves)

    recorded = make_fx(run)(*lay_out(ROWS["packed"]), *draw(4))
    others = *lay_out(ROWS["padded"]), *draw(4)
    for left, right in zip(recorded(*others), run(*others), strict=True):
        torch.testing.assert_close(left, right)


# The band


def test_a_band_asks_those_near_with_the_same_label_wherever_they_stand():
    band = Band(before=7, after=3)
    q, k, v = draw(2)
    labels = torch.randint(3, (2, HEADS, LENGTH))
    found = band_attention(q, k, v, labels, band)
    distance = torch.arange(LENGTH) - torch.arange(LENGTH)[:, None]
    mask = (distance >= -7) & (distance <= 3) & (labels[..., None] == labels[..., None, :])
    torch.testing.assert_close(found.values, full((q, k, v), mask))
    scores = (q @ k.mT / WIDTH**0.5).masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(found.log_sums, scores.logsumexp(dim=-1))


def test_a_band_knows_who_asks_whom():
    band = Band(before=2, after=40)
    places = torch.arange(1, LENGTH + 1)
    own, others = band.askers(places, -1), band.asked(places, -1)
    assert own.shape == (math.ceil(LENGTH / band.chunk), band.chunk)
    assert others.shape == (len(own), band.width)
    offsets = others[:, None, :] - own[..., None]
    is_real = (others > 0)[:, None, :] & (own > 0)[..., None]
    assert (offsets == band.offsets(places.device))[is_real].all()
    # Every pair that is near is there once.
    pairs = (band.is_near(places.device) & is_real).sum()
    assert pairs == sum(min(LENGTH, n + 40) - max(1, n - 2) + 1 for n in places.tolist())


@pytest.mark.parametrize("dim", [1, -2])
def test_a_band_cuts_along_any_dimension(dim):
    band = Band(before=40, after=2)
    x = torch.randn(5, LENGTH, 3)
    for cut in (band.askers, band.asked):
        along_the_last = cut(x.transpose(1, 2), -1).movedim(1, -1)
        torch.testing.assert_close(cut(x, dim), along_the_last, rtol=0, atol=0)


def test_a_bands_scores_can_be_adjusted():
    band = Band(before=4, after=4)
    q, k, v = draw(1)
    labels = torch.ones(1, 1, LENGTH, dtype=torch.long)

    def nearer(scores: Tensor) -> Tensor:
        return scores - band.offsets(scores.device).abs()

    found = band_attention(q, k, v, labels, band, nearer).values
    distance = (torch.arange(LENGTH) - torch.arange(LENGTH)[:, None]).abs().double()
    bias = torch.where(distance <= 4, -distance, -torch.inf)
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    torch.testing.assert_close(found, expected)


def test_parts_merge_to_the_whole():
    scores = torch.randn(2, HEADS, LENGTH, 12, dtype=torch.float64)
    values = torch.randn(2, HEADS, 12, VALUES, dtype=torch.float64)
    parts = [
        Averages(some.softmax(dim=-1) @ those, some.logsumexp(dim=-1))
        for some, those in zip(scores.split(4, dim=3), values.split(4, dim=2), strict=True)
    ]
    whole = merge(Averages(*(torch.stack(part, dim=2) for part in zip(*parts, strict=True))), dim=2)
    torch.testing.assert_close(whole.values, scores.softmax(dim=-1) @ values)
    torch.testing.assert_close(whole.log_sums, scores.logsumexp(dim=-1))


# The kernel for GPUs: its inputs can be checked anywhere

LONG_ROWS = [[300, 420, 3, 1, 50], [777], [500], [130] * 5, []]
LONG = 777
LONG_KINDS = {
    "window": window_kind(100, 0),
    "wide window": window_kind(300, 0),
    "global": window_kind(100, 3),
    "many global": window_kind(20, 200),
    "chunks": chunk_kind(200, 60),
}


def test_a_span_of_a_sentence_ends_with_it():
    span = own_span(*lay_out([[3, 1, 2], [6], [7]], 7))
    assert span.first[0].tolist() == [0, 0, 0, 3, 4, 4, 6]
    assert span.last[0].tolist() == [2, 2, 2, 3, 5, 5, 6]
    assert span.last[1].tolist() == [5] * 6 + [6]
    assert span.last[2].tolist() == [6] * 7


@both_ways
@pytest.mark.parametrize("kind", LONG_KINDS)
def test_the_kernel_is_told_of_every_pair_that_sees(kind, is_causal):
    places = lay_out(LONG_ROWS, LONG)
    told = block_mask(LONG_KINDS[kind].spans(*places, is_causal=is_causal))
    mask = mask_of(LONG_ROWS, LONG, LONG_KINDS[kind].sees, is_causal)[:, 0]

    rows, all_places = torch.arange(len(LONG_ROWS))[:, None, None], torch.arange(LONG)
    by_rule = told.mask_mod(rows, torch.tensor(0), all_places[:, None], all_places)
    is_token = places.is_token[..., None]
    assert torch.equal(by_rule & is_token, mask)
    assert by_rule.diagonal(dim1=1, dim2=2).all(), "padding, too, must see something"

    whole, part = (
        blocks_of(counts, order)
        for counts, order in (
            (told.full_kv_num_blocks, told.full_kv_indices),
            (told.kv_num_blocks, told.kv_indices),
        )
    )
    has_any = tiles(by_rule, is_asking=False).any(dim=-1)
    has_all = tiles(by_rule, is_asking=True).all(dim=-1)
    assert not (whole & part).any()
    assert (has_any <= (whole | part)).all()
    assert (whole <= has_all).all()
    if kind == "wide window":
        assert torch.equal(whole, has_all), "nothing that needs no rule is asked for it"
        assert whole.any()

    # The keys have the same lists, transposed.
    assert torch.equal(blocks_of(told.q_num_blocks, told.q_indices), part.mT)
    assert torch.equal(blocks_of(told.full_q_num_blocks, told.full_q_indices), whole.mT)


def tiles(mask: Tensor, *, is_asking: bool) -> Tensor:
    """Cut into blocks: (R, N, N, pairs); missing queries attend to all or none."""
    rest = -LONG % BLOCK
    filled = functional.pad(functional.pad(mask, (0, rest)), (0, 0, 0, rest), value=is_asking)
    return filled.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK)).transpose(2, 3).flatten(3)


def blocks_of(counts: Tensor, order: Tensor) -> Tensor:
    """Undo the lists: which blocks are named, (R, N, N)."""
    is_named = torch.arange(order.shape[-1]) < counts[..., None]
    return torch.zeros_like(order).scatter(-1, order.long(), is_named.int())[:, 0].bool()


def test_few_blocks_are_visited():
    """Few lie on the band, and as global tokens have one row and one column more."""
    n_blocks, length = 64, 64 * BLOCK
    places = lay_out([[length]], length)
    for kind, most in ((window_kind(BLOCK, 0), 3), (window_kind(BLOCK, 1), 5)):
        told = block_mask(kind.spans(*places, is_causal=False))
        visited = int(told.kv_num_blocks.sum() + told.full_kv_num_blocks.sum())
        assert visited <= most * n_blocks


def test_the_kernel_is_for_long_rows_in_half_precision_on_a_gpu():
    q = torch.zeros(1, 1, SHORTEST, 64, dtype=torch.bfloat16)
    assert not fits(q, q)
    if torch.cuda.is_available():
        q = q.cuda()
        assert fits(q, q)
        assert not fits(q[:, :, 1:], q[:, :, 1:])
        assert not fits(q.float(), q.float())
        assert not fits(q, torch.cat((q, q), dim=-1))
        with torch.inference_mode():
            assert not fits(q, q)


def assert_compiled_is_the_same(kind: Kind, is_causal: bool) -> None:
    """Compare the results only: that is all that PyTorch makes of the kernel for a CPU."""
    places = lay_out(LONG_ROWS, LONG)
    inputs = [torch.randn(len(LONG_ROWS), 2, LONG, 16) for _ in range(3)]
    with torch.no_grad():
        ours = fused_attention(*inputs, kind.spans(*places, is_causal=is_causal))
    assert ours.isfinite().all()
    explicit = kind.attend(*inputs, *places, is_causal=is_causal)
    torch.testing.assert_close(of_tokens(ours, places), of_tokens(explicit, places))


def assert_it_can_be_compiled_whole(kind: Kind, is_causal: bool) -> None:
    """Trace forward and backward without a break."""
    places = lay_out(ROWS["packed"])
    inputs = [x.requires_grad_() for x in draw(4)]
    compiled = torch.compile(kind.attend, fullgraph=True, backend="aot_eager")
    ours, plain = (way(*inputs, *places, is_causal=is_causal) for way in (compiled, kind.attend))
    torch.testing.assert_close(ours, plain)
    for left, right in zip(gradients(ours, inputs), gradients(plain, inputs), strict=True):
        torch.testing.assert_close(left, right)


def assert_gpu_is_the_same(kind: Kind, is_causal: bool) -> None:
    """Compare results and gradients of the kernel by itself, and within a larger program."""
    torch.compiler.reset()  # of one function there are only so many programs
    for compiled in (lambda attend: attend, partial(torch.compile, fullgraph=True)):
        compare_on_gpu(kind, is_causal, LONG_ROWS, LONG, compiled)


def assert_gpu_serves_any_length(kind: Kind, is_causal: bool) -> None:
    """Compare at several lengths; the second makes a program for any."""
    for rows, length in ((LONG_ROWS, LONG), ([[1000], [24, 1000]], 1024), ([[2000]], 2048)):
        compare_on_gpu(kind, is_causal, rows, length, lambda attend: attend)


def compare_on_gpu(
    kind: Kind, is_causal: bool, rows: list[list[int]], length: int, compiled: Callable
) -> None:
    """Compare the kernel with the plain operations in full precision."""
    places = Places(*(x.cuda() for x in lay_out(rows, length)))
    shape = len(rows), 2, length, 64
    half = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    wide = [x.detach().float().requires_grad_() for x in half]
    assert fits(half[0], half[2])
    assert not fits(wide[0], wide[2])
    attend = partial(
        kind.attend, segments=places.segments, positions=places.positions, is_causal=is_causal
    )
    theirs = of_tokens(attend(*wide), places)
    ours = compiled(attend)(*half)
    assert ours.isfinite().all()
    ours = of_tokens(ours, places)
    torch.testing.assert_close(ours.float(), theirs, rtol=0.02, atol=0.02)
    for left, right in zip(gradients(ours, half), gradients(theirs, wide), strict=True):
        assert (left.float() - right).norm() < 0.02 * right.norm()


def check_alone(check: Callable[[Kind, bool], None], *kinds: str) -> None:
    """Check kinds, causal and not, in a process of their own."""
    calls = [
        f"{check.__name__}(here.LONG_KINDS[{kind!r}], {is_causal})"
        for kind in kinds
        for is_causal in (False, True)
    ]
    run_alone("test_window", *calls)


@pytest.mark.slow
def test_it_can_be_compiled_whole():
    check_alone(assert_it_can_be_compiled_whole, "window", "global", "chunks")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_it_is_the_same():
    check_alone(assert_compiled_is_the_same, "global")


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", LONG_KINDS)
def test_on_a_gpu_it_is_the_same_forward_and_backward(kind):
    check_alone(assert_gpu_is_the_same, kind)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_is_the_same_at_any_length():
    check_alone(assert_gpu_serves_any_length, "window")


# The benchmark


def test_growth_is_fitted():
    lengths = [1024, 2048, 4096, 8192]
    square = Growth(lengths, [3 * n**2 for n in lengths])
    assert square.power() == pytest.approx((3, 2))
    correlation = np.corrcoef(lengths, square.figures)[0, 1]
    assert square.straightness() == pytest.approx(correlation**2)
    assert Growth(lengths, [100 + 7 * n for n in lengths]).straightness() == pytest.approx(1)


@pytest.mark.slow
def test_long_attention_is_measured_beside_full_attention(tmp_path):
    sizes = "--heads", 2, "--width", 16, "--window", 16, "--chunk", 16, "--buckets", 4
    lengths = "--length", 64, "--length", 128, "--runs", 1, "--device", "cpu"
    files = "--json", tmp_path / "found.json", "--plot", tmp_path / "found.png"
    done = run_python(BENCH / "long.py", *lengths, *sizes, *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert "full ÷ it" in done.stdout
    rows = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["rows"]
    kinds = ["full", "window", "global", "chunks", "lsh", "favor"]
    assert [row["system"] for row in rows] == [kind for kind in kinds for _ in range(2)]
    assert [row["length"] for row in rows] == 6 * [64, 128]
    assert all(row["milliseconds_forward"] * row["milliseconds_backward"] > 0 for row in rows)
    assert all(("time_exponent" in row) == (row["length"] == 128) for row in rows)
    assert {row["times_as_fast"] for row in rows[:2]} == {1}
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_unknown_kind_is_said_in_one_line():
    done = run_python(BENCH / "long.py", "--kinds", "full,windows", "--device", "cpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --kinds = 'windows' is not known; did you mean 'window'?\n"
