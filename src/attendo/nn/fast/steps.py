"""One step of a decoder in few kernels, for `FixedStack`.

A step of a small batch takes as long as its kernels are many. So queries, keys and values are
projected at once; one kernel rotates them, writes the caches and attends to all positions where
they lie; one attends to the memory, which the hypotheses of a sentence share. Sums of a sub-layer's
input and output, and their norms, are part of the projections that follow (`rows.py`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor, nn
from triton import language as tl

from attendo.nn.attention.base import ScaledDotProduct
from attendo.nn.embedding import Embedding
from attendo.nn.fast.overlap import launch, wait
from attendo.nn.fast.rows import Projection, add_and_norm
from attendo.nn.feedforward import FeedForward
from attendo.nn.fixed import FixedStack, Size, StackedMemory
from attendo.nn.layers import Layer, PostNorm, PreNorm
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.positions import Learned, Positions, Rotary, Sinusoidal, SinusoidalHalves
from attendo.nn.stack import Stack, StackState

BLOCK = 16
"""Positions of the past that a program attends to at once."""
MEMORY_BLOCK = 32
"""Positions of the memory that a program attends to at once."""
WARPS, MEMORY_WARPS = 1, 1
"""Of a program that attends to the past, and to the memory."""
GROUP = 16
"""Most hypotheses of a sentence for which a program reads the memory: rows of a matrix product."""
COPIED = 4096
"""Numbers of a memory that are copied at once."""
WIDTHS = (16, 32, 64, 128)
"""Widths of a head that the kernels are made for."""

LOG2_10000 = tl.constexpr(13.287712379549449)


def fits(stack: Stack) -> bool:
    """Return whether the kernels are made for all parts of a stack."""
    known = (Positions, Sinusoidal, SinusoidalHalves, Learned, Rotary)
    layers = stack.typed_layers()
    return (
        layers[0].self_attention.query.in_features // stack.n_heads in WIDTHS
        and type(stack.enter.positions) in known
        and all(map(_fits_layer, layers))
    )


def _fits_layer(layer: Layer) -> bool:
    attentions = [layer.self_attention, *([layer.cross_attention] if layer.has_cross else [])]
    is_plain = all(
        type(attention) is MultiHeadAttention
        and type(attention.attention) is ScaledDotProduct
        and all(type(part) is nn.Linear for part in _projections(attention))
        for attention in attentions
    )
    residual = layer.around_self
    has_norm = type(residual.norm) in (nn.LayerNorm, nn.RMSNorm)
    return is_plain and type(residual) in (PostNorm, PreNorm) and has_norm


def _projections(attention: MultiHeadAttention) -> tuple[nn.Module, ...]:
    return attention.query, attention.key, attention.value, attention.output


Finish = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From what has been projected, lengths, origins and entries to the output of a sub-layer."""


class Sublayer(NamedTuple):
    """A sub-layer that begins with a projection of its normalised input."""

    norm: nn.Module | None
    """Before the projection; None: the input is normalised already."""
    projection: Projection | None
    """None: it is left to `finish`."""
    finish: Finish


