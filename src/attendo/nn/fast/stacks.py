"""Whole stacks, faster or with less memory: fused kernels, reversible and recomputed layers.

Only plain modules are replaced. Where a module is a subclass that might compute something else, it
runs as it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from attendo.nn import fast
from attendo.nn.attention import flex
from attendo.nn.attention.base import Pattern, ScaledDotProduct
from attendo.nn.fast.reversible import Function, reversible
from attendo.nn.feedforward import FeedForward, SquaredReluFeedForward
from attendo.nn.grid import Grid, Span, WholeRows, partner_span
from attendo.nn.layers import Layer, PostNorm, PreNorm, Residual, Reversible
from attendo.nn.multihead import HeadNorm, MultiHeadAttention
from attendo.nn.positions import Rotation
from attendo.nn.stack import Memory, Stack

if fast.AVAILABLE:
    from attendo.nn.fast import attention as attention_kernel
    from attendo.nn.fast import feedforward as feed_forward_kernel
    from attendo.nn.fast import residual as residual_kernel


LONG = 256
"""Fewest columns of a row for which it pays to skip blocks of pairs that the mask forbids."""


def accelerate(
    model: nn.Module, *, compiled: bool, checkpointed: bool = False, half_residual: bool = False
) -> None:
    """Make the stacks of a model faster in training, with the same results.

    Args:
        model: Its stacks are changed in place.
        compiled: Whether to compile the layers.
        checkpointed: Whether to recompute each layer in the backward pass, to save memory
            (activation checkpointing). Reversible layers do that anyway.
        half_residual: Whether to round the residual to half precision after every sub-layer, on a
            GPU.
    """
    on_gpu = next(model.parameters()).is_cuda and fast.AVAILABLE
    for stack in model.modules():
        if type(stack) is not Stack:
            continue
        if all(_is_plain(layer, Reversible) for layer in stack.layers):
            stack.faster = ReversibleRun(stack)
        elif on_gpu and all(_is_plain(layer, PostNorm, PreNorm) for layer in stack.layers):
            stack.faster = FusedRun(
                stack, compiled=compiled, checkpointed=checkpointed, half_residual=half_residual
            )
            if compiled:
                stack.enter.compile()
        else:
            if compiled:
                for part in (stack.enter, *stack.layers):
                    part.compile()
            if checkpointed:
                stack.faster = CheckpointedRun(stack)


def _is_plain(layer: nn.Module, *residuals: type[Residual]) -> bool:
    """Return whether a layer is exactly a `Layer`, with residual connections of these kinds."""
    if type(layer) is not Layer:
        return False
    around = [layer.around_self, layer.around_feed_forward]
    around += [layer.around_cross] if layer.has_cross else []
    return all(type(residual) in residuals for residual in around)


def _are_plain(*projections: nn.Module) -> bool:
    """Return whether projections are no more than their parameters, which the kernels read."""
    return all(type(projection) is nn.Linear for projection in projections)


def recomputed(function: Callable[..., Any], *inputs: Any) -> Any:
    """Call a function that is called again in the backward pass: only its inputs are stored.

    Chen et al. 2016. Random numbers and autocast are restored, so dropout is the same both times.
    """
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=True)


class CheckpointedRun:
    """Runs the layers of a stack as they are, and recomputes each one in the backward pass."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def __call__(self, x: Float[Tensor, "R T D"], grid: Grid, memory: Memory | None) -> Tensor:
        """Run the layers."""
        stack, pattern = self.stack, self.stack.pattern(grid)
        hidden = None if memory is None else memory.hidden
        across = None if memory is None else stack.memory_pattern(grid, memory)
        x = stack.split(x)
        for layer in stack.layers:
            x = recomputed(layer, x, pattern, hidden, across)
        normed: Tensor = stack.norm(stack.merge(x))
        return normed


class Hidden(NamedTuple):
    """The hidden states between two sub-layers."""

    residual: Float[Tensor, "R T D"]
    """What the next residual connection adds to."""
    input: Float[Tensor, "R T D"]
    """What enters the next sub-layer: in a pre-norm stack, the normalised states."""


