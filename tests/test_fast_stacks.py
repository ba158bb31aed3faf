"""Whole stacks, faster: the same results and gradients as the plain modules, whatever they are.

The kernels run in Triton's interpreter here, and for real where there is a GPU.
"""

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.data.corpus import ragged
from attendo.data.packing import lay_grid
from attendo.nn import fast
from attendo.nn import stack as stack_module
from attendo.nn.attention import ScaledDotProduct, flex
from attendo.nn.attention.base import Heads, Keys, Output, Pattern, Values
from attendo.nn.feedforward import FEED_FORWARDS, FeedForward
from attendo.nn.grid import Grid, WholeRows
from attendo.nn.layers import NORMS, Layer
from attendo.nn.lora import add_lora
from attendo.nn.positions import POSITIONS
from attendo.nn.stack import Memory, Stack

if not fast.AVAILABLE:
    pytest.skip("Triton is not installed", allow_module_level=True)

from attendo.nn.fast import attention, feedforward, residual, stacks
from attendo.nn.fast.stacks import FusedRun, ReversibleRun, accelerate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, TOKENS, SOURCE = 32, 19, 17


@pytest.fixture(autouse=True)
def _kernels_everywhere(monkeypatch):
    """Let the kernels take fp32, so that results can be compared closely, and any device."""
    monkeypatch.setattr(fast, "is_half", lambda x: True)
    monkeypatch.setattr(
        attention, "fits", lambda queries, keys, width, device: width in attention.WIDTHS
    )
    monkeypatch.setattr(feedforward, "fits", lambda x, inner: True)
    monkeypatch.setattr(residual, "fits", lambda x, result, norm: type(norm) is nn.LayerNorm)
    monkeypatch.setattr(residual, "PROGRAMS", 3)


@pytest.fixture
def calls(monkeypatch) -> dict[str, int]:
    """Count the calls of the kernels."""
    counts = {"attention": 0, "feed_forward": 0, "residual": 0}

    def counting(name, function):
        def call(*arguments, **options):
            counts[name] += 1
            return function(*arguments, **options)

        return call

    for module, function, name in (
        (attention, "attention_of_projections", "attention"),
        (feedforward, "feed_forward", "feed_forward"),
        (residual, "norm_of_sum", "residual"),
        (residual, "sum_and_norm", "residual"),
    ):
        monkeypatch.setattr(module, function, counting(name, getattr(module, function)))
    return counts


def grid(width: int) -> Grid:
    """Lay two sequences into the first row, one into the second; both rows end with padding."""
    sequences = ragged([[5] * 6, [5] * 8, [5] * 11])
    return lay_grid(sequences, ragged([[0, 1], [2]]), width, 0).to(DEVICE)


def whole_rows() -> WholeRows:
    """Lay one sequence into each row, which it fills."""
    ids = torch.full((2, TOKENS), 5, device=DEVICE)
    places = torch.arange(TOKENS, device=DEVICE).expand(2, -1)
    return WholeRows(ids, torch.ones_like(ids), places)


def make_stack(*, causal: bool = False, cross: bool = False, **changes) -> Stack:
    settings = {"d_model": WIDTH, "d_ff": 48, "n_heads": 2, "p_drop": 0.0, **changes}
    stack = Stack(BlockConfig(**settings), 2, causal=causal, cross=cross).to(DEVICE)
    for parameter in stack.parameters():  # norms and biases, too, would otherwise be trivial
        nn.init.normal_(parameter, std=0.2)
    return stack


