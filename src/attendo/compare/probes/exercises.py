"""Small exercises that need one ability each, drawn as many as wanted from a seed.

An exercise is a source, a target and what is to be said at places of the target. The symbols are
numbers without meaning, so that nothing but the ability counts.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attendo.nn.grid import Grid
from attendo.specials import IGNORE

ASK = 0
"""The token that begins a target, and asks for the answer where there is only one."""

N_SYMBOLS = 16
PLAIN = 1
"""The first plain symbol."""

MARKED = PLAIN + N_SYMBOLS
"""The first marked symbol: the same again, with a mark."""

VOCABULARY = MARKED + N_SYMBOLS


class Exercise(NamedTuple):
    """A batch of questions and answers; of all rows the same length."""

    source: Grid
    target: Grid
    answers: Int[Tensor, "R T"]
    """What is to be said after each token of the target; IGNORE where nothing is asked."""

    def to(self, device: torch.device) -> "Exercise":
        """Move to a device."""
        return Exercise(self.source.to(device), self.target.to(device), self.answers.to(device))


def whole_rows(ids: Int[Tensor, "R W"]) -> Grid:
    """Take every row for one sentence."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return Grid(ids, torch.ones_like(ids), positions)


def draw_recall(generator: torch.Generator, n_rows: int, distance: int) -> Exercise:
    """Say the marked symbol, after which so many others were read."""
    noise = _symbols(generator, n_rows, distance, PLAIN)
    marked = _symbols(generator, n_rows, 1, MARKED)
    return _asked(torch.cat((marked, noise), dim=1), marked)


def draw_first(generator: torch.Generator, n_rows: int, length: int) -> Exercise:
    """Say the symbol that stands first, which nothing but its place tells from the others."""
    source = _symbols(generator, n_rows, length, PLAIN)
    return _asked(source, source[:, :1])


def draw_latest(generator: torch.Generator, n_rows: int, length: int) -> Exercise:
    """Say, at every place of a stream, the symbol that was marked last; the source says nothing."""
    symbols = _symbols(generator, n_rows, length, 0)
    is_marked = torch.rand(n_rows, length, generator=generator) < SHARE_MARKED
    is_marked[:, 0] = True
    places = torch.arange(length).expand_as(symbols)
    latest = torch.where(is_marked, places, -1).cummax(dim=1).values
    stream = symbols + torch.where(is_marked, MARKED, PLAIN)
    return _streamed(stream, symbols.gather(1, latest) + MARKED)


SHARE_MARKED = 0.25
"""Of a stream's symbols."""


def draw_distant(generator: torch.Generator, n_rows: int, length: int) -> Exercise:
    """Say, in the last quarter of a stream, the one symbol that was marked in the first."""
    quarter = length // 4
    stream = _symbols(generator, n_rows, length, PLAIN)
    marked = _symbols(generator, n_rows, 1, MARKED)
    # Never the very first place, which some kinds of attention see from everywhere.
    place = torch.randint(1, max(2, quarter), (n_rows, 1), generator=generator)
    answers = torch.full_like(stream, IGNORE)
    answers[:, -quarter:] = marked
    return _streamed(stream.scatter(1, place, marked), answers)


def _symbols(
    generator: torch.Generator, n_rows: int, length: int, first: int
) -> Int[Tensor, "R T"]:
    return torch.randint(first, first + N_SYMBOLS, (n_rows, length), generator=generator)


def _asked(source: Int[Tensor, "R S"], answers: Int[Tensor, "R 1"]) -> Exercise:
    return Exercise(whole_rows(source), whole_rows(torch.full_like(answers, ASK)), answers)


def _streamed(stream: Int[Tensor, "R T"], answers: Int[Tensor, "R T"]) -> Exercise:
    silent = torch.full_like(stream[:, :1], ASK)
    return Exercise(whole_rows(silent), whole_rows(stream), answers)