class Attended(NamedTuple):
    """What an attention may attend to, and how it is computed.

    With a pattern by any kind of attention; else by a kernel, with the rotation of the positions.
    """

    span: Span | None = None
    """Of every query; None: all of a row that is one sequence."""
    rotation: Rotation | None = None
    pattern: Pattern | None = None
    is_short: bool = True
    """Rows are short enough for the kernel that takes joint projections."""
    is_causal: bool = False
    """Of rows without spans."""


class FusedRun:
    """Runs the layers of a stack with one kernel for everything between two matrix products.

    A kernel adds the result of a sub-layer to the residual and normalises the sum for the next
    sub-layer, which may be that of the next layer.
    """

    def __init__(
        self,
        stack: Stack,
        *,
        compiled: bool,
        checkpointed: bool = False,
        half_residual: bool = False,
    ) -> None:
        self.stack = stack
        self.half_residual = half_residual
        self.layers = stack.typed_layers()
        self.is_pre = type(self.layers[0].around_self) is PreNorm
        first = self.layers[0].around_self.norm if self.is_pre else nn.Identity()
        self.run_layer: Callable[..., Hidden] = run_layer
        self.first: Callable[[Tensor], Tensor] = first
        if compiled:
            # One program for all layers of a kind, which compiles fast.
            self.run_layer = torch.compile(run_layer)
            self.first = torch.compile(first) if self.is_pre else first
        if checkpointed:
            self.run_layer = partial(recomputed, self.run_layer)

    def __call__(self, x: Float[Tensor, "R T D"], grid: Grid, memory: Memory | None) -> Tensor:
        """Run the layers."""
        if self.half_residual and torch.is_autocast_enabled("cuda"):
            x = x.to(torch.get_autocast_dtype("cuda"))
        own = self._own(x, grid)
        hidden = None if memory is None else memory.hidden
        across = None if memory is None else self._across(x, grid, memory)
        states = Hidden(x, self.first(x))
        for layer, attended, following in zip(self.layers, own, self._following(), strict=True):
            states = self.run_layer(layer, states, attended, hidden, across, following)
        return states.input

    def _following(self) -> list[nn.Module]:
        """Return the norm that comes after each layer; post-norm layers end with their own."""
        if not self.is_pre:
            return [self.stack.norm] * len(self.layers)
        return [*(layer.around_self.norm for layer in self.layers[1:]), self.stack.norm]

    def _own(self, x: Tensor, grid: Grid) -> list[Attended]:
        """Return what each layer attends to; those without a kernel run as they are."""
        attentions = [layer.self_attention for layer in self.layers]
        plain = [attention for attention in attentions if self._is_plain([attention], x)]
        fused = self._fused(plain, x, grid) if plain else None
        others = attentions if fused is None else [one for one in attentions if one not in plain]
        if not others:
            return [cast(Attended, fused)] * len(attentions)
        uses_mask = any(one.attention.uses_mask for one in others)
        pattern = Attended(pattern=self.stack.pattern(grid, uses_mask=uses_mask))
        return [pattern if fused is None or one in others else fused for one in attentions]

    def _fused(
        self, attentions: list[MultiHeadAttention], x: Tensor, grid: Grid
    ) -> Attended | None:
        """Return what layers with the paper's attention attend to; None: no kernel does it."""
        positions = self.stack.enter.positions
        if positions.bias(grid.positions[:, :1], grid.positions[:, :1]) is not None:
            return None
        rotation, causal = positions.rotate(grid.positions), self.stack.causal
        is_short = self._fits(attentions, x, x)
        if isinstance(grid, WholeRows) and not is_short:
            return Attended(None, rotation, is_short=False, is_causal=causal)
        if not is_short and not self._is_long(x):
            return None
        span = partner_span(grid.segments, grid.segments)
        return Attended(span.up_to_itself() if causal else span, rotation, is_short=is_short)

    def _is_long(self, x: Tensor) -> bool:
        """Return whether it pays to skip blocks of pairs, by a kernel that PyTorch makes."""
        return x.shape[1] >= LONG and x.shape[2] // self.stack.n_heads >= flex.NARROWEST

    def _across(self, x: Tensor, grid: Grid, memory: Memory) -> Attended:
        if not self._fits([layer.cross_attention for layer in self.layers], x, memory.hidden):
            return Attended(pattern=self.stack.memory_pattern(grid, memory))
        return Attended(partner_span(grid.segments, memory.segments))

    def _fits(self, attentions: list[MultiHeadAttention], x: Tensor, memory: Tensor) -> bool:
        """Return whether the kernel for joint projections does what these do."""
        return self._is_plain(attentions, x) and all(
            type(attention.query_norm) is nn.Identity
            and attention_kernel.fits(
                x.shape[1], memory.shape[1], x.shape[2] // attention.n_heads, x.device
            )
            for attention in attentions
        )

    def _is_plain(self, attentions: list[MultiHeadAttention], x: Tensor) -> bool:
        """Return whether all are the paper's attention, in half precision."""
        return fast.is_half(x) and all(
            type(attention) is MultiHeadAttention
            and type(attention.attention) is ScaledDotProduct
            and _are_plain(attention.query, attention.key, attention.value)
            and not (attention.training and attention.attention.p_drop)
            for attention in attentions
        )


