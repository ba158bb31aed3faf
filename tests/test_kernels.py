"""The GPU kernels against the plain code they stand for, gradients included.

Triton's interpreter runs them here on the CPU, number by number; on a GPU the same tests run the
real thing.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.losses import _of_one_pass
from attendo.nn import fast
from attendo.nn.grid import Span
from attendo.nn.positions import POSITIONS
from attendo.specials import IGNORE

if not fast.AVAILABLE:
    pytest.skip("Triton is not installed", allow_module_level=True)

from attendo.nn.fast import feedforward, residual
from attendo.nn.fast.attention import attention_of_projections
from attendo.nn.fast.feedforward import _feed_forward, feed_forward
from attendo.nn.fast.residual import norm_of_sum, sum_and_norm
from attendo.nn.fast.softmax import loss_and_gradient

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch):
    """The interpreter runs one program after the other."""
    monkeypatch.setattr(residual, "PROGRAMS", 3)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


def assert_same(ours: Tensor, plain: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Compare results and the gradients of all inputs."""
    # The matrix units of a GPU take fp32 with 10 bits after the point.
    rtol, atol = (1e-2, 2e-2) if DEVICE == "cuda" else (1e-4, 1e-4)
    torch.testing.assert_close(ours, plain, rtol=rtol, atol=atol)
    grad = torch.randn_like(plain)
    gradients = torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(plain, inputs, grad)
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=rtol, atol=atol)


def heads_of(joint: Tensor, n: int, width: int) -> list[Tensor]:
    """Split a joint projection (R, T, n H K) as multi-head attention does."""
    return [part.unflatten(-1, (-1, width)).transpose(1, 2) for part in joint.chunk(n, dim=-1)]


def random_span(rows: int, queries: int, keys: int) -> Span:
    """Allow every query some consecutive keys."""
    ends = torch.randint(keys, (2, rows, queries), device=DEVICE, dtype=torch.int32).sort(dim=0)
    return Span(*ends.values)


def mask_of(span: Span, keys: int) -> Tensor:
    key = torch.arange(keys, device=DEVICE)
    first, last = (place[:, None, :, None] for place in span)
    return (first <= key) & (key <= last)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "width"),
    [(2, 16, 16, 16), (3, 37, 21, 32), (1, 17, 40, 64), (2, 17, 128, 16), (1, 128, 128, 64)],
)
@pytest.mark.parametrize("has_memory", [False, True])
def test_attention_of_projections_adds_biases_and_splits_into_heads(
    heads, queries, keys, width, has_memory
):
    d_model, rows = heads * width, 3
    projected = drawn(rows, queries, d_model if has_memory else 3 * d_model)
    memory = drawn(rows, keys, 2 * d_model) if has_memory else None
    bias = drawn(projected.shape[-1])
    memory_bias = drawn(2 * d_model) if has_memory else None
    if has_memory:
        (q,), (k, v) = (
            heads_of(projected + bias, 1, width),
            heads_of(memory + memory_bias, 2, width),
        )
    else:
        q, k, v = heads_of(projected + bias, 3, width)
    span = random_span(rows, queries, k.shape[2])
    mask = mask_of(span, k.shape[2])
    plain = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    plain = plain.transpose(1, 2).flatten(2)
    ours = attention_of_projections(projected, bias, span, heads, memory, memory_bias)
    inputs = (projected, bias, memory, memory_bias) if has_memory else (projected, bias)
    assert_same(ours, plain, inputs)


@pytest.mark.parametrize(("tokens", "width"), [(16, 16), (37, 32), (20, 64)])
def test_attention_of_projections_turns_queries_and_keys(tokens, width):
    block = BlockConfig(d_model=2 * width, n_heads=2, positions="rotary")
    places = torch.stack((torch.arange(tokens), torch.arange(tokens) % 7)).to(DEVICE)
    rotation = POSITIONS["rotary"](block).rotate(places)
    joint, bias = drawn(2, tokens, 6 * width), drawn(6 * width)
    q, k, v = heads_of(joint + bias, 3, width)
    span = random_span(2, tokens, tokens)
    mask = mask_of(span, tokens)
    plain = functional.scaled_dot_product_attention(rotation(q), rotation(k), v, attn_mask=mask)
    plain = plain.transpose(1, 2).flatten(2)
    ours = attention_of_projections(joint, bias, span, 2, rotation=rotation)
    assert_same(ours, plain, (joint, bias))


def half(*shape: int) -> Tensor:
    """Draw numbers that bf16 can hold, as fp32."""
    return torch.randn(*shape, device=DEVICE).bfloat16().float().requires_grad_()


