"""Sentences of several requests, read one after the other as a search needs them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.constraints import Rules
from attendo.decoding.request import Request
from attendo.decoding.sampling import draw_numbers, repeat_sentences
from attendo.nn.grid import send


class Waiting(NamedTuple):
    """A request whose sentences wait, or are in slots."""

    request: Request[Any]
    first: int
    """Place of its first sentence among all that are searched."""
    rules: Rules
    numbers: Float[Tensor, "C T"] | None
    """Random numbers of sampling."""


class Sentence(NamedTuple):
    """One sentence of a request."""

    waiting: Waiting
    row: int

    @property
    def place(self) -> int:
        """Return its place among all that are searched."""
        return self.waiting.first + self.row

    @property
    def prefix(self) -> Sequence[int]:
        """Return the tokens that it must begin with."""
        prefixes = self.waiting.request.prefixes
        return prefixes[self.row] if prefixes else ()


def read_requests(
    requests: Iterable[Request[Any]], options: DecodingConfig, n_samples: int
) -> Iterator[Waiting | None]:
    """Yield requests with what the slots need of them; None for one without sentences."""
    first = 0
    for given in requests:
        request, numbers = given, None
        if not given.max_lengths:
            yield None
            continue
        if options.strategy == "sample":
            request = repeat_sentences(given, n_samples)
            samples = list(range(n_samples)) * len(given.max_lengths)
            numbers = send(draw_numbers(options.seed, request, samples), request.device)
        yield Waiting(request, first, Rules.of(request, options), numbers)
        first += len(request.max_lengths)


class Queue:
    """Sentences of one request after the other, read as they are needed."""

    def __init__(self, waiting: Iterator[Waiting | None]) -> None:
        self.waiting = waiting
        self.sentences: deque[Sentence] = deque()
        self.is_read = False
        """Whether there are no more requests."""

    def look_ahead(self, count: int, is_late: Callable[[], bool]) -> None:
        """Read requests until so many sentences wait, or until it is late; at least one of them."""
        while len(self.sentences) < count and not self.is_read:
            self._read()
            if is_late():
                return

    @property
    def is_over(self) -> bool:
        """Return whether no sentence waits any more."""
        return self.is_read and not self.sentences

    def _read(self) -> None:
        """Read a request, which may be empty."""
        self.is_read = True
        for waiting in islice(self.waiting, 1):
            self.is_read = False
            if waiting is not None:
                rows = range(len(waiting.request.max_lengths))
                self.sentences.extend(Sentence(waiting, row) for row in rows)

    def take(self, count: int) -> list[Sentence]:
        """Return the next sentences, at most so many, all of one request."""
        first = self.sentences[0].waiting
        taken: list[Sentence] = []
        while len(taken) < count and self.sentences and self.sentences[0].waiting is first:
            taken.append(self.sentences.popleft())
        return taken
