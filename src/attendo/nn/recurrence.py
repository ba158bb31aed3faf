"""Recurrent cells over the sequences of a grid: each sequence in a row of its own."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from attendo.config import choose
from attendo.nn.grid import Sequences

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}

Lengths = Int[Tensor, " N"] | None
"""How many words of each sequence there are, on the CPU; None: all."""


class CellState(NamedTuple):
    """What cells remember of the words before; a value with batch-first tensors."""

    hidden: Float[Tensor, "N layers D"]
    cell: Float[Tensor, "N layers D"]
    """The second half of an LSTM's memory; of the others, unused."""


def make_cells(
    kind: str,
    d_in: int,
    d_out: int,
    n_layers: int,
    p_drop: float,
    *,
    bidirectional: bool = False,
) -> nn.RNNBase:
    """Build layers of cells, with dropout between them; both directions share the width."""
    return choose(CELLS, kind, "model.cell")(
        input_size=d_in,
        hidden_size=d_out // (2 if bidirectional else 1),
        num_layers=n_layers,
        dropout=p_drop if n_layers > 1 else 0.0,
        bidirectional=bidirectional,
        batch_first=True,
    )


def new_state(cells: nn.RNNBase, rows: int) -> CellState:
    """Return the state before the first word: zeros."""
    parameter = next(cells.parameters())
    zeros = parameter.new_zeros(rows, cells.num_layers, cells.hidden_size)
    return CellState(zeros, zeros)


def remember(
    cells: nn.RNNBase, x: Float[Tensor, "N T E"], state: CellState, lengths: Lengths = None
) -> tuple[Float[Tensor, "N T D"], CellState]:
    """Run cells of one direction over some words; return what each word adds, and the state."""
    dtype = next(cells.parameters()).dtype
    x, hidden, cell = (part.to(dtype) for part in (x, *state))
    hidden, cell = (part.transpose(0, 1).contiguous() for part in (hidden, cell))
    read = _packed(x, lengths)
    with _without_autocast(x.device):
        if isinstance(cells, nn.LSTM):
            outputs, (hidden, cell) = cells(read, (hidden, cell))
        else:
            outputs, hidden = cells(read, hidden)
    return _unpacked(outputs), CellState(hidden.transpose(0, 1), cell.transpose(0, 1))


def run_cells(
    cells: nn.RNNBase, x: Float[Tensor, "R W E"], segments: Int[Tensor, "R W"]
) -> Float[Tensor, "R W D"]:
    """Run cells of one or two directions over whole sequences of a grid; padding gets zeros."""
    sequences = Sequences.of(segments)
    if not len(sequences.keys):
        return x.new_zeros(*segments.shape, cells.hidden_size * (1 + cells.bidirectional))
    apart = sequences.separate(x).to(next(cells.parameters()).dtype)
    with _without_autocast(apart.device):
        read, _ = cells(_packed(apart, known_lengths(sequences.lengths)))
    return sequences.reassemble(_unpacked(read))


def known_lengths(lengths: Int[Tensor, " N"]) -> Lengths:
    """Return the lengths of sequences on the CPU; None if all are equal.

    Over packed sequences PyTorch's backward pass takes time with the square of the length: nothing
    in sequences, but minutes in long texts.
    """
    lengths = lengths.cpu()
    return None if (lengths == lengths[0]).all() else lengths


def _packed(x: Float[Tensor, "N T E"], lengths: Lengths) -> Tensor | PackedSequence:
    if lengths is None:
        return x
    return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)


def _unpacked(read: Tensor | PackedSequence) -> Float[Tensor, "N T D"]:
    return read if isinstance(read, Tensor) else pad_packed_sequence(read, batch_first=True)[0]


def _without_autocast(device: torch.device) -> torch.autocast:
    """Return a context without autocast: on GPUs, bf16 would become fp16 in the cells."""
    return torch.autocast(device.type, enabled=False)