def run_layer(
    layer: Layer,
    states: Hidden,
    own: Attended,
    memory: Float[Tensor, "R S D"] | None,
    across: Attended | None,
    following: nn.Module,
) -> Hidden:
    """Run a layer, and the norm of the one that follows it."""
    after = layer.around_cross if layer.has_cross else layer.around_feed_forward
    result = _attend(layer.self_attention, states.input, None, own)
    states = _pass(layer.around_self, states.residual, result, after.norm)
    if layer.has_cross:
        assert across is not None
        result = _attend(layer.cross_attention, states.input, memory, across)
        states = _pass(layer.around_cross, states.residual, result, layer.around_feed_forward.norm)
    result = _transform(layer.feed_forward, states.input)
    return _pass(layer.around_feed_forward, states.residual, result, following)


def _attend(
    attention: MultiHeadAttention,
    x: Float[Tensor, "R T D"],
    memory: Float[Tensor, "R S D"] | None,
    attended: Attended,
) -> Float[Tensor, "R T D"]:
    """Attend to a memory, or without one to x itself."""
    if attended.pattern is not None:
        result: Tensor = attention(x, x if memory is None else memory, attended.pattern)
        return result
    if not attended.is_short:
        return _attend_in_long_rows(attention, x, attended)
    assert attended.span is not None
    heads = attention_kernel.attention_of_projections
    span, n_heads = attended.span, attention.n_heads
    if memory is None:
        weight, bias = _joined(attention.query, attention.key, attention.value)
        x = functional.linear(x, weight)
        joined = heads(x, bias, span, n_heads, rotation=attended.rotation)
    else:
        weight, bias = _joined(attention.key, attention.value)
        x, memory = functional.linear(x, attention.query.weight), functional.linear(memory, weight)
        joined = heads(x, attention.query.bias, span, n_heads, memory, bias)
    return cast(Tensor, attention.output(joined))


def _attend_in_long_rows(
    attention: MultiHeadAttention, x: Float[Tensor, "R T D"], attended: Attended
) -> Float[Tensor, "R T D"]:
    """Attend to x itself, with one product for queries, keys and values."""
    n_heads, rotation = attention.n_heads, attended.rotation
    layers = [attention.query, attention.key, attention.value]
    weights: list[Tensor] = [one.weight for one in layers]
    biases: list[Tensor] = [one.bias for one in layers]
    if rotation is not None:
        weights[:2] = [_halved(weight, n_heads) for weight in weights[:2]]
        biases[:2] = [_halved(bias, n_heads) for bias in biases[:2]]
    joint = functional.linear(x, torch.cat(weights), torch.cat(biases))
    q, k, v = joint.unflatten(-1, (3, n_heads, -1)).permute(2, 0, 3, 1, 4)
    q, k = (
        _rotate_halves(_normed(heads, norm, rotation), rotation)
        for heads, norm in ((q, attention.query_norm), (k, attention.key_norm))
    )
    if attended.span is None:
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=attended.is_causal)
    else:
        heads = flex.fused_attention(q, k, v, [attended.span])
    return attention.join(heads)


