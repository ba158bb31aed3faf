"""Attention among tokens of the same bucket: which pairs attend, and the outputs."""

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import make_fx

from alone import run_alone
from attendo.nn.attention import flex, lsh
from attendo.nn.attention.flex import fits
from attendo.nn.attention.lsh import find_buckets, lsh_attention, lsh_step, make_rotations

ROWS, HEADS, WIDTH, VALUES = 2, 3, 5, 7
PACKED = [[1] * 19 + [2] * 1 + [3] * 17, [1] * 11 + [2] * 9 + [0] * 17]


def drawn(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    q = 2 * torch.randn(ROWS, HEADS, length, WIDTH, dtype=dtype)
    return q, torch.randn(ROWS, HEADS, length, VALUES, dtype=dtype)


def rotations_of(n_rounds: int, n_buckets: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return make_rotations(HEADS, n_rounds, WIDTH, n_buckets, generator)


def one_sentence(length: int) -> Tensor:
    return torch.ones(ROWS, length, dtype=torch.int64)


def seen_by(
    directions: np.ndarray, q: np.ndarray, segments: list[int], reach: int, is_causal: bool
):
    """Return for each token of one head which others it attends to in any round, in loops."""
    seen = [{i} for i in range(len(q))]
    for rotation in directions:
        turned = q @ rotation
        buckets = np.argmax(np.concatenate((turned, -turned), axis=1), axis=1)
        for i in range(len(q)):
            same = [
                j for j in range(len(q)) if buckets[j] == buckets[i] and segments[j] == segments[i]
            ]
            at = same.index(i)
            seen[i] |= set(same[max(at - reach, 0) : at + 1 + (0 if is_causal else reach)])
    return seen


def visibility(
    q: Tensor, rotations: Tensor, segments: Tensor, reach: int, is_causal: bool
) -> Tensor:
    """The same for all rows and heads, as a mask; the token itself only if there is no other."""
    mask = torch.zeros(*q.shape[:3], q.shape[2], dtype=torch.bool)
    directions = rotations.double().numpy()
    for row in range(len(q)):
        for head in range(q.shape[1]):
            tokens = q[row, head].detach().double().numpy()
            where = segments[row].tolist()
            for i, seen in enumerate(seen_by(directions[head], tokens, where, reach, is_causal)):
                mask[row, head, i, sorted(seen - {i} or {i})] = True
    return mask


def dense(q: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Shared-QK attention with a table of all pairs."""
    k = q / q.norm(dim=-1, keepdim=True)
    scores = (q @ k.mT / WIDTH**0.5).masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1) @ v


def full_mask(length: int, is_causal: bool) -> Tensor:
    mask = torch.ones(length, length, dtype=torch.bool)
    mask = (mask.tril() if is_causal else mask) & ~torch.eye(length, dtype=torch.bool)
    mask[0, 0] = is_causal  # the first has no other
    return mask


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("reach", "n_rounds", "n_buckets"), [(3, 1, 4), (2, 4, 2), (5, 3, 8), (50, 2, 6), (1, 5, 32)]
)
def test_it_is_what_a_direct_reading_says(is_causal, reach, n_rounds, n_buckets):
    segments = torch.tensor(PACKED)
    q, v = drawn(segments.shape[1])
    rotations = rotations_of(n_rounds, n_buckets)
    mask = visibility(q, rotations, segments, reach, is_causal)
    found = lsh_attention(q, v, rotations, segments, reach=reach, is_causal=is_causal)
    torch.testing.assert_close(found, dense(q, v, mask))


def test_gradients_are_those_of_a_table_of_all_pairs():
    segments = torch.tensor(PACKED)
    q, v = (x.requires_grad_() for x in drawn(segments.shape[1]))
    rotations = rotations_of(3, 4)
    for is_causal in (False, True):
        mask = visibility(q, rotations, segments, 4, is_causal)
        found = lsh_attention(q, v, rotations, segments, reach=4, is_causal=is_causal)
        slope = torch.randn_like(found)
        ours = torch.autograd.grad(found, (q, v), slope)
        plain = torch.autograd.grad(dense(q, v, mask), (q, v), slope)
        for left, right in zip(ours, plain, strict=True):
            torch.testing.assert_close(left, right)


@pytest.mark.parametrize("is_causal", [False, True])
def test_with_all_in_one_bucket_it_is_full_attention(is_causal):
    length = 70
    q, v = drawn(length)
    q[..., 0] = q[..., 0].abs()
    # The only direction is the one in which all tokens lie.
    rotations = torch.eye(WIDTH)[:1].T.expand(HEADS, 2, WIDTH, 1)
    full = dense(q, v, full_mask(length, is_causal))
    where = {"segments": one_sentence(length), "is_causal": is_causal}
    torch.testing.assert_close(lsh_attention(q, v, rotations, **where, reach=length), full)
    assert (lsh_attention(q, v, rotations, **where, reach=length // 2) - full).abs().max() > 1e-3


@pytest.mark.parametrize("is_causal", [False, True])
def test_more_rounds_come_nearer_to_full_attention(is_causal):
    length = 40
    q, v = drawn(length)
    q = q.abs()  # at right angles at most, so that all soon share a bucket with each other
    full = dense(q, v, full_mask(length, is_causal))

    def error(n_rounds: int) -> float:
        drawings = [rotations_of(n_rounds, 2, seed) for seed in range(3)]
        where = {"segments": one_sentence(length), "reach": length, "is_causal": is_causal}
        founds = [lsh_attention(q, v, rotations, **where) for rotations in drawings]
        return float(sum((found - full).abs().mean() for found in founds))

    errors = [error(n_rounds) for n_rounds in (1, 2, 4, 32)]
    assert all(more < 0.9 * fewer for fewer, more in pairwise(errors))
    assert errors[-1] < 1e-5


def test_alone_in_its_buckets_a_token_keeps_its_own_value_exactly():
    segments = torch.arange(1, 12).expand(ROWS, -1)  # sentences of one token
    q, v = drawn(11, torch.float32)
    for is_causal in (False, True):
        found = lsh_attention(q, v, rotations_of(3, 4), segments, reach=2, is_causal=is_causal)
        assert torch.equal(found, v)


def test_the_future_changes_nothing_before_it():
    length, now = 300, 171
    q, v = (x.requires_grad_() for x in drawn(length))
    rotations, where = rotations_of(4, 8), {"reach": 3, "is_causal": True}
    names = torch.eye(length, dtype=torch.float64).expand(ROWS, HEADS, -1, -1)
    weights = lsh_attention(q, names, rotations, one_sentence(length), **where)
    assert not weights.triu(1).any()
    others = torch.cat((q[:, :, :now], 9 * torch.randn_like(q[:, :, now:])), dim=2)
    changed = lsh_attention(others, names, rotations, one_sentence(length), **where)
    assert torch.equal(changed[:, :, :now] > 0, weights[:, :, :now] > 0), "sees the same tokens"
    torch.testing.assert_close(changed[:, :, :now], weights[:, :, :now], rtol=1e-12, atol=0)
    cut = lsh_attention(q[:, :, :now], v[:, :, :now], rotations, one_sentence(now), **where)
    found = lsh_attention(q, v, rotations, one_sentence(length), **where)[:, :, :now]
    torch.testing.assert_close(found, cut, rtol=0, atol=1e-13)
    for gradient in torch.autograd.grad(found.square().sum(), (q, v)):
        assert gradient[:, :, :now].any()
        assert not gradient[:, :, now:].any()


def test_a_step_is_the_last_place_of_the_whole():
    length, rotations = 80, rotations_of(3, 6)
    q, v = drawn(length)
    whole = lsh_attention(q, v, rotations, one_sentence(length), reach=4, is_causal=True)
    steps = [
        lsh_step(q[:, :, i - 1 : i], q[:, :, :i], v[:, :, :i], rotations, 4)
        for i in range(1, length + 1)
    ]
    torch.testing.assert_close(torch.cat(steps, dim=2), whole)


@pytest.mark.parametrize("is_causal", [False, True])
def test_packed_sentences_are_as_if_alone(is_causal):
    lengths = (13, 1, 40, 9)
    q, v = drawn(sum(lengths) + 5)
    names = torch.tensor([*range(1, len(lengths) + 1), 0])
    segments = names.repeat_interleave(torch.tensor([*lengths, 5])).expand(ROWS, -1)
    rotations, where = rotations_of(3, 4), {"reach": 4, "is_causal": is_causal}
    packed = lsh_attention(q, v, rotations, segments, **where)
    parts = zip(*(x.split([*lengths, 5], dim=2)[:-1] for x in (q, v, packed)), strict=True)
    for q_alone, v_alone, expected in parts:
        alone = lsh_attention(q_alone, v_alone, rotations, one_sentence(q_alone.shape[2]), **where)
        torch.testing.assert_close(alone, expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_padding_is_finite_and_reaches_nobody(is_causal):
    segments = torch.tensor([[1] * 6 + [2] * 3 + [0] * 4, [0] * 13])
    is_padding = (segments == 0)[:, None, :, None]
    rotations = rotations_of(3, 4)
    q, v = drawn(13, torch.float32)

    def run(filling: float) -> tuple[Tensor, ...]:
        inputs = [x.masked_fill(is_padding, filling).requires_grad_() for x in (q, v)]
        found = lsh_attention(*inputs, rotations, segments, reach=3, is_causal=is_causal)
        everywhere = torch.autograd.grad(found.sum(), inputs, retain_graph=True)
        loss = found.masked_fill(is_padding, 0).square().sum()
        return found, *torch.autograd.grad(loss, inputs), *everywhere

    empty, full = run(0.0), run(1e6)
    assert all(tensor.isfinite().all() for tensor in (*empty, *full))
    for left, right in zip(empty[:3], full[:3], strict=True):
        assert torch.equal(left.masked_fill(is_padding, 0), right.masked_fill(is_padding, 0))
    for gradient in full[1:3]:
        assert not gradient.masked_fill(~is_padding, 0).any()


def saved_bytes(length: int) -> int:
    """Count what a backward pass would need, each piece of memory once."""
    kept = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    q, v = (x.requires_grad_() for x in drawn(length, torch.float32))
    with saved_tensors_hooks(pack, lambda x: x):
        found = lsh_attention(
            q, v, rotations_of(2, 8), one_sentence(length), reach=5, is_causal=False
        )
    assert found.requires_grad
    return sum(x.untyped_storage().nbytes() for x in kept.values())


def test_memory_grows_with_the_length_only():
    short, long = saved_bytes(512), saved_bytes(1024)
    assert 1.9 < long / short < 2.1


def test_in_half_precision_the_values_decide_what_comes_out():
    segments = torch.tensor(PACKED)
    q, v = (x.bfloat16() for x in drawn(segments.shape[1]))
    rotations, where = rotations_of(3, 4), {"reach": 4, "is_causal": True}
    exact = lsh_attention(q.double(), v.double(), rotations, segments, **where)
    found = lsh_attention(q, v, rotations, segments, **where)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = lsh_attention(q.float(), v.float(), rotations, segments, **where)
        step = lsh_step(q.float()[:, :, 10:11], q[:, :, :11], v.float()[:, :, :11], rotations, 4)
    assert mixed.dtype == step.dtype == torch.float32
    torch.testing.assert_close(mixed.double(), exact, rtol=0.02, atol=0.05)
    torch.testing.assert_close(step.double(), exact[:, :, 10:11], rtol=0.02, atol=0.05)


def test_buckets_hold_what_points_in_about_the_same_direction():
    rotations = rotations_of(50, 8)
    x = torch.randn(ROWS, HEADS, 30, WIDTH)
    buckets = find_buckets(x, rotations)
    assert set(buckets.unique().tolist()) == set(range(8))
    assert torch.equal(find_buckets(3 * x, rotations), buckets), "their lengths do not matter"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(find_buckets(x, rotations), buckets), "nor does the precision around it"
    assert not (find_buckets(-x, rotations) == buckets).any(), "opposites never meet"
    near = (find_buckets(x + 0.1 * torch.randn_like(x), rotations) == buckets).float().mean()
    far = (find_buckets(torch.randn_like(x), rotations) == buckets).float().mean()
    assert near > 0.8 > 0.3 > far


@pytest.mark.parametrize("is_causal", [False, True])
def test_what_is_recorded_on_one_batch_is_right_for_another(is_causal):
    """Nothing but numbers depends on the data, as compilers and CUDA graphs need it."""
    rotations = rotations_of(2, 4)

    def gradients(segments: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        found = lsh_attention(*leaves, rotations, segments, reach=3, is_causal=is_causal)
        return found.detach(), *torch.autograd.grad(found.square().sum(), leaves)

    segments = torch.tensor(PACKED)
    inputs, others = drawn(segments.shape[1]), drawn(segments.shape[1])
    recorded = make_fx(gradients)(one_sentence(segments.shape[1]), *others)
    for left, right in zip(recorded(segments, *inputs), gradients(segments, *inputs), strict=True):
        torch.testing.assert_close(left, right)


def packed_long(device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw queries, values, directions and sentences, long enough for the kernel."""
    names = torch.tensor([1, 2, 3, 0]).repeat_interleave(torch.tensor([400, 1, 190, 9]))
    q, v = torch.randn(2, ROWS, HEADS, len(names), 16).to(device, dtype)
    rotations = make_rotations(HEADS, 3, 16, 8, torch.Generator().manual_seed(0))
    return 2 * q, v, rotations.to(device), names.expand(ROWS, -1).to(device)


def assert_kernel_is_the_same(is_causal: bool) -> None:
    """Compare the results only, and uncompiled: the kernel itself cannot be made for a CPU."""
    q, v, rotations, segments = packed_long("cpu", torch.float32)
    where = {"segments": segments, "reach": 20, "is_causal": is_causal}
    plain = lsh_attention(q, v, rotations, **where)
    as_told = mock.patch.object(lsh, "fits", return_value=True)
    as_it_is = mock.patch.object(flex, "_program", side_effect=lambda attend, _: attend)
    with torch.no_grad(), as_told, as_it_is:
        torch.testing.assert_close(lsh_attention(q, v, rotations, **where), plain)


@pytest.mark.slow
def test_the_kernel_is_told_the_same_rules():
    calls = [f"assert_kernel_is_the_same({is_causal})" for is_causal in (False, True)]
    run_alone("test_lsh", *calls)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("is_causal", [False, True])
def test_on_a_gpu_it_is_the_same_forward_and_backward(is_causal):
    *half, rotations, segments = packed_long("cuda", torch.bfloat16)
    where = {"segments": segments, "reach": 20, "is_causal": is_causal}
    wide = [x.float().requires_grad_() for x in half]
    half = [x.requires_grad_() for x in half]
    assert fits(*half)
    assert not fits(*wide)
    ours, plain = (lsh_attention(*inputs, rotations, **where) for inputs in (half, wide))
    torch.testing.assert_close(ours.float(), plain, rtol=0.02, atol=0.02)
    slope = torch.randn_like(ours)
    found = torch.autograd.grad(ours, half, slope)
    for left, right in zip(found, torch.autograd.grad(plain, wide, slope.float()), strict=True):
        assert (left.float() - right).norm() < 0.02 * right.norm()
