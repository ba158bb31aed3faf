"""Continuous batching: a pool of slots that sentences enter as soon as others are done.

A pool has a fixed size, so that on a GPU its steps are recorded once and replayed, without any work
of the CPU between the kernels. The CPU only adds sentences to a queue on the GPU and reads what was
found, while the GPU already runs the next steps. Where no sentence waits any more, the open ones
move together, and smaller steps are recorded for them.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.advance import (
    add,
    advance_beams,
    advance_greedily,
    advance_randomly,
    exchange,
)
from attendo.decoding.device import End, Sender
from attendo.decoding.entries import NONE, Entering, Entries
from attendo.decoding.reports import NEVER, Columns, Reports
from attendo.decoding.request import Request
from attendo.decoding.slots import FixedRules, Slots
from attendo.decoding.waiting import Queue, Sentence, Waiting, read_requests
from attendo.errors import BundleError
from attendo.hypotheses import NOT_FINITE, Hypothesis, check_n_best, rank
from attendo.nn.fast.graph import RECORDING
from attendo.nn.fixed import Size
from attendo.nn.grid import Grid

PERIOD = 4
"""Steps between two checks of what is done."""
LAST_PERIOD = 2
"""The same where no sentence waits any more."""
AHEAD = 2
"""Periods that are started before the CPU waits for the end of the first."""
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
        """Return whether the sources of a state fit."""

    def load(self, entries: Int[Tensor, " K"], state: Any, rows: Int[Tensor, " K"]) -> None:
        """Keep rows of a state before the first token for entries."""

    def move(
        self,
        sources: Int[Tensor, " K"],
        targets: Int[Tensor, " K"],
        lengths: Int[Tensor, " B"],
    ) -> None:
        """Copy some slots, which have so many tokens by now, to others."""

    def step(
        self,
        tokens: Int[Tensor, "B N"],
        lengths: Int[Tensor, " B"],
        origins: Int[Tensor, "B N T"],
        entries: Int[Tensor, " B"],
    ) -> Float[Tensor, "R V"]:
        """Add one token to all hypotheses of the first B slots, and return the logits of the next.

        Args:
            tokens: The tokens to add.
            lengths: Positions of the new tokens.
            origins: For each position before, the hypothesis that has added it.
            entries: The entry of each slot; negative where there is none.
        """


@runtime_checkable
class MakeDecoder(Protocol):
    """Makes a decoder of some size for states like the given one."""

    def __call__(self, size: Size, state: Any) -> FixedDecoder:
        """Return a decoder."""


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
                yield from self._search(read_requests(requests, options, 1), options, n_best)

    def _sample(
        self, requests: Iterable[Request[Any]], options: DecodingConfig, n_best: int
    ) -> Iterator[Found]:
        samples: dict[int, list[Hypothesis]] = {}
        for found in self._search(read_requests(requests, options, n_best), options, 1):
            for place, (sample,) in found.items():
                samples.setdefault(place // n_best, []).append(sample)
            done = [place for place, drawn in samples.items() if len(drawn) == n_best]
            yield {place: rank(samples.pop(place), options.alpha) for place in done}

    def _search(
        self, waiting: Iterator[Waiting | None], options: DecodingConfig, n_best: int
    ) -> Iterator[Found]:
        queue = Queue(waiting)
        while not queue.is_over:
            if not queue.sentences:
                queue.look_ahead(1, lambda: True)
                yield {}  # so that texts without sentences can leave
                continue
            pool = self._take(queue.sentences[0].waiting.request, options)
            is_sound = True
            try:
                yield from pool.run(queue, options.alpha, n_best)
            except Exception:
                is_sound = False  # caches may hold what is not finite
                raise
            finally:
                pool.clear()
                if is_sound:
                    with self.lock:
                        self.free = [*self.free, pool][-KEPT:]

    @torch.inference_mode()
    def _take(self, request: Request[Any], options: DecodingConfig) -> "Pool":
        """Return a pool that can hold a request, and as many sentences as are allowed."""
        n_slots = min(options.batch_size, _power_of_two(len(request.max_lengths)))
        with self.lock:
            for pool in self.free:
                is_like = pool.options == _searched(options) and pool.size.slots >= n_slots
                if is_like and pool.fits(request):
                    self.free.remove(pool)
                    return pool
        n_beams = options.beam if options.strategy == "beam" else 1
        size = Size(n_slots, 2 * n_slots, n_beams, _rounded(max(request.max_lengths) + 1))
        rules = FixedRules.of(request.specials, options)
        return Pool(size, self.make(size, request.state), _searched(options), rules, request.device)


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Search for garbage only in new objects: in all that is loaded it takes as long as a batch."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Loaded(NamedTuple):
    """A sentence that has an entry."""

    sentence: Sentence
    since: int
    """How many steps there were before."""

    @property
    def on_token(self) -> Callable[[int, int], bool] | None:
        """Return what is called with each token."""
        return self.sentence.waiting.request.on_token


class Pool:
    """Slots with a decoder, for one way to search."""

    def __init__(
        self,
        size: Size,
        decoder: FixedDecoder,
        options: DecodingConfig,
        rules: FixedRules,
        device: torch.device,
    ) -> None:
        self.size = size
        self.decoder = decoder
        self.options = options
        self.rules = rules
        self.device = device
        self.is_beam = options.strategy == "beam"
        self.entries = Entries.empty(size.entries, size.length, device)
        self.slots = Slots.empty(size.slots, size.beams, size.length, self.entries)
        n_places = self.slots.ended_scores.shape[1] + size.beams if self.is_beam else 1
        is_pinned = device.type == "cuda"
        self.reports = Reports.empty(size.entries, n_places, size.length, is_pinned=is_pinned)
        # In each round entries and rows are sent, and three rounds may not have ended yet.
        self.send = Sender(8 * size.entries, device)
        self.steps: dict[tuple[int, int], Callable[[], None]] = {}
        """For a number of slots, and of steps, these steps of the first of the slots."""
        self.loaded: dict[int, _Loaded] = {}
        """The sentence of each entry that is used."""
        self.free = list(range(size.entries))
        """The others."""
        self.width = size.slots
        """How many slots are used."""
        self.is_watched = False
        """Whether a sentence wants to know each of its tokens."""
        self.n_added = self.n_steps = self.n_started = 0
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        """How often steps have been started, as the device counts."""

    def fits(self, request: Request[Any]) -> bool:
        """Return whether the sentences of a request fit into the slots."""
        return max(request.max_lengths) < self.size.length and self.decoder.fits(request.state)

    @torch.inference_mode()
    def clear(self) -> None:
        """Empty all slots."""
        End(self.device).wait()
        self.slots.is_open.zero_()
        self.slots.entry.fill_(NONE)
        self.entries.clear()
        self.reports.done_at.fill_(NEVER)
        self.loaded.clear()
        self.free = list(range(self.size.entries))
        self.width, self.n_added, self.is_watched = self.size.slots, 0, False

    def run(self, queue: Queue, alpha: float, n_best: int) -> Iterator[Found]:
        """Search for all sentences that fit, and yield them when they are done."""
        done: list[_Done] = []
        started: deque[_Started] = deque()
        while self._fill(queue):
            if not started:
                queue.look_ahead(1, lambda: True)
            is_last = not self._can_fill(queue) and (queue.is_read or bool(queue.sentences))
            started.append(self._advance(is_last=is_last))
            # While the GPU works, more requests are read, and what was found before is used.
            queue.look_ahead(self.size.slots, started[0].end.query)
            if sum(len(some.places) for some in done) >= min(AT_ONCE, self.size.slots):
                yield _best(done, alpha, n_best)
                done = []
            while len(started) > (0 if self.is_watched else 1 if is_last else AHEAD):
                done += self._collect(started.popleft())
        if done:
            yield _best(done, alpha, n_best)

    def _can_fill(self, queue: Queue) -> bool:
        return bool(queue.sentences) and self.fits(queue.sentences[0].waiting.request)

    @torch.inference_mode()
    def _fill(self, queue: Queue) -> bool:
        """Load waiting sentences; return whether there are any to search."""
        while self.free and self._can_fill(queue):
            sentences = queue.take(len(self.free))
            chosen, self.free = self.free[: len(sentences)], self.free[len(sentences) :]
            for entry, sentence in zip(chosen, sentences, strict=True):
                self.loaded[entry] = _Loaded(sentence, self.n_steps)
            self._load(sentences[0].waiting, chosen, [sentence.row for sentence in sentences])
        return bool(self.loaded)

    def _load(self, waiting: Waiting, chosen: list[int], chosen_rows: list[int]) -> None:
        entries, rows = self.send([chosen, chosen_rows])
        rules = waiting.rules
        entering = Entering(entries, rows, rules.limits, rules.starts, rules.prefixes)
        if waiting.numbers is not None:
            self.entries.numbers[entries, : waiting.numbers.shape[1]] = waiting.numbers[rows]
        self.decoder.load(entries, waiting.request.state, rows)
        add(self.entries, entering, self.n_added)
        self.n_added += len(chosen)
        # A beam decides only at the end.
        self.is_watched |= waiting.request.on_token is not None and not self.is_beam

    @torch.inference_mode()
    def _advance(self, *, is_last: bool) -> "_Started":
        """Start steps after which it is time to check what is done."""
        self._fit_width(is_last=is_last)
        if not self.is_watched:
            self._run_steps(LAST_PERIOD if is_last else PERIOD)
        elif self._are_forced(PERIOD):
            self._run_steps(PERIOD)
        else:
            self._announce(lambda: self._run_steps(1))
        return _Started(self.n_started, End(self.device))

    def _fit_width(self, *, is_last: bool) -> None:
        """Where no sentence waits any more, move the open ones together if they are few."""
        width = (
            min(self.size.slots, _power_of_two(len(self.loaded))) if is_last else self.size.slots
        )
        if width < self.width:
            moved = self.slots.first(self.width).move_to_first(width)
            self.decoder.move(*moved, self.slots.lengths)
        self.width = width

    def _run_steps(self, count: int) -> None:
        width = self.width
        if (width, count) not in self.steps:
            self.steps[width, count] = self._recorded(partial(self._step, width, count))
        self.steps[width, count]()
        self.n_started += 1
        self.n_steps += count

    def _step(self, width: int, count: int) -> None:
        slots, bos = self.slots.first(width), self.rules.specials.bos
        self.number.add_(1)
        exchange(slots, self.reports, self.number, bos)
        for _ in range(count):
            logits = self.decoder.step(slots.last, slots.lengths, slots.origins, slots.entry)
            if self.is_beam:
                advance_beams(slots, logits, self.rules)
            elif self.options.strategy == "sample":
                advance_randomly(slots, logits, self.rules, self.options)
            else:
                advance_greedily(slots, logits, self.rules)
            exchange(slots, self.reports, self.number, bos)

    def _recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record steps on a GPU."""
        if self.device.type != "cuda":
            return step
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what is compiled or allocated once must not be recorded
            self._rehearse(step)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with RECORDING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        return graph.replay

    def _rehearse(self, step: Callable[[], None]) -> None:
        """Run steps that change nothing: no slot is open, none has a sentence, and none waits."""
        slots, entries = self.slots, self.entries
        changed = (slots.is_open, slots.entry, slots.only, entries.n_added, self.number)
        before = [tensor.clone() for tensor in changed]
        slots.is_open.zero_()
        slots.entry.fill_(NONE)
        entries.n_added.copy_(entries.n_taken)
        try:
            step()
        finally:
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)

    def _are_forced(self, count: int) -> bool:
        """Return whether all that is chosen in the next steps is forced."""
        return all(
            self.n_steps - since + count <= len(sentence.prefix)
            for sentence, since in self.loaded.values()
        )

    def _announce(self, run: Callable[[], None]) -> None:
        """Pass on the tokens that a step chooses, behind the forced prefixes.

        A sentence that wants no more tokens ends.
        """
        slots = self.slots.first(self.width)
        before, entries = slots.lengths.tolist(), slots.entry.tolist()
        run()
        after, last = slots.lengths.tolist(), slots.last[:, 0].tolist()
        for slot, entry in enumerate(slots.entry.tolist()):
            if entry == NONE:
                continue
            loaded = self.loaded[entry]
            first = max(before[slot] if entry == entries[slot] else 0, len(loaded.sentence.prefix))
            is_new = first < after[slot]
            if is_new and loaded.on_token and loaded.on_token(loaded.sentence.row, last[slot]):
                slots.is_open[slot] = False

    def _collect(self, started: "_Started") -> "list[_Done]":
        """Wait for the end of some steps, and take what was found until then."""
        started.end.wait()
        done = self.reports.find_done(started.number)
        if not done:
            return []
        places = [self.loaded.pop(entry).sentence.place for entry in done]
        self.free += done
        return [_Done(places, self.reports.take(done))]


class _Started(NamedTuple):
    """Some steps that were started."""

    number: int
    end: End


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


def _searched(options: DecodingConfig) -> DecodingConfig:
    """Return the options without those that a recorded step does not depend on."""
    usual = DecodingConfig()
    irrelevant = ("alpha", "max_extra", "batch_size", "seed", "stride", "sentences")
    return options.model_copy(update={name: getattr(usual, name) for name in irrelevant})


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _rounded(length: int) -> int:
    return -(-length // UNIT) * UNIT