def _halved(vectors: Float[Tensor, "D ..."], n_heads: int) -> Float[Tensor, "D ..."]:
    """Reorder the coordinates of each head: the first ones of all pairs, then the second ones.

    Scores do not depend on the order, and whole halves are rotated faster than pairs.
    """
    return vectors.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _normed(
    heads: Float[Tensor, "R H T K"], norm: nn.Module, rotation: Rotation | None
) -> Float[Tensor, "R H T K"]:
    """Normalise queries or keys whose coordinates have been reordered for a rotation."""
    if not isinstance(norm, HeadNorm):
        return heads
    gain = norm.weight if rotation is None else _halved(norm.weight, 1)
    return functional.rms_norm(heads, norm.normalized_shape, gain.to(heads.dtype), norm.eps)


def _rotate_halves(
    heads: Float[Tensor, "R H T K"], rotation: Rotation | None
) -> Float[Tensor, "R H T K"]:
    if rotation is None:
        return heads
    cos, sin = (table.to(heads.dtype)[:, None] for table in rotation)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _joined(*layers: nn.Linear) -> tuple[Float[Tensor, "F D"], Float[Tensor, " F"]]:
    """Join several projections of the same tokens into one."""
    weight = torch.cat([layer.weight for layer in layers])
    return weight, torch.cat([layer.bias for layer in layers])


def _transform(network: FeedForward, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T D"]:
    """Apply a feed-forward network."""
    squared = type(network) is SquaredReluFeedForward
    is_plain = squared or type(network) is FeedForward
    is_plain = is_plain and _are_plain(network.inner, network.outer)
    is_plain = is_plain and not (network.training and network.dropout.p)
    if is_plain and fast.is_half(x) and feed_forward_kernel.fits(x, network.inner):
        return feed_forward_kernel.feed_forward(x, network.inner, network.outer, squared=squared)
    result: Tensor = network(x)
    return result


def _pass(
    around: Residual,
    residual: Float[Tensor, "R T D"],
    result: Float[Tensor, "R T D"],
    following: Any,
) -> Hidden:
    """Add the result of a sub-layer to the residual, and normalise the sum for what follows."""
    is_pre = type(around) is PreNorm
    norm = following if is_pre else around.norm
    if residual_kernel.fits(residual, result, norm):
        add = residual_kernel.sum_and_norm if is_pre else residual_kernel.norm_of_sum
        return Hidden(*add(residual, result, norm, around.dropout.p if around.training else 0.0))
    total = residual + around.dropout(result)
    normed = norm(total)
    return Hidden(total if is_pre else normed, normed)


class ReversibleRun:
    """Runs reversible layers without storing what is between them for the backward pass."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def __call__(self, x: Float[Tensor, "R T D"], grid: Grid, memory: Memory | None) -> Tensor:
        """Run the layers."""
        stack, shared = self.stack, () if memory is None else (memory.hidden,)
        pattern = stack.pattern(grid)
        across = None if memory is None else stack.memory_pattern(grid, memory)
        functions = [
            function
            for layer in stack.typed_layers()
            for function in sublayers(layer, pattern, across)
        ]
        halves = torch.stack(reversible(functions, x, x, *shared))
        merged: Tensor = stack.norm(halves.mean(dim=0))
        return merged


def sublayers(layer: Layer, pattern: Pattern, across: Pattern | None) -> list[Function]:
    """Return what the sub-layers of a reversible layer add, with the modules that they use."""

    def around(residual: Residual, module: nn.Module, call: Callable[..., Tensor]) -> Function:
        addition = cast(Reversible, residual).addition
        return Function(
            (residual, module),
            lambda x, *shared: addition(x, lambda normed: call(normed, *shared)),
        )

    attend = layer.self_attention
    functions = [around(layer.around_self, attend, lambda x, *_: attend(x, x, pattern))]
    if layer.has_cross:
        cross = layer.cross_attention
        functions.append(
            around(layer.around_cross, cross, lambda x, memory: cross(x, memory, across))
        )
    network = layer.feed_forward
    functions.append(around(layer.around_feed_forward, network, lambda x, *_: network(x)))
    return functions