def outcome(stack: Stack, run, rows: Grid | None = None) -> list[Tensor]:
    """Run a stack over a packed grid, with gradients of everything."""
    torch.manual_seed(3)
    x = torch.randn(2, TOKENS, WIDTH, device=DEVICE, requires_grad=True)
    hidden = torch.randn(2, SOURCE, WIDTH, device=DEVICE, requires_grad=True)
    target = grid(TOKENS) if rows is None else rows
    memory = Memory(hidden, grid(SOURCE).segments) if stack.cross else None
    result = run(x, target, memory)
    is_token = target.segments != 0
    learned = [weight for weight in stack.parameters() if weight.requires_grad]
    learners = [x, *([hidden] if stack.cross else []), *learned]
    slopes = torch.autograd.grad(result[is_token].sin().sum(), learners, allow_unused=True)
    return [result[is_token], *(slope for slope in slopes if slope is not None)]


def assert_same_as_plain(stack: Stack, run, rows: Grid | None = None) -> None:
    """Compare with the plain layers, which take whole rows as a packed grid with its masks."""
    packed = None if rows is None else Grid(*rows)
    plain = outcome(stack, lambda *inputs: stack._run(*inputs, None), packed)
    ours = outcome(stack, run, rows)
    assert len(plain) == len(ours)
    # The matrix units of a GPU round fp32 to 10 bits, which small gradients feel most.
    tolerance = 5e-2 if DEVICE == "cuda" else 1e-4
    for left, right in zip(ours, plain, strict=True):
        assert (left - right).norm() <= tolerance * right.norm() + 1e-5


@pytest.mark.parametrize(
    ("positions", "causal", "cross"), list(product(POSITIONS, [False, True], [False, True]))
)
@pytest.mark.usefixtures("unchecked")
def test_fused_layers_are_the_plain_layers(positions, causal, cross, calls):
    # Both orders occur with each kind of positions, and with each of the four kinds of stacks.
    number = [*POSITIONS].index(positions) + causal + cross
    norm_order = ("post", "pre")[number % 2]
    stack = make_stack(
        norm_order=norm_order, positions=positions, causal=causal, cross=cross, n_heads=1
    )
    assert_same_as_plain(stack, FusedRun(stack, compiled=False))
    n_sublayers = 2 * (3 if cross else 2)
    n_fused = 2 * ((positions != "alibi") + cross)  # scores with a bias are not for the kernel
    assert calls == {"attention": n_fused, "feed_forward": 2, "residual": n_sublayers}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("whole", [False, True])
def test_only_layers_with_the_papers_attention_are_fused(whole, calls, monkeypatch):
    options = {"positions": "rotary", "norm_order": "pre", "window": {"reach": 3, "n_global": 0}}
    stack = make_stack(attention_pattern=("window", "dot"), causal=True, n_heads=1, **options)
    masks = count_calls(monkeypatch, stack_module, "not_later")
    rows = whole_rows() if whole else None
    assert_same_as_plain(stack, FusedRun(stack, compiled=False), rows)
    assert calls["attention"] == 1
    assert len(masks) == 1  # of the plain layers: a window needs none


@pytest.mark.usefixtures("unchecked")
def test_fused_layers_can_be_recomputed():
    """Kernels draw what they drop out from the same random numbers again."""
    stack = make_stack(norm_order="pre", causal=True, p_drop=0.3, n_heads=1)
    stored = outcome(stack, FusedRun(stack, compiled=False))
    again = outcome(stack, FusedRun(stack, compiled=False, checkpointed=True))
    for left, right in zip(again, stored, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("norm", "kind"),
    [
        *(("layer", kind) for kind in FEED_FORWARDS),
        *((norm, "relu") for norm in NORMS if norm != "layer"),
    ],
)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.usefixtures("unchecked")
def test_what_has_no_kernel_runs_as_it_is(norm, kind, norm_order, calls):
    stack = make_stack(norm=norm, feed_forward=kind, norm_order=norm_order, n_heads=1)
    assert_same_as_plain(stack, FusedRun(stack, compiled=False))
    assert bool(calls["feed_forward"]) == (kind in ("relu", "relu2"))
    assert bool(calls["residual"]) == (norm == "layer")


