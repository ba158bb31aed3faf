"""FAVOR+ against the paper read word by word, and against the attention that it approximates."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from attendo.nn.attention.base import scaled_dot_product_attention
from attendo.nn.attention.favor import (
    favor_attention,
    favor_step,
    log_features,
    orthogonal_features,
)
from attendo.nn.grid import same_segment

ROWS, HEADS, LENGTH, WIDTH, VALUES, FEATURES = 2, 3, 23, 7, 5, 17
assert_exactly = partial(torch.testing.assert_close, rtol=0, atol=0)

both_ways = pytest.mark.parametrize("is_causal", [False, True])


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def features_of(n: int, width: int, seed: int = 0) -> Tensor:
    return orthogonal_features(n, width, torch.Generator().manual_seed(seed))


def example(
    rows: int = ROWS, length: int = LENGTH, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """Draw queries, keys and values."""
    widths = WIDTH, WIDTH, VALUES
    return tuple(drawn(rows, HEADS, length, w, seed=n, dtype=dtype) for n, w in enumerate(widths))


def grid_of(*rows: list[int], length: int = LENGTH) -> Tensor:
    """Lay sentences of these lengths one after the other; the rest is padding."""
    grid = torch.zeros(len(rows), length, dtype=torch.long)
    for row, lengths in zip(grid, rows, strict=True):
        labels = [label for label, n in enumerate(lengths, start=1) for _ in range(n)]
        row[: len(labels)] = torch.tensor(labels[:length], dtype=torch.long)
    return grid


PACKED = grid_of([3, 1, 12, 4], [2, 2, 1, 1, 17])


def direct(q: Tensor, k: Tensor, v: Tensor, features: Tensor, segments: Tensor, is_causal: bool):
    """Read the paper word by word: features of eq. 5, attention of eq. 3 and 4, token by token."""
    omega, width = features.double().numpy(), q.shape[-1]

    def phi(x):
        x = x / width**0.25
        return np.exp(-(x @ x) / 2) / np.sqrt(len(omega)) * np.exp(omega @ x)

    q, k, v, segments = (x.numpy() for x in (q, k, v, segments))
    found = np.zeros(v.shape)
    for row, head, t in np.ndindex(q.shape[:3]):
        total, asks = 0.0, phi(q[row, head, t].astype(float))
        for s in range(t + 1 if is_causal else q.shape[2]):
            if segments[row, s] == segments[row, t] != 0:
                weight = asks @ phi(k[row, head, s].astype(float))
                found[row, head, t] += weight * v[row, head, s]
                total += weight
        found[row, head, t] /= total or 1.0
    return torch.from_numpy(found)


def quadratic(q: Tensor, k: Tensor, v: Tensor, features: Tensor, segments: Tensor, is_causal: bool):
    """Compute the same with the whole matrix of weights, for torch to differentiate."""
    weights = log_features(q, features).exp() @ log_features(k, features).exp().mT
    allowed = same_segment(segments, segments)
    weights = weights * (allowed.tril() if is_causal else allowed)
    return weights @ v / weights.sum(dim=-1, keepdim=True)


def of_tokens(x: Tensor, segments: Tensor) -> Tensor:
    """Leave out padding, whose outputs are not used."""
    return x.transpose(1, 2)[segments != 0]


sentences = st.lists(st.integers(1, 12), max_size=12)


@both_ways
@settings(max_examples=60, deadline=None)
@given(lengths=st.tuples(sentences, sentences), chunk=st.sampled_from([1, 2, 3, 5, 8, 128]))
def test_it_is_what_the_paper_says(is_causal, lengths, chunk):
    segments, features = grid_of(*lengths), features_of(FEATURES, WIDTH)
    inputs = example()
    ours = favor_attention(*inputs, features, segments, is_causal, chunk=chunk)
    assert ours.isfinite().all()
    theirs = direct(*inputs, features, segments, is_causal)
    torch.testing.assert_close(of_tokens(ours, segments), of_tokens(theirs, segments))


@both_ways
def test_chunks_of_the_usual_length_are_what_the_paper_says(is_causal):
    segments = grid_of([5, 200, 30, 100], length=300)
    inputs, features = example(1, 300, torch.float32), features_of(FEATURES, WIDTH)
    ours = favor_attention(*inputs, features, segments, is_causal)
    theirs = direct(*inputs, features, segments, is_causal).float()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def errors(n_features: int, n_seeds: int, draw=features_of) -> Tensor:
    """Measure how far from exact attention each draw of the features is."""
    q, k, v = drawn(3, 1, 1, 40, 8, seed=1000, dtype=torch.float32)
    q, k = q / 2, k / 2  # longer ones would need far more features
    exact = scaled_dot_product_attention(q, k, v)
    segments = torch.ones(1, 40, dtype=torch.long)
    found = [
        favor_attention(q, k, v, draw(n_features, 8, seed), segments, False)
        for seed in range(n_seeds)
    ]
    return torch.stack([(ours - exact).norm() / exact.norm() for ours in found])


def test_error_falls_with_the_root_of_the_number_of_features():
    few, more, many = (errors(n, 15).median() for n in (64, 64 * 16, 64 * 256))
    assert 3 < few / more < 5.5
    assert 3 < more / many < 5.5
    assert many < 0.04


def test_orthogonal_features_are_better_than_independent_ones():
    independent = errors(16, 200, lambda *shape: drawn(*shape[:2], seed=shape[2]).float())
    assert errors(16, 200).median() < independent.median()


def test_features_are_unbiased():
    n_blocks = 20_000
    features = features_of(n_blocks * WIDTH, WIDTH)
    for seed in range(3):
        q, k = drawn(2, WIDTH, seed=seed)
        estimates = (log_features(q, features) + log_features(k, features)).exp()
        of_blocks = estimates.unflatten(0, (n_blocks, WIDTH)).mean(dim=1)
        truth = (q @ k / WIDTH**0.5).exp()
        assert abs(of_blocks.mean() - truth) < 4 * of_blocks.std() / n_blocks**0.5
        assert of_blocks.std() / n_blocks**0.5 < 0.05 * truth


def test_features_are_orthogonal_in_blocks_and_as_long_as_gaussian_vectors():
    features = features_of(3 * WIDTH + 2, WIDTH)
    assert features.shape == (3 * WIDTH + 2, WIDTH)
    for block in features.split(WIDTH):
        products = block @ block.mT
        torch.testing.assert_close(products, products.diag().diag(), rtol=0, atol=1e-4)
    squares = features_of(30_000, WIDTH).square().sum(dim=1)
    assert squares.mean().item() == pytest.approx(WIDTH, rel=0.03)
    assert squares.var().item() == pytest.approx(2 * WIDTH, rel=0.05)


def test_features_have_no_preferred_direction():
    features = features_of(20_000 * 2, 2)
    assert features.mean(dim=0).abs().max() < 0.02
    torch.testing.assert_close(features.T.cov(), torch.eye(2), rtol=0, atol=0.03)
    assert features_of(20_000, 1).mean().abs() < 0.03


def test_features_are_those_of_the_seed():
    assert_exactly(features_of(9, 4, seed=3), features_of(9, 4, seed=3))
    assert not features_of(9, 4, seed=3).equal(features_of(9, 4, seed=4))


@both_ways
def test_packed_is_each_sentence_alone(is_causal):
    inputs, features = example(), features_of(FEATURES, WIDTH)
    packed = favor_attention(*inputs, features, PACKED, is_causal, chunk=4)
    for row, segments in enumerate(PACKED):
        for label in segments[segments != 0].unique():
            places = segments == label
            alone = [x[row : row + 1][:, :, places] for x in inputs]
            ones = torch.ones(1, int(places.sum()), dtype=torch.long)
            found = favor_attention(*alone, features, ones, is_causal)
            torch.testing.assert_close(packed[row : row + 1][:, :, places], found)


@both_ways
@pytest.mark.parametrize("chunk", [4, 128])
def test_a_sentence_of_long_keys_is_not_lost_beside_one_of_short_ones(is_causal, chunk):
    q, k, v = example(1, dtype=torch.float32)
    features, segments = features_of(FEATURES, WIDTH), grid_of([6, 11, 5])
    # Features fall as exp(-|k|²/2): relative to the others those of sentence 2 would be 0.
    k = torch.where((segments == 2)[:, None, :, None], 14 + k / 20, k)
    logs = log_features(k, features).amax(dim=-1)
    assert logs[:, :, 6:17].max() < logs[:, :, :6].min() - 110
    ours = favor_attention(q, k, v, features, segments, is_causal, chunk=chunk)
    theirs = direct(q, k, v, features, segments, is_causal).float()
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@both_ways
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_vectors_of_any_length_give_finite_values_and_gradients(is_causal, scale):
    q, k, v = (x.requires_grad_() for x in example(dtype=torch.float32))
    features = features_of(FEATURES, WIDTH)
    ours = favor_attention(q * scale, k * scale, v, features, PACKED, is_causal, chunk=4)
    assert ours.abs().max() <= v.abs().max() * 1.001  # still averages of the values
    for gradient in torch.autograd.grad(ours.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("chunk", [4, 128])
def test_the_future_changes_nothing_before_it(chunk):
    inputs, features = example(), features_of(FEATURES, WIDTH)
    attend = partial(
        favor_attention, features=features, segments=PACKED, is_causal=True, chunk=chunk
    )
    before = attend(*inputs)
    for t in (1, 6, 15, 22):
        changed = [torch.cat((x[:, :, :t], 50 - x[:, :, t:]), dim=2) for x in inputs]
        after = attend(*changed)
        assert_exactly(after[:, :, :t], before[:, :, :t])
        assert not after[:, :, t:].equal(before[:, :, t:])


def test_bidirectional_reads_the_future():
    q, k, v = example()
    segments, features = grid_of([23], [23]), features_of(FEATURES, WIDTH)
    before = favor_attention(q, k, v, features, segments, False, chunk=4)
    v[:, :, -1] += 1
    after = favor_attention(q, k, v, features, segments, False, chunk=4)
    assert ((after - before) > 0).all()


@pytest.mark.parametrize("length", [1, 4, 9, LENGTH])
def test_a_step_is_the_last_place_of_the_whole(length):
    q, k, v = (x[:, :, :length] for x in example())
    features, ones = features_of(FEATURES, WIDTH), torch.ones(ROWS, length, dtype=torch.long)
    whole = favor_attention(q, k, v, features, ones, True, chunk=4)
    step = favor_step(q[:, :, -1:], k, v, features)
    torch.testing.assert_close(step, whole[:, :, -1:])


def test_identity_as_values_shows_the_weights():
    q, k, v = example()
    features = features_of(FEATURES, WIDTH)
    attend = partial(favor_attention, features=features, segments=PACKED, is_causal=True, chunk=4)
    weights = attend(q, k, torch.eye(LENGTH).double().expand(ROWS, HEADS, LENGTH, LENGTH))
    tokens = (PACKED != 0)[:, None, :].expand(ROWS, HEADS, LENGTH)
    torch.testing.assert_close(weights.sum(dim=-1)[tokens], torch.ones(int(tokens.sum())).double())
    allowed = same_segment(PACKED, PACKED).tril().expand_as(weights)
    assert (weights[allowed & tokens[..., None]] > 0).all()
    assert (weights[~allowed] == 0).all()
    torch.testing.assert_close(of_tokens(weights @ v, PACKED), of_tokens(attend(q, k, v), PACKED))


@both_ways
@pytest.mark.parametrize("chunk", [3, 4, 128])
def test_gradients_are_those_of_the_whole_matrix(is_causal, chunk):
    inputs = [x.requires_grad_() for x in example()]
    features = features_of(FEATURES, WIDTH).double().requires_grad_()
    ours = favor_attention(*inputs, features, PACKED, is_causal, chunk=chunk)
    plain = quadratic(*inputs, features, PACKED, is_causal)
    grad = drawn(*ours.shape, seed=9) * (PACKED != 0)[:, None, :, None]
    gradients = (torch.autograd.grad(x, [*inputs, features], grad) for x in (ours, plain))
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right)


@both_ways
def test_padding_reaches_nobody_and_gives_finite_gradients(is_causal):
    segments, features = grid_of([3, 9, 2], [], [5]), features_of(FEATURES, WIDTH)
    is_padding = (segments == 0)[:, None, :, None]
    clean = [x.requires_grad_() for x in example(3, dtype=torch.float32)]
    attend = partial(
        favor_attention, features=features, segments=segments, is_causal=is_causal, chunk=4
    )
    for rubbish in (1e30, torch.nan):
        spoilt = [x.detach().masked_fill(is_padding, rubbish).requires_grad_() for x in clean]
        outputs = attend(*clean), attend(*spoilt)
        assert_exactly(of_tokens(outputs[1], segments), of_tokens(outputs[0], segments))
        assert outputs[1].isfinite().all()
        gradients = [
            torch.autograd.grad(out.square().sum(), inputs)
            for out, inputs in zip(outputs, (clean, spoilt), strict=True)
        ]
        for right, left in zip(*gradients, strict=True):
            assert_exactly(left, right)
            assert left.isfinite().all()
            assert not left.masked_select(is_padding).any()


@both_ways
def test_half_precision_is_that_of_the_numbers_only(is_causal):
    inputs = [x.bfloat16() for x in example()]
    features, segments = features_of(FEATURES, WIDTH), PACKED
    ours = favor_attention(*inputs, features, segments, is_causal, chunk=4)
    wide = favor_attention(*(x.float() for x in inputs), features, segments, is_causal, chunk=4)
    assert ours.dtype == torch.bfloat16
    assert_exactly(ours, wide.bfloat16())
    step = favor_step(inputs[0][:, :, -1:], *inputs[1:], features)
    wide = favor_step(inputs[0][:, :, -1:].float(), *(x.float() for x in inputs[1:]), features)
    assert_exactly(step, wide.bfloat16())


@both_ways
def test_autocast_leaves_the_sums_alone_forward_and_backward(is_causal):
    inputs = [x.requires_grad_() for x in example(dtype=torch.float32)]
    features = features_of(FEATURES, WIDTH)

    def results() -> list[Tensor]:
        found = favor_attention(*inputs, features, PACKED, is_causal, chunk=4)
        step = favor_step(inputs[0][:, :, -1:], *inputs[1:], features)
        # Compiled code runs backwards under the autocast of the forward pass, too.
        return [found, step, *torch.autograd.grad(found.square().sum() + step.sum(), inputs)]

    plain = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_exactly(results(), plain)


@both_ways
def test_half_precision_gradients_are_close(is_causal):
    inputs = [x.bfloat16().requires_grad_() for x in example()]
    wide = [x.detach().float().requires_grad_() for x in inputs]
    features = features_of(FEATURES, WIDTH)
    for ours, theirs in zip(
        *(
            torch.autograd.grad(
                favor_attention(*x, features, PACKED, is_causal, chunk=4).square().sum(), x
            )
            for x in (inputs, wide)
        ),
        strict=True,
    ):
        torch.testing.assert_close(ours.float(), theirs, rtol=0.02, atol=0.02)


def saved_bytes(length: int, is_causal: bool) -> int:
    """Count what is kept for the backward pass over one long sentence, each memory once."""
    sizes: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    inputs = [x.requires_grad_() for x in example(1, length, torch.float32)]
    ones = torch.ones(1, length, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        found = favor_attention(*inputs, features_of(FEATURES, WIDTH), ones, is_causal)
    found.sum().backward()
    return sum(sizes.values())


@both_ways
def test_memory_is_linear_in_the_length(is_causal):
    short, long, longer = (saved_bytes(n, is_causal) for n in (2048, 4096, 8192))
    assert long / short == pytest.approx(2, rel=0.05)
    assert longer / long == pytest.approx(2, rel=0.05)
    assert longer < HEADS * 8192 * 8192  # not even a byte for each pair


@both_ways
def test_a_long_sentence_is_right_to_its_end(is_causal):
    length = 8192
    q, k, v = example(1, length, torch.float32)
    features, ones = features_of(FEATURES, WIDTH), torch.ones(1, length, dtype=torch.long)
    ours = favor_attention(q, k, v, features, ones, is_causal)
    for t in (0, 127, 128, 5000, length - 1):
        seen = t + 1 if is_causal else length
        one = favor_step(
            q[:, :, t : t + 1].double(), *(x[:, :, :seen].double() for x in (k, v)), features
        )
        torch.testing.assert_close(ours[:, :, t : t + 1].double(), one, rtol=1e-4, atol=1e-5)


@both_ways
def test_nothing_in_the_computation_depends_on_the_data(is_causal):
    """What is recorded on one batch is right for any other, as compilers and CUDA graphs need."""
    features = features_of(FEATURES, WIDTH)

    def gradients(segments: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        found = favor_attention(*leaves, features, segments, is_causal, chunk=4)
        return found.detach(), *torch.autograd.grad(found.square().sum(), leaves)

    inputs = example(dtype=torch.float32)
    recorded = make_fx(gradients)(grid_of([], [23]), *(-x for x in inputs))
    for left, right in zip(recorded(PACKED, *inputs), gradients(PACKED, *inputs), strict=True):
        torch.testing.assert_close(left, right)
