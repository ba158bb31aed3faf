"""Continuous batching: a pool of slots that sentences enter as soon as others are done.

A pool has a fixed size, so that on a GPU its step is recorded once and replayed, without any work
of the CPU between the kernels. The CPU checks only every few steps which sentences are done, and
while it does so, the GPU already runs the next steps. Where no sentence waits any more, the open
ones move together, and a smaller step is recorded for them.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.advance import advance_beams, advance_greedily, advance_randomly, begin
from attendo.decoding.constraints import Rules
from attendo.decoding.request import Request
from attendo.decoding.sampling import draw_numbers, repeat_sentences
from attendo.decoding.slots import Entering, FixedRules, Slots
from attendo.errors import BundleError
from attendo.hypotheses import NOT_FINITE, Hypothesis, check_n_best, rank
from attendo.nn.grid import send

PERIOD = 2
"""Steps between two checks of what is done."""
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
        self, waiting: Iterator[Waiting], options: DecodingConfig, n_best: int
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

    def __init__(self, waiting: Iterator[Waiting]) -> None:
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
        waiting = next(self.waiting, None)
        if waiting is not None:
            rows = range(len(waiting.request.max_lengths))
            self.sentences.extend(Sentence(waiting, row) for row in rows)
        return waiting is not None

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
        self.steps: dict[int, Callable[[], None]] = {}
        """For some numbers of slots, the step of the first of them."""

    def fits(self, request: Request[Any]) -> bool:
        """Return whether the sentences of a request fit into the slots."""
        return max(request.max_lengths) < self.length and self.decoder.fits(request.state)

    @torch.inference_mode()
    def clear(self) -> None:
        """Empty all slots."""
        self.sentences = [None] * self.n_slots
        self.slots.is_open.zero_()

    def run(self, queue: _Queue, alpha: float, n_best: int) -> Iterator[Found]:
        """Search for all sentences that fit, and yield them when they are done."""
        done: _Done | None = None
        earlier: _Steps | None = None
        self._fill(queue)
        while any(self.sentences):
            steps = self._advance()
            # While the GPU works, the next request is read, and what was found before is used.
            queue.look_ahead(self.n_slots)
            if done:
                yield done.best(alpha, n_best)
            done = self._collect(earlier) if earlier else None
            if done:
                self._fill(queue)
            earlier = steps
        if done:
            yield done.best(alpha, n_best)

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
        slots, rows = self._index([chosen, chosen_rows])
        rules = waiting.rules
        entering = Entering(
            slots, rows, rules.limits, rules.starts, rules.prefixes, self.rules.specials.bos
        )
        begin(self.slots, entering)
        if waiting.numbers is not None:
            self.slots.numbers[slots, : waiting.numbers.shape[1]] = waiting.numbers[rows]
        self.decoder.load(slots, waiting.request.state, rows)

    def _narrow(self) -> int:
        """Return how many slots to advance, after moving the open ones together if they are few."""
        used = [n for n, sentence in enumerate(self.sentences) if sentence]
        width = min(self.n_slots, _power_of_two(len(used)))
        beyond = [n for n in used if n >= width]
        if beyond:
            empty = [n for n in range(width) if self.sentences[n] is None][: len(beyond)]
            sources, targets = self._index([beyond, empty])
            self.slots.move(sources, targets)
            self.decoder.move(sources, targets)
            self.slots.is_open[sources] = False
            for source, target in zip(beyond, empty, strict=True):
                self.sentences[target], self.sentences[source] = self.sentences[source], None
        return width

    @torch.inference_mode()
    def _advance(self) -> "_Steps":
        """Run steps until it is time to check what is done."""
        width = self._narrow()
        if width not in self.steps:
            self.steps[width] = self._recorded(partial(self._step, width))
        count = PERIOD
        if any(one and self._on_token(one) for one in self.sentences):
            count = max(1, self._n_forced(width))
        before = self.slots.lengths[:width].tolist() if count == 1 else []
        for _ in range(count):
            self.steps[width]()
        self._announce(before)
        return _Steps(self.sentences[:width], _fetch([self.slots.is_open[:width]]))

    def _on_token(self, sentence: Sentence) -> Callable[[int, int], bool] | None:
        """Return what is called with each token; a beam decides only at the end."""
        is_beam = self.options.strategy == "beam"
        return None if is_beam else sentence.waiting.request.on_token

    def _n_forced(self, width: int) -> int:
        """Return for how many steps all that is chosen is forced."""
        left = (self.slots.starts[:width] - self.slots.lengths[:width]).tolist()
        used = zip(self.sentences, left, strict=False)
        return min((n_left for sentence, n_left in used if sentence), default=0)

    def _step(self, width: int) -> None:
        slots = self.slots.first(width)
        logits = self.decoder.step(slots.last, slots.lengths, slots.origins)
        if self.options.strategy == "beam":
            advance_beams(slots, logits, self.rules)
        elif self.options.strategy == "sample":
            advance_randomly(slots, logits, self.rules, self.options)
        else:
            advance_greedily(slots, logits, self.rules)

    def _recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record a step on a GPU; where nothing is open, a step changes nothing."""
        if self.device.type != "cuda":
            return step
        is_open = self.slots.is_open.clone()
        self.slots.is_open.zero_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what is compiled or allocated once must not be recorded
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        self.slots.is_open.copy_(is_open)
        return graph.replay

    def _announce(self, before: list[int]) -> None:
        """Pass on the tokens just chosen, behind the forced prefixes; close what wants no more."""
        width = len(before)
        after, last = self.slots.lengths[:width].tolist(), self.slots.last[:width, 0].tolist()
        starts = self.slots.starts[:width].tolist()
        for slot, sentence in enumerate(self.sentences[:width]):
            is_new = before[slot] < after[slot] > starts[slot]
            on_token = sentence and self._on_token(sentence)
            if sentence and is_new and on_token and on_token(sentence.row, last[slot]):
                self.slots.is_open[slot] = False

    @torch.inference_mode()
    def _collect(self, steps: "_Steps") -> "_Done | None":
        """Empty the slots that were done after some steps, and begin to read what was found."""
        done = steps.find_done(self.sentences)
        if not done:
            return None
        places = [sentence.place for n in done if (sentence := self.sentences[n])]
        for n in done:
            self.sentences[n] = None
        (index,) = self._index([done])
        columns = _branches if self.options.strategy == "beam" else _paths
        return _Done(places, _fetch(columns(self.slots, index)))

    def _index(self, numbers: list[list[int]]) -> Int[Tensor, "P K"]:
        return send(torch.tensor(numbers), self.device)