class FusedStack(FixedStack):
    """The same stack by kernels; parameters are copied, so they must not change any more."""

    def __init__(self, stack: Stack, size: Size, state: StackState) -> None:
        super().__init__(stack, size, state)
        self.n_heads = stack.n_heads
        self.is_rotary = type(stack.enter.positions) is Rotary
        self.is_post = type(stack.layers[0].around_self) is PostNorm
        self.encodings = self._encodings(size.length)
        layers = stack.typed_layers()
        self.sublayers = self._list_sublayers(layers)
        self.last_norm = layers[-1].around_feed_forward.norm if self.is_post else stack.norm

    def _copy(
        self, entries: Int[Tensor, " K"], memory: StackedMemory, rows: Int[Tensor, " K"]
    ) -> None:
        copy_memory(memory, rows, self.memory, self.memory_lengths, entries)

    def move(
        self,
        sources: Int[Tensor, " K"],
        targets: Int[Tensor, " K"],
        lengths: Int[Tensor, " B"],
    ) -> None:
        """Copy some slots, which have so many tokens by now, to others."""
        move_past(self.past, sources, targets, lengths)

    def embed(
        self, embedding: Embedding, tokens: Int[Tensor, "B N"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B N D"]:
        """Return the embeddings of tokens at positions `lengths`."""
        return self.stack.enter.norm(embed(embedding, tokens, lengths, self.encodings))

    def step(
        self,
        x: Float[Tensor, "B N D"],
        lengths: Int[Tensor, " B"],
        origins: Int[Tensor, "B N T"],
        entries: Int[Tensor, " B"],
    ) -> Float[Tensor, "B N D"]:
        """Run one more token of every hypothesis in the first B slots, at position `lengths`."""
        rows, output = x.flatten(0, 1), None
        for norm, projection, finish in self.sublayers:
            if norm is None:
                projected = rows if projection is None else projection(rows)
            elif projection is None:
                total, projected = add_and_norm(rows, output, norm)
                rows = projected if self.is_post else total
            else:
                rows, projected = projection.after_norm(
                    rows, output, norm, carries_norm=self.is_post
                )
            output = finish(projected, lengths, origins, entries)
        return add_and_norm(rows, output, self.last_norm)[1].view_as(x)

    def _encodings(self, length: int) -> Float[Tensor, "T D"] | None:
        """Return what is added to the embeddings, for all positions."""
        positions = self.stack.enter.positions
        if type(positions) in (Positions, Rotary):
            return None
        width = self.n_heads * self.past.shape[-1]
        nothing = self.past.new_zeros(1, length, width)
        return positions.embed(nothing, torch.arange(length, device=nothing.device)[None])[0]

    def _list_sublayers(self, layers: list[Layer]) -> list[Sublayer]:
        """List all sub-layers: a pre-norm one has its own norm before it, a post-norm one the last.

        What enters the first post-norm layer is not normalised.
        """
        norms: list[nn.Module | None] = []
        parts: list[tuple[Projection | None, Finish]] = []
        for number, layer in enumerate(layers):
            parts.append(self._self_attention(number, layer.self_attention))
            norms.append(layer.around_self.norm)
            if layer.has_cross:
                parts.append(self._memory_attention(number, layer.cross_attention))
                norms.append(layer.around_cross.norm)
            parts.append(_feed_forward(layer))
            norms.append(layer.around_feed_forward.norm)
        if self.is_post:
            norms = [None, *norms[:-1]]
        return [Sublayer(norm, *part) for norm, part in zip(norms, parts, strict=True)]

    def _joint_projection(self, attention: MultiHeadAttention) -> Projection:
        """Join the projections to queries, keys and values."""
        parts = (attention.query, attention.key, attention.value)
        orders = [self._order(attention.query.out_features, part is not parts[2]) for part in parts]
        weight = torch.cat([part.weight[order] for part, order in zip(parts, orders, strict=True)])
        bias = torch.cat([part.bias[order] for part, order in zip(parts, orders, strict=True)])
        return Projection(weight, bias)

    def _order(self, width: int, is_rotated: bool) -> Int[Tensor, " D"]:
        """Return an order of coordinates in which those that rotate together lie half a head apart.

        Scores do not depend on the order, if queries and keys have the same.
        """
        order = torch.arange(width, device=self.past.device)
        if not (self.is_rotary and is_rotated):
            return order
        return order.view(self.n_heads, -1, 2).transpose(1, 2).flatten()

    def _self_attention(
        self, number: int, attention: MultiHeadAttention
    ) -> tuple[Projection, Finish]:
        output = _projection_of(attention.output)
        gains = [self._gain(norm) for norm in (attention.query_norm, attention.key_norm)]

        def finish(joint: Tensor, lengths: Tensor, origins: Tensor, entries: Tensor) -> Tensor:
            heads = attend_to_past(
                joint, self.past[number], lengths, origins, gains, is_rotary=self.is_rotary
            )
            return output(heads)

        return self._joint_projection(attention), finish

    def _gain(self, norm: nn.Module) -> Tensor | None:
        """Return the weights of a norm of queries or keys in the order of the coordinates."""
        if not isinstance(norm, nn.RMSNorm):
            return None
        if not self.is_rotary:
            return norm.weight
        return norm.weight.view(-1, 2).T.flatten()

    def _memory_attention(
        self, number: int, attention: MultiHeadAttention
    ) -> tuple[Projection, Finish]:
        output = _projection_of(attention.output)
        norm = attention.query_norm
        gain = norm.weight if isinstance(norm, nn.RMSNorm) else None

        def finish(queries: Tensor, lengths: Tensor, origins: Tensor, entries: Tensor) -> Tensor:
            heads = attend_to_memory(
                queries, self.memory[number], self.memory_lengths, entries, origins.shape[1], gain
            )
            return output(heads)

        return _projection_of(attention.query), finish


def _projection_of(layer: nn.Linear, *, relu: bool = False) -> Projection:
    return Projection(layer.weight, layer.bias, relu)


def _feed_forward(layer: Layer) -> tuple[Projection | None, Finish]:
    network = layer.feed_forward
    if type(network) is not FeedForward:
        return None, lambda x, *where: network(x[:, None])[:, 0]
    outer = _projection_of(network.outer)
    return _projection_of(network.inner, relu=True), lambda x, *where: outer(x)


def embed(
    embedding: Embedding,
    tokens: Int[Tensor, "B N"],
    lengths: Int[Tensor, " B"],
    encodings: Float[Tensor, "T D"] | None,
) -> Float[Tensor, "B N D"]:
    """Return the embeddings of tokens with what is added at their positions."""
    weight = embedding.weight
    (n_slots, n_beams), width = tokens.shape, weight.shape[1]
    output = weight.new_empty(n_slots, n_beams, width)
    _embed[(tokens.numel(),)](
        tokens, lengths, weight, weight if encodings is None else encodings, output,
        embedding.factor, n_beams, width,
        triton.next_power_of_2(width), encodings is not None, num_warps=2, **launch(weight),
    )  # fmt: skip
    return output


@triton.jit
def _embed(
    tokens, lengths, weight, encodings, output, factor, n_beams, width,
    D: tl.constexpr, ADDS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    row = tl.program_id(0)
    column = tl.arange(0, D)
    is_inside = column < width
    kind = output.dtype.element_ty
    token = tl.load(tokens + row).to(tl.int64)
    value = tl.load(weight + token * width + column, mask=is_inside, other=0.0)
    value = (value.to(tl.float32) * factor).to(kind)  # as a product of its own would be
    if ADDS:
        position = tl.load(lengths + row // n_beams).to(tl.int64)
        added = tl.load(encodings + position * width + column, mask=is_inside, other=0.0)
        value = (value.to(tl.float32) + added.to(tl.float32)).to(kind)
    tl.store(output + row.to(tl.int64) * width + column, value, mask=is_inside)


def copy_memory(
    source: StackedMemory,
    rows: Int[Tensor, " K"],
    target: Float[Tensor, "L 2 M S H K"],
    target_lengths: Int[Tensor, " M"],
    entries: Int[Tensor, " K"],
) -> None:
    """Copy rows of the memories of all layers to entries."""
    values, lengths = source
    n_parts = 2 * len(values)
    size, target_size = (one[0, 0, 0].numel() for one in (values, target))
    _copy_memory[(len(rows), n_parts)](
        values, lengths, rows, target, target_lengths, entries,
        values.shape[2] * size, size, target.shape[2] * target_size, target_size,
        COPIED, num_warps=4,
    )  # fmt: skip


@triton.jit
def _copy_memory(
    values, lengths, rows, target, target_lengths, entries,
    part_size, size, target_part_size, target_size,
    C: tl.constexpr,
):  # fmt: skip
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    entry = tl.load(entries + tl.program_id(0)).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    if part == 0:
        tl.store(target_lengths + entry, tl.load(lengths + row))
    values += part * part_size + row * size
    target += part * target_part_size + entry * target_size
    for first in range(0, size, C):
        cell = first + tl.arange(0, C)
        tl.store(target + cell, tl.load(values + cell, mask=cell < size), mask=cell < size)


def move_past(
    past: Float[Tensor, "L 2 B N T H K"],
    sources: Int[Tensor, " K"],
    targets: Int[Tensor, " K"],
    lengths: Int[Tensor, " B"],
) -> None:
    """Copy the filled positions of some slots to others, unless both are the same."""
    n_layers, _, n_slots, n_beams, length, *head = past.shape
    size = math.prod(head)
    _move_past[(len(sources), 2 * n_layers * n_beams)](
        past, sources, targets, lengths, n_slots, n_beams, length * size, size,
        COPIED, num_warps=4,
    )  # fmt: skip


@triton.jit
def _move_past(
    past, sources, targets, lengths, n_slots, n_beams, row_size, size, C: tl.constexpr
):  # fmt: skip
    source = tl.load(sources + tl.program_id(0)).to(tl.int64)
    target = tl.load(targets + tl.program_id(0)).to(tl.int64)
    part = tl.program_id(1) // n_beams
    beam = tl.program_id(1) % n_beams
    count = tl.where(source == target, 0, tl.load(lengths + target)) * size
    past += part.to(tl.int64) * n_slots * n_beams * row_size
    source = (source * n_beams + beam) * row_size
    target = (target * n_beams + beam) * row_size
    for first in range(0, count, C):
        cell = first + tl.arange(0, C)
        value = tl.load(past + source + cell, mask=cell < count)
        tl.store(past + target + cell, value, mask=cell < count)


def attend_to_past(
    joint: Float[Tensor, "R P"],
    past: Float[Tensor, "2 C N T H K"],
    lengths: Int[Tensor, " B"],
    origins: Int[Tensor, "B N T"],
    gains: list[Tensor | None],
    *,
    is_rotary: bool,
) -> Float[Tensor, "R D"]:
    """Write keys and values of the new tokens to the caches, and attend from them to all so far.

    Args:
        joint: Queries, keys and values of the new tokens, side by side.
        past: The caches of C slots, of which the first B are used.
        lengths: Position of the new tokens of each slot.
        origins: For each position, the hypothesis in whose cache it lies.
        gains: The weights of norms of queries and keys, if there are any.
        is_rotary: Whether to rotate queries and keys; the partner of a coordinate is half a head
            away.
    """
    n_beams, length, n_heads, width = past.shape[2:]
    output = joint.new_empty(len(joint), n_heads * width)
    query_gain, key_gain = gains
    _attend_to_past[(len(joint), n_heads)](
        joint, past, lengths, origins, output,
        joint if query_gain is None else query_gain, joint if key_gain is None else key_gain,
        n_beams, length, past.stride(0), width**-0.5, torch.finfo(joint.dtype).eps,
        n_heads, width, BLOCK, n_beams == 1, is_rotary, query_gain is not None,
        num_warps=WARPS, **launch(joint),
    )  # fmt: skip
    return output


@triton.jit
def _normed(low, high, gain, place, epsilon, K: tl.constexpr):
    """Normalise a query or key, of which both halves are given."""
    mean = (tl.sum(low * low, 0) + tl.sum(high * high, 0)) / K
    scale = tl.rsqrt(mean + epsilon)
    low *= scale * tl.load(gain + place).to(tl.float32)
    high *= scale * tl.load(gain + K // 2 + place).to(tl.float32)
    return low, high


@triton.jit
def _attend_to_past(
    joint, past, lengths, origins, output, query_gain, key_gain,
    n_beams, length, values, scale, epsilon,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
    IS_ALONE: tl.constexpr, ROTARY: tl.constexpr, NORMED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    row = tl.program_id(0)
    head = tl.program_id(1)
    slot = row // n_beams
    kind = past.dtype.element_ty
    position = tl.load(lengths + slot)
    place = tl.arange(0, K // 2)
    column = tl.arange(0, K)

    joint += row.to(tl.int64) * (3 * H * K) + head * K
    q_low = tl.load(joint + place).to(tl.float32)
    q_high = tl.load(joint + K // 2 + place).to(tl.float32)
    k_low = tl.load(joint + H * K + place).to(tl.float32)
    k_high = tl.load(joint + H * K + K // 2 + place).to(tl.float32)
    value = tl.load(joint + 2 * H * K + column)
    if NORMED:
        q_low, q_high = _normed(q_low, q_high, query_gain, place, epsilon, K)
        k_low, k_high = _normed(k_low, k_high, key_gain, place, epsilon, K)
    if ROTARY:
        angle = position * tl.exp2(place * (-2.0 / K * LOG2_10000))
        cos = tl.cos(angle)
        sin = tl.sin(angle)
        q_low, q_high = q_low * cos - q_high * sin, q_high * cos + q_low * sin
        k_low, k_high = k_low * cos - k_high * sin, k_high * cos + k_low * sin

    cell = past + (row.to(tl.int64) * length + position) * (H * K) + head * K
    tl.store(cell + place, k_low.to(kind))
    tl.store(cell + K // 2 + place, k_high.to(kind))
    tl.store(cell + values + column, value)

    q_low *= scale
    q_high *= scale
    # The new position first, from registers, as the caches round it.
    highest = tl.sum(q_low * k_low.to(kind).to(tl.float32), 0)
    highest += tl.sum(q_high * k_high.to(kind).to(tl.float32), 0)
    total = 1.0
    mean = value.to(tl.float32)
    for first in range(0, position, C):
        time = first + tl.arange(0, C)
        is_past = time < position
        if IS_ALONE:
            owner = row.to(tl.int64)
        else:
            places = origins + row.to(tl.int64) * length + time
            owner = slot * n_beams + tl.load(places, mask=is_past, other=0)
        cells = (owner * length + time) * (H * K) + head * K
        low = tl.load(past + cells[:, None] + place[None], mask=is_past[:, None], other=0.0)
        high = tl.load(
            past + cells[:, None] + K // 2 + place[None], mask=is_past[:, None], other=0.0
        )
        block = tl.load(
            past + values + cells[:, None] + column[None], mask=is_past[:, None], other=0.0
        )
        score = tl.sum(q_low[None] * low.to(tl.float32), 1)
        score += tl.sum(q_high[None] * high.to(tl.float32), 1)
        score = tl.where(is_past, score, -1e30)
        higher = tl.maximum(highest, tl.max(score, 0))
        power = tl.exp(score - higher)
        shrink = tl.exp(highest - higher)
        mean = mean * shrink + tl.sum(power[:, None] * block.to(tl.float32), 0)
        total = total * shrink + tl.sum(power, 0)
        highest = higher
    output += row.to(tl.int64) * (H * K) + head * K
    tl.store(output + column, (mean / total).to(output.dtype.element_ty))


def attend_to_memory(
    queries: Float[Tensor, "R D"],
    memory: Float[Tensor, "2 M S H K"],
    memory_lengths: Int[Tensor, " M"],
    entries: Int[Tensor, " B"],
    n_beams: int,
    gain: Tensor | None,
) -> Float[Tensor, "R D"]:
    """Attend to the memory, which is read once for several hypotheses of a sentence."""
    length, n_heads, width = memory.shape[2:]
    output = torch.empty_like(queries)
    _attend_to_memory[(len(queries) // n_beams, n_heads, triton.cdiv(n_beams, GROUP))](
        queries, memory, memory_lengths, entries, output, queries if gain is None else gain,
        n_beams, length, memory.stride(0), width**-0.5, torch.finfo(queries.dtype).eps,
        n_heads, width, MEMORY_BLOCK, GROUP, gain is not None,
        num_warps=MEMORY_WARPS, **launch(queries),
    )  # fmt: skip
    return output


@triton.jit
def _attend_to_memory(
    queries, memory, memory_lengths, entries, output, gain,
    n_beams, length, values, scale, epsilon,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, G: tl.constexpr,
    NORMED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    slot = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    beam = tl.program_id(2) * G + tl.arange(0, G)
    is_beam = (beam < n_beams)[:, None]
    column = tl.arange(0, K)
    cell = (slot * n_beams + beam)[:, None] * (H * K) + head * K + column[None]
    kind = memory.dtype.element_ty
    query = tl.load(queries + cell, mask=is_beam, other=0.0)
    if NORMED:
        exact = query.to(tl.float32)
        exact *= tl.rsqrt(tl.sum(exact * exact, 1) / K + epsilon)[:, None]
        query = (exact * tl.load(gain + column)[None].to(tl.float32)).to(kind)
    entry = tl.load(entries + slot)
    n_keys = tl.load(memory_lengths + entry, mask=entry >= 0, other=0)
    memory += tl.maximum(entry, 0) * length * (H * K) + head * K
    highest = tl.full((G,), -1e30, tl.float32)
    total = tl.zeros((G,), tl.float32)
    mean = tl.zeros((G, K), tl.float32)
    for first in range(0, n_keys, C):
        time = first + tl.arange(0, C)
        is_key = time < n_keys
        cells = time[:, None] * (H * K) + column[None]
        key = tl.load(memory + cells, mask=is_key[:, None], other=0.0)
        value = tl.load(memory + values + cells, mask=is_key[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        score = tl.where(is_key[None], score, -1e30)
        higher = tl.maximum(highest, tl.max(score, 1))
        power = tl.exp(score - higher[:, None])
        shrink = tl.exp(highest - higher)
        mean *= shrink[:, None]
        mean = tl.dot(power.to(kind), value, mean, input_precision="ieee")
        total = total * shrink + tl.sum(power, 1)
        highest = higher
    mean /= tl.maximum(total, 1e-30)[:, None]  # an empty slot has no keys
    tl.store(output + cell, mean.to(output.dtype.element_ty), mask=is_beam)