def assert_halves_are_near(
    ours: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> None:
    """Compare in bf16, as in training, with the plain code in fp32: result and gradients."""
    halves = tuple(x.detach().bfloat16().requires_grad_() for x in inputs)
    found, wanted = ours(*halves), plain(*inputs)
    grad = torch.randn_like(wanted).bfloat16()
    gradients = torch.autograd.grad(found, halves, grad)
    expected = torch.autograd.grad(wanted, inputs, grad.float())
    for left, right in zip((found, *gradients), (wanted, *expected), strict=True):
        assert left.dtype == torch.bfloat16
        assert (left.float() - right).norm() < 0.01 * right.norm()


needs_halves = pytest.mark.skipif(
    DEVICE == "cpu", reason="Triton's interpreter takes the bits of bf16 for whole numbers"
)


@needs_halves
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_attention_in_half_precision_is_near(positions):
    heads, tokens, width = 2, 40, 32
    block = BlockConfig(d_model=heads * width, n_heads=heads, positions=positions)
    places = torch.arange(tokens, device=DEVICE).expand(2, -1)
    rotation = POSITIONS[positions](block).rotate(places)
    span = random_span(2, tokens, tokens)

    def plain(joint: Tensor, bias: Tensor) -> Tensor:
        q, k, v = heads_of(joint + bias, 3, width)
        q, k = (rotation(x) if rotation else x for x in (q, k))
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(span, tokens))
        return found.transpose(1, 2).flatten(2)

    def ours(joint: Tensor, bias: Tensor) -> Tensor:
        return attention_of_projections(joint, bias, span, heads, rotation=rotation)

    assert_halves_are_near(ours, plain, (half(2, tokens, 6 * width), half(6 * width)))


@needs_halves
def test_the_feed_forward_network_in_half_precision_is_near():
    def plain(x: Tensor, *weights: Tensor) -> Tensor:
        inner, bias, outer, outer_bias = weights
        hidden = functional.relu(functional.linear(x, inner, bias))
        return functional.linear(hidden, outer, outer_bias)

    def ours(x: Tensor, *weights: Tensor) -> Tensor:
        return _feed_forward(x, *weights, False)[0]

    inputs = half(200, 64), half(304, 64), half(304), half(64, 304), half(64)
    assert_halves_are_near(ours, plain, inputs)


def test_queries_that_see_nothing_change_nothing():
    """Padding: its outputs are finite, and not used."""
    joint, bias, seen = drawn(1, 20, 48), drawn(48), random_span(1, 20, 12)
    seen.last[:, 12:] = -1
    ours = attention_of_projections(joint, bias, seen, 1)
    assert ours.isfinite().all()
    alone = attention_of_projections(joint[:, :16], bias, Span(*(x[:, :16] for x in seen)), 1)
    torch.testing.assert_close(ours[:, :12], alone[:, :12])
    gradients = torch.autograd.grad(ours[:, :12].sum(), (joint, bias))
    expected = torch.autograd.grad(alone[:, :12].sum(), (joint, bias))
    for left, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize(("rows", "tokens", "width"), [(2, 5, 64), (1, 3, 48), (3, 7, 128)])