class _Steps(NamedTuple):
    """Some steps of the first slots, which may not have ended yet."""

    sentences: list[Sentence | None]
    """What was in the slots."""
    is_open: Callable[[], list[Tensor]]
    """Waits for their end."""

    def find_done(self, sentences: list[Sentence | None]) -> list[int]:
        """Return the slots that were done and still hold the same sentence."""
        (is_open,) = self.is_open()
        rows = zip(self.sentences, sentences, is_open.tolist(), strict=False)
        return [n for n, (one, now, on) in enumerate(rows) if one and one is now and not on]


class _Columns(NamedTuple):
    """All hypotheses of K slots, in H places each."""

    tokens: Int[Tensor, "K H T"]
    lengths: Int[Tensor, "K H"]
    scores: Float[Tensor, "K H"]
    exists: Bool[Tensor, "K H"]
    """Whether there is a hypothesis at a place."""
    is_finished: Bool[Tensor, "K H"]
    """Whether it has ended with eos."""


class _Done(NamedTuple):
    """Slots that are done."""

    places: list[int]
    """The places of their sentences among all."""
    columns: Callable[[], list[Tensor]]
    """Waits until they are on the CPU."""

    def best(self, alpha: float, n_best: int) -> Found:
        """Return the best hypotheses of each sentence, as `rank` sorts them."""
        columns = _Columns(*self.columns())
        tokens, lengths, scores, exists, is_finished = (column.numpy() for column in columns)
        scores = scores.astype(np.float64)
        if np.isnan(scores[exists]).any():
            raise BundleError(NOT_FINITE)
        normalised = scores / ((5 + lengths + is_finished) / 6) ** alpha  # `length_penalty`
        order = np.lexsort((-normalised, ~is_finished, ~exists))[:, :n_best]
        found: Found = {}
        for row, (place, chosen) in enumerate(zip(self.places, order.tolist(), strict=True)):
            found[place] = [
                Hypothesis(
                    tuple(tokens[row, n, : lengths[row, n]].tolist()),
                    float(scores[row, n]),
                    finished=bool(is_finished[row, n]),
                )
                for n in chosen
                if exists[row, n]
            ]
        return found


def _paths(slots: Slots, index: Int[Tensor, " K"]) -> _Columns:
    """Return the only hypothesis of each of some slots."""
    is_finished = slots.n_ended[index, None] > 0
    return _Columns(
        slots.tokens[index],
        slots.lengths[index, None],
        slots.scores[index],
        torch.ones_like(is_finished),
        is_finished,
    )


def _branches(slots: Slots, index: Int[Tensor, " K"]) -> _Columns:
    """Return the hypotheses of some slots: those that have ended, then those that were cut."""
    is_cut = slots.is_cut[index]
    places = torch.arange(slots.ended_scores.shape[1], device=index.device)
    is_ended = places < slots.n_ended[index, None]
    lengths = slots.lengths[index, None].expand_as(is_cut)
    return _Columns(
        torch.cat((slots.ended_tokens[index], slots.tokens[index]), dim=1),
        torch.cat((slots.ended_lengths[index], lengths), dim=1),
        torch.cat((slots.ended_scores[index], slots.scores[index]), dim=1),
        torch.cat((is_ended, is_cut), dim=1),
        torch.cat((is_ended, torch.zeros_like(is_cut)), dim=1),
    )


def _fetch(tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    """Begin to copy tensors to the CPU, so that a GPU need not wait for what becomes of them."""
    if not tensors[0].is_cuda:
        copies = [tensor.clone() for tensor in tensors]
        return lambda: copies
    copies = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in tensors]
    for copy, tensor in zip(copies, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def wait() -> list[Tensor]:
        copied.synchronize()
        return copies

    return wait


def _waiting(
    requests: Iterable[Request[Any]], options: DecodingConfig, n_samples: int
) -> Iterator[Waiting]:
    """Yield requests with what the slots need of them."""
    first = 0
    for given in requests:
        request, numbers = given, None
        if options.strategy == "sample" and given.max_lengths:
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
