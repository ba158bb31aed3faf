"""Continuous batching: a pool of slots that sentences enter as soon as others are done.

A pool has a fixed size, so that on a GPU its step is recorded once and replayed, without any work
of the CPU between the kernels. The CPU checks only every few steps which sentences are done, and
while it does so, the GPU already runs the next steps. Where no sentence waits any more, the open
ones move together, and a smaller step is recorded for them.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.advance import (
    advance_beams,
    advance_greedily,
    advance_randomly,
    begin,
    report,
)
from attendo.decoding.constraints import Rules
from attendo.decoding.reports import NEVER, Columns, Reports
from attendo.decoding.request import Request
from attendo.decoding.sampling import draw_numbers, repeat_sentences
from attendo.decoding.slots import Entering, FixedRules, Slots
from attendo.errors import BundleError
from attendo.hypotheses import NOT_FINITE, Hypothesis, check_n_best, rank
from attendo.nn.grid import Grid, send

PERIOD = 3
"""Steps between two checks of what is done."""
AT_ONCE = 64
"""Sentences that are decoded to text at once, if there are as many slots."""
UNIT = 64
"""Lengths are rounded up to multiples of this, so that few pools are needed."""
KEPT = 4
"""Pools that are kept for the next search."""


Found = dict[int, list[Hypothesis]]
"""Hypotheses of sentences, best first, by the place of the sentence among all."""


@runtime_checkable
class FixedDecoder(Protocol):
    """A decoder whose caches have a fixed size and are changed in place.

    Repeating a step gives the same result.
    """

    def fits(self, state: Any) -> bool:
        """Return whether the sources of a state fit into the slots."""

    def load(self, slots: Int[Tensor, " K"], state: Any, rows: Int[Tensor, " K"]) -> None:
        """Put rows of a state before the first token into slots."""

    def move(self, sources: Int[Tensor, " K"], targets: Int[Tensor, " K"]) -> None:
        """Copy some slots to others."""

    def step(
        self, tokens: Int[Tensor, "B N"], lengths: Int[Tensor, " B"], origins: Int[Tensor, "B N T"]
    ) -> Float[Tensor, "R V"]:
        """Add one token to all hypotheses of the first B slots, and return the logits of the next.

        Args:
            tokens: The tokens to add.
            lengths: Positions of the new tokens.
            origins: For each position before, the hypothesis that has added it.
        """


@runtime_checkable
class MakeDecoder(Protocol):
    """Makes a decoder for a number of slots, of hypotheses, of positions, and for such states."""

    def __call__(self, n_slots: int, n_beams: int, length: int, state: Any) -> FixedDecoder:
        """Return a decoder."""


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


@dataclass
class Pools:
    """Makes pools for a model whose parameters do not change, and keeps them for the next search.

    A pool serves one search at a time.
    """

    make: MakeDecoder
    start: Callable[[Grid], Any] | None = None
    """From sources, still on the CPU, to the state before the first token, if the model has it."""
    free: list["Pool"] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    """For searches of several threads."""

    def search(
        self, requests: Iterable[Request[Any]], options: DecodingConfig, n_best: int
    ) -> Iterator[Found]:
        """Yield hypotheses by the place of their sentence among all, as soon as they are found."""
        check_n_best(options, n_best)
        with _little_garbage():
            if options.strategy == "sample":
                yield from self._sample(requests, options, n_best)
            else:
                yield from self._search(_waiting(requests, options, 1), options, n_best)

    def _sample(
        self, requests: Iterable[Request[Any]], options: DecodingConfig, n_best: int
    ) -> Iterator[Found]:
        samples: dict[int, list[Hypothesis]] = {}
        for found in self._search(_waiting(requests, options, n_best), options, 1):
            for place, (sample,) in found.items():
                samples.setdefault(place // n_best, []).append(sample)
            done = [place for place, drawn in samples.items() if len(drawn) == n_best]
            yield {place: rank(samples.pop(place), options.alpha) for place in done}

    def _search(
        self, waiting: Iterator[Waiting | None], options: DecodingConfig, n_best: int
    ) -> Iterator[Found]:
        queue = _Queue(waiting)
        while (first := queue.peek()) is not None:
            pool = self._take(first.request, options)
            try:
                yield from pool.run(queue, options.alpha, n_best)
            finally:
                pool.clear()
                with self.lock:
                    self.free = [*self.free, pool][-KEPT:]

    @torch.inference_mode()
    def _take(self, request: Request[Any], options: DecodingConfig) -> "Pool":
        """Return a pool that can hold a request, and as many sentences as are allowed."""
        n_slots = _power_of_two(min(options.batch_size, len(request.max_lengths)))
        with self.lock:
            for pool in self.free:
                is_like = pool.options == _searched(options) and pool.n_slots >= n_slots
                if is_like and pool.fits(request):
                    self.free.remove(pool)
                    return pool
        n_beams = options.beam if options.strategy == "beam" else 1
        length = _rounded(max(request.max_lengths) + 1)
        decoder = self.make(n_slots, n_beams, length, request.state)
        slots = Slots.empty(n_slots, n_beams, length, request.device)
        return Pool(decoder, slots, _searched(options), FixedRules.of(request.specials, options))


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Search for garbage only in new objects: in all that is loaded it takes as long as a batch."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Queue:
    """Sentences of one request after the other, the next of which can be seen."""

    def __init__(self, waiting: Iterator[Waiting | None]) -> None:
        self.waiting = waiting
        self.sentences: deque[Sentence] = deque()

    def look_ahead(self, count: int) -> None:
        """Read one more request if fewer sentences wait."""
        if len(self.sentences) < count:
            self._read()

    def peek(self) -> Waiting | None:
        """Return the request of the next sentence."""
        while not self.sentences and self._read():
            pass
        return self.sentences[0].waiting if self.sentences else None

    def _read(self) -> bool:
        """Read a request, which may be empty; return False if there is none."""
        for waiting in islice(self.waiting, 1):
            if waiting is not None:
                rows = range(len(waiting.request.max_lengths))
                self.sentences.extend(Sentence(waiting, row) for row in rows)
            return True
        return False

    def take(self, count: int) -> list[Sentence]:
        """Return the next sentences, at most so many, all of one request."""
        first = self.sentences[0].waiting
        taken: list[Sentence] = []
        while len(taken) < count and self.sentences and self.sentences[0].waiting is first:
            taken.append(self.sentences.popleft())
        return taken


class Pool:
    """Slots with a decoder, for one way to search."""

    def __init__(
        self, decoder: FixedDecoder, slots: Slots, options: DecodingConfig, rules: FixedRules
    ) -> None:
        self.decoder = decoder
        self.slots = slots
        self.options = options
        self.rules = rules
        self.n_slots, self.n_beams, self.length = slots.tokens.shape
        self.device = slots.tokens.device
        self.sentences: list[Sentence | None] = [None] * self.n_slots
        self.is_watched = False
        """Whether a sentence wants to know each of its tokens."""
        self.reports = Reports.empty(slots, is_beam=options.strategy == "beam")
        self.send = Sender(16 * self.n_slots, self.device)
        self.n_started = 0
        self.number = torch.zeros(1, dtype=torch.long, device=self.device)
        """How often steps have been started, here and on the device."""
        self.steps: dict[tuple[int, int], Callable[[], None]] = {}
        """For a number of slots, and of steps, these steps of the first of the slots."""

    def fits(self, request: Request[Any]) -> bool:
        """Return whether the sentences of a request fit into the slots."""
        return max(request.max_lengths) < self.length and self.decoder.fits(request.state)

    @torch.inference_mode()
    def clear(self) -> None:
        """Empty all slots."""
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        self.sentences = [None] * self.n_slots
        self.is_watched = False
        self.slots.is_open.zero_()
        self.slots.is_reported.fill_(True)
        self.reports.done_at.fill_(NEVER)

    def run(self, queue: _Queue, alpha: float, n_best: int) -> Iterator[Found]:
        """Search for all sentences that fit, and yield them when they are done."""
        done: list[_Done] = []
        earlier: _Started | None = None
        self._fill(queue)
        while any(self.sentences):
            started = self._advance()
            # While the GPU works, the next request is read, and what was found before is used.
            queue.look_ahead(self.n_slots)
            if sum(len(some.places) for some in done) >= min(AT_ONCE, self.n_slots):
                yield _best(done, alpha, n_best)
                done = []
            if earlier and (found := self._collect(earlier)):
                done.append(found)
                self._fill(queue)
            earlier = started
        if done:
            yield _best(done, alpha, n_best)

    @torch.inference_mode()
    def _fill(self, queue: _Queue) -> None:
        """Put waiting sentences into empty slots."""
        free = [n for n, sentence in enumerate(self.sentences) if sentence is None]
        while free and (waiting := queue.peek()) is not None and self.fits(waiting.request):
            entering = queue.take(len(free))
            chosen, free = free[: len(entering)], free[len(entering) :]
            for slot, sentence in zip(chosen, entering, strict=True):
                self.sentences[slot] = sentence
            self._load(waiting, chosen, [sentence.row for sentence in entering])

    def _load(self, waiting: Waiting, chosen: list[int], chosen_rows: list[int]) -> None:
        slots, rows = self.send([chosen, chosen_rows])
        rules = waiting.rules
        entering = Entering(
            slots, rows, rules.limits, rules.starts, rules.prefixes, self.rules.specials.bos
        )
        begin(self.slots, entering)
        if waiting.numbers is not None:
            self.slots.numbers[slots, : waiting.numbers.shape[1]] = waiting.numbers[rows]
        self.decoder.load(slots, waiting.request.state, rows)
        is_beam = self.options.strategy == "beam"  # which decides only at the end
        self.is_watched |= waiting.request.on_token is not None and not is_beam

    def _narrow(self) -> int:
        """Return how many slots to advance, after moving the open ones together if they are few."""
        used = [n for n, sentence in enumerate(self.sentences) if sentence]
        width = min(self.n_slots, _power_of_two(len(used)))
        beyond = [n for n in used if n >= width]
        if beyond:
            empty = [n for n in range(width) if self.sentences[n] is None][: len(beyond)]
            sources, targets = self.send([beyond, empty])
            self.slots.move(sources, targets)
            self.decoder.move(sources, targets)
            for source, target in zip(beyond, empty, strict=True):
                self.sentences[target], self.sentences[source] = self.sentences[source], None
        return width

    @torch.inference_mode()
    def _advance(self) -> "_Started":
        """Start steps after which it is time to check what is done."""
        width = self._narrow()
        is_watched = self.is_watched and not self._is_forced(width)
        before = self.slots.lengths[:width].tolist() if is_watched else []
        count = 1 if is_watched else PERIOD
        self._run_steps(width, count)
        if is_watched:
            self._announce(before)
        self.n_started += 1
        return _Started(self.n_started, _note_end(self.device))

    def _run_steps(self, width: int, count: int) -> None:
        if (width, count) not in self.steps:
            self.steps[width, count] = self._recorded(partial(self._step, width, count))
        self.steps[width, count]()

    def _is_forced(self, width: int) -> bool:
        """Return whether all that is chosen in the next steps is forced."""
        left = (self.slots.starts[:width] - self.slots.lengths[:width]).tolist()
        used = zip(self.sentences, left, strict=False)
        return all(n_left >= PERIOD for sentence, n_left in used if sentence)

    def _step(self, width: int, count: int) -> None:
        slots = self.slots.first(width)
        for _ in range(count):
            logits = self.decoder.step(slots.last, slots.lengths, slots.origins)
            if self.options.strategy == "beam":
                advance_beams(slots, logits, self.rules)
            elif self.options.strategy == "sample":
                advance_randomly(slots, logits, self.rules, self.options)
            else:
                advance_greedily(slots, logits, self.rules)
        self.number.add_(1)
        report(slots, self.reports.first(width), self.number)

    def _recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record steps on a GPU; where nothing is open, a step changes nothing."""
        if self.device.type != "cuda":
            return step
        changed = (self.slots.is_open, self.slots.is_reported, self.number)
        before = [tensor.clone() for tensor in changed]
        self.slots.is_open.zero_()
        self.slots.is_reported.fill_(True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what is compiled or allocated once must not be recorded
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        return graph.replay

    def _announce(self, before: list[int]) -> None:
        """Pass on the tokens just chosen, behind the forced prefixes; close what wants no more."""
        width = len(before)
        after, last = self.slots.lengths[:width].tolist(), self.slots.last[:width, 0].tolist()
        starts = self.slots.starts[:width].tolist()
        for slot, sentence in enumerate(self.sentences[:width]):
            is_new = before[slot] < after[slot] > starts[slot]
            on_token = sentence.waiting.request.on_token if sentence else None
            if sentence and is_new and on_token and on_token(sentence.row, last[slot]):
                self.slots.is_open[slot] = False

    def _collect(self, started: "_Started") -> "_Done | None":
        """Wait for the end of some steps, and empty the slots that were done after them."""
        started.wait()
        done = [n for n in self.reports.find_done(started.number) if self.sentences[n]]
        if not done:
            return None
        places = [sentence.place for n in done if (sentence := self.sentences[n])]
        for n in done:
            self.sentences[n] = None
        return _Done(places, self.reports.take(done))


class _Started(NamedTuple):
    """Some steps that were started."""

    number: int
    wait: Callable[[], object]
    """Waits for their end."""


def _note_end(device: torch.device) -> Callable[[], object]:
    """Return what waits for the end of all that a device has to do until now."""
    if device.type != "cuda":
        return lambda: None
    end = torch.cuda.Event()
    end.record()
    return end.synchronize


class _Done(NamedTuple):
    """Sentences that are done."""

    places: list[int]
    """Their places among all."""
    columns: Columns


def _best(done: list[_Done], alpha: float, n_best: int) -> Found:
    """Return the best hypotheses of sentences."""
    columns = Columns.joined([some.columns for some in done])
    if not columns.is_finite():
        raise BundleError(NOT_FINITE)
    places = chain.from_iterable(some.places for some in done)
    return dict(zip(places, columns.best(alpha, n_best), strict=True))


class Sender:
    """Sends numbers to a device, without waiting for what a GPU does.

    They are valid until twice the numbers of a round of the search have been sent after them.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        is_pinned = device.type == "cuda"
        self.here = torch.zeros(size, dtype=torch.long, pin_memory=is_pinned)
        self.there = torch.zeros(size, dtype=torch.long, device=device)
        self.used = 0

    def __call__(self, numbers: list[list[int]]) -> Int[Tensor, "P K"]:
        """Return the numbers on the device."""
        shape = len(numbers), len(numbers[0])
        count = shape[0] * shape[1]
        first = self.used if self.used + count <= len(self.here) else 0
        self.used = first + count
        here, there = (one[first : self.used] for one in (self.here, self.there))
        here.numpy()[:] = np.array(numbers).ravel()
        return there.copy_(here, non_blocking=True).view(shape)


def _waiting(
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


def _searched(options: DecodingConfig) -> DecodingConfig:
    """Return the options without those that a recorded step does not depend on."""
    usual = DecodingConfig()
    irrelevant = ("alpha", "max_extra", "batch_size", "seed", "stride", "sentences")
    return options.model_copy(update={name: getattr(usual, name) for name in irrelevant})


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _rounded(length: int) -> int:
    return -(-length // UNIT) * UNIT