@pytest.mark.parametrize("use", ["inside", "past", "both"])
def test_the_norm_of_a_sum_is_just_that_twice(rows, tokens, width, use):
    x, result = drawn(rows, tokens, width), drawn(rows, tokens, width)
    norm = nn.LayerNorm(width, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    inputs = (x, result, norm.weight, norm.bias)
    again, normed = norm_of_sum(x, result, norm, 0.0)
    assert torch.equal(again, normed)
    ours, plain = again if use == "past" else normed, norm(x + result)
    if use == "both":
        ours, plain = ours * again.sin(), plain * plain.sin()
    assert_same(ours, plain, inputs)


def test_dropout_in_the_sum_drops_the_same_places_forward_and_backward():
    x, result = drawn(5, 11, 128), drawn(5, 11, 128)
    norm = nn.LayerNorm(128, device=DEVICE)
    _, normed = norm_of_sum(x, result, norm, 0.3)
    slope = torch.randn_like(normed)
    grad_result, grad_x = torch.autograd.grad(normed, (result, x), slope, retain_graph=True)
    is_kept = grad_result != 0
    assert float(is_kept.float().mean()) == pytest.approx(0.7, abs=0.02)
    assert is_kept.float().mean(dim=(0, 1)).std() < 0.1, "no column is dropped more than others"
    torch.testing.assert_close(grad_result, torch.where(is_kept, grad_x / 0.7, 0.0))
    torch.testing.assert_close(normed, norm(x + torch.where(is_kept, result / 0.7, 0.0)))


@pytest.mark.parametrize("use", ["inside", "past", "both"])
def test_the_sum_and_its_norm_are_just_that(use):
    x, result = drawn(2, 5, 64), drawn(2, 5, 64)
    norm = nn.LayerNorm(64, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    total, normed = sum_and_norm(x, result, norm, 0.0)
    plain_total = x + result
    inputs = (x, result)
    if use == "past":
        assert_same(total, plain_total, inputs)
        return
    ours, plain = normed, norm(plain_total)
    if use == "both":
        ours, plain = ours * total, plain * plain_total
    assert_same(ours, plain, (*inputs, norm.weight, norm.bias))


def test_a_sum_that_is_kept_has_the_precision_of_what_went_past():
    x, result = drawn(2, 5, 64), drawn(2, 5, 64).detach().bfloat16().requires_grad_()
    total, normed = sum_and_norm(x, result, nn.LayerNorm(64, device=DEVICE), 0.5)
    assert (total.dtype, normed.dtype) == (torch.float32, torch.bfloat16)
    grad_x, grad_result = torch.autograd.grad((total * normed).sum(), (x, result))
    is_kept = grad_result != 0
    assert (grad_x.dtype, grad_result.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(grad_result, torch.where(is_kept, 2 * grad_x, 0.0).bfloat16())
    torch.testing.assert_close(total, x + torch.where(is_kept, 2 * result.float(), 0.0))


def test_every_sum_drops_other_places():
    x, result = drawn(2, 4, 64), drawn(2, 4, 64)
    norm = nn.LayerNorm(64, device=DEVICE)
    (_, first), (_, second) = (norm_of_sum(x, result, norm, 0.5) for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("vocabulary", "smoothing"), [(300, 0.1), (9001, 0.1), (8200, 0.0)])
def test_loss_and_gradient_are_those_of_the_plain_code(vocabulary, smoothing):
    logits = 3 * torch.randn(5, vocabulary, device=DEVICE)
    labels = torch.randint(vocabulary, (5,), device=DEVICE)
    labels[1] = IGNORE
    loss, gradient = loss_and_gradient(logits, labels, smoothing)
    plain_loss, plain_gradient = _of_one_pass(logits, labels, smoothing)
    torch.testing.assert_close(loss, plain_loss)
    torch.testing.assert_close(gradient, plain_gradient)
    assert (gradient[1] == 0).all()


def test_labels_need_not_lie_side_by_side():
    """An image has its label at its first position; the others are not labelled."""
    logits, labels = drawn(6, 10).detach(), torch.full((6, 7), IGNORE, device=DEVICE)
    labels[:, 0] = torch.arange(6)
    first = labels[:, :1].flatten()
    assert not first.is_contiguous()
    loss, gradient = loss_and_gradient(logits, first, 0.1)
    plain_loss, plain_gradient = _of_one_pass(logits, first, 0.1)
    torch.testing.assert_close(loss, plain_loss)
    torch.testing.assert_close(gradient, plain_gradient)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("tokens", "d_model", "d_ff"), [(3, 16, 8), (40, 24, 304)])
def test_the_feed_forward_network_is_just_that(tokens, d_model, d_ff, squared, monkeypatch):
    monkeypatch.setattr(feedforward, "ROWS", 64)  # more than one program for a column
    x = drawn(2, tokens, d_model)
    inner = nn.Linear(d_model, d_ff, device=DEVICE)
    outer = nn.Linear(d_ff, d_model, device=DEVICE)
    hidden = functional.relu(inner(x))
    plain = outer(hidden.square() if squared else hidden)
    inputs = (x, *inner.parameters(), *outer.parameters())
    assert_same(feed_forward(x, inner, outer, squared=squared), plain, inputs)


def test_kernels_can_be_compiled():
    """What a compiler must know about them: shapes, strides, and that nothing is changed."""
    x, result = drawn(2, 16, 32), drawn(2, 16, 32)
    norm = nn.LayerNorm(32, device=DEVICE)
    inner, outer = nn.Linear(16, 8, device=DEVICE), nn.Linear(8, 16, device=DEVICE)
    bias = drawn(48)
    span = random_span(2, 16, 16)
    block = BlockConfig(d_model=16, n_heads=1, positions="rotary")
    rotation = POSITIONS["rotary"](block).rotate(torch.arange(16, device=DEVICE).expand(2, -1))

    def mixed(x: Tensor, result: Tensor) -> Tensor:
        heads = norm_of_sum(x, result, norm, 0.0)[1][..., :16]
        joint = torch.cat((heads, heads, feed_forward(heads, inner, outer)), dim=-1)
        return attention_of_projections(joint, bias, span, 1, rotation=rotation)

    compiled = torch.compile(mixed, backend="aot_eager")
    inputs = (x, result, bias, *inner.parameters(), *outer.parameters())
    assert_same(compiled(x, result), mixed(x, result), inputs)


@pytest.mark.slow
def test_kernels_with_products_compile_for_a_gpu_that_is_not_here(tmp_path):
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("ROTATED") == 8
    assert done.stderr.count("feed-forward") == 2
    assert done.stderr.count("step _") == 22