@pytest.mark.parametrize(
    ("positions", "query_key_norm"), [("rotary", True), ("rotary", False), ("learned", True)]
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_long_rows_are_the_plain_layers(
    positions, query_key_norm, causal, whole, calls, monkeypatch
):
    monkeypatch.setattr(attention, "fits", lambda *sizes: False)
    monkeypatch.setattr(stacks, "LONG", 1)
    monkeypatch.setattr(flex, "NARROWEST", 1)
    monkeypatch.setattr(flex, "fused_attention", attend_to_spans)  # it has no backward on a CPU
    stack = make_stack(
        norm_order="pre", positions=positions, query_key_norm=query_key_norm, causal=causal
    )
    run = FusedRun(stack, compiled=False)
    joint = count_calls(monkeypatch, stacks, "_attend_in_long_rows")
    if whole:
        assert_same_as_plain(stack, run, whole_rows())
    else:
        assert_same_as_plain(stack, run)
    assert len(joint) == 2


def attend_to_spans(q, k, v, spans):
    """Attend by a mask, as the kernel does by spans."""
    (span,) = spans
    keys = torch.arange(k.shape[2], device=k.device)
    mask = (keys >= span.first[..., None]) & (keys <= span.last[..., None])
    mask = mask | ~mask.any(-1, keepdim=True)  # padding attends to nothing
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])


def count_calls(monkeypatch, module, name: str) -> list[None]:
    """Append to a list at every call of a function."""
    calls: list[None] = []
    function = getattr(module, name)

    def call(*arguments):
        calls.append(None)
        return function(*arguments)

    monkeypatch.setattr(module, name, call)
    return calls


class Halved(ScaledDotProduct):
    """An attention of one's own."""

    def forward(self, q: Heads, k: Keys, v: Values, pattern: Pattern) -> Output:
        return 0.5 * super().forward(q, k, v, pattern)


class Squared(FeedForward):
    """A feed-forward network of one's own."""

    def activate(self, x: Tensor) -> Tensor:
        return functional.relu(self.inner(x)).square()


def test_a_subclass_is_never_bypassed_by_a_kernel(calls):
    stack = make_stack(causal=True, cross=True)
    block = BlockConfig(d_model=WIDTH, d_ff=48, n_heads=2)
    for layer in stack.typed_layers():
        layer.self_attention.attention = Halved(block)
        layer.feed_forward = Squared(block).to(DEVICE)
    assert_same_as_plain(stack, FusedRun(stack, compiled=False))
    assert calls["attention"] == 2, "cross-attention only"
    assert calls["feed_forward"] == 0


@pytest.mark.parametrize(
    ("names", "n_attention", "n_feed_forward"),
    [(("query", "value"), 0, 2), (("inner",), 4, 0), (("output",), 4, 2)],
)
def test_low_rank_matrices_are_never_bypassed_by_a_kernel(
    names, n_attention, n_feed_forward, calls
):
    stack = make_stack(causal=True, cross=True)
    add_lora(stack, names, 3, 6.0)
    for name, parameter in stack.named_parameters():
        if name.endswith("lora_b"):
            nn.init.normal_(parameter, std=0.2)
    assert_same_as_plain(stack, FusedRun(stack, compiled=False))
    assert (calls["attention"], calls["feed_forward"]) == (n_attention, n_feed_forward)


def test_a_layer_of_ones_own_runs_as_it_is():
    class Doubled(Layer):
        def forward(self, *inputs):
            return 2 * super().forward(*inputs)

    stack = make_stack()
    stack.layers[1] = Doubled(BlockConfig(d_model=WIDTH, d_ff=48, n_heads=2)).to(DEVICE)
    accelerate(stack, compiled=False)
    assert stack.faster is None


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("attention", ["dot", "additive", "lsh"])
def test_reversible_layers_are_the_plain_layers(cross, causal, attention):
    stack = make_stack(
        norm_order="pre", reversible=True, attention=attention, causal=causal, cross=cross
    )
    accelerate(stack, compiled=False)
    assert isinstance(stack.faster, ReversibleRun)
    assert_same_as_plain(stack, stack.faster)
