"""Texts of any length through a translator: segments that are translated at once, joined again.

Texts are read lazily and leave as soon as they are finished, so that memory is bounded for any
number of texts and for texts of any length.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from attendo.hypotheses import Hypothesis
from attendo.text.segments import Segment, divide
from attendo.text.tokenizer import Tokenizer

Done = Callable[[int], None]
"""Called now and then with the number of texts finished since the last call."""

MAX_SEGMENTS = 64
"""Most segments that are encoded at a time."""

MAX_CHARACTERS = 1 << 18
"""Most source characters that are encoded at a time."""

MAX_SENTENCE = 20_000
"""Longest sentence, in characters; a longer one is cut before it is encoded."""


@dataclass(frozen=True, slots=True)
class Translated:
    """One translation of one text.

    >>> best = attendo.load("runs/demo").translations("The dog sleeps.", n_best=2)
    >>> best[0].score >= best[1].score
    True
    """

    text: str
    score: float
    """Log-probability of the translation given the source."""
    finished: bool
    """False when it was cut at the longest allowed length."""
    n_segments: int = 1
    """Number of segments, normally sentences, that the source was translated in."""


EMPTY = Translated("", 0.0, finished=True)
"""The translation of an empty text; the model is not run."""


@dataclass(frozen=True, slots=True)
class Job:
    """A segment to be translated: normally a sentence."""

    number: int
    """Its index among all texts."""
    text: int
    """Number of the text it comes from."""
    ids: list[int]
    """Its source tokens; none for an empty text."""
    prefix: list[int]
    """Target tokens that its translation must begin with."""
    gap: str
    """What separates its translation from the next one of the same text."""
    is_last: bool
    """Whether its text ends with it."""


Found = dict[int, list[Hypothesis]]
"""Hypotheses of segments, best first, by the place of the segment among all in some batches."""

Search = Callable[[Iterable[list[Job]]], Iterable[Found]]
"""Translates batches, one after the other or several at once, and yields what is found.

A batch is empty where reading the next one takes longer, so that other work can be done meanwhile.
"""


class Streaming(NamedTuple):
    """How texts are divided, and what of their translations is returned."""

    tokenizers: tuple[Tokenizer, Tokenizer]
    """Of the source and of the target."""
    sentences: int
    """How many sentences are translated at once."""
    max_length: int
    """Most tokens of a segment."""
    batch_size: int
    """Segments that are translated together."""
    window: int
    """Batches that are sorted by length together.

    More of them waste less padding; with fewer, finished texts are returned sooner.
    """
    is_eager: bool = False
    """Whether the first windows are smaller, so that translation begins at once."""
    n_best: int = 1
    """Most translations of each text."""


def stream_texts(
    texts: Iterable[tuple[str, str]],
    streaming: Streaming,
    search: Search,
    done: Done = lambda n: None,
) -> Iterator[list[Translated]]:
    """Translate texts, each with a forced prefix, and yield them in order when finished."""
    joiner: Joiner | None = None
    for job, found in _search_jobs(texts, streaming, search, _Progress(done)):
        if job.is_last and joiner is None:
            yield found  # of the only segment, as most texts have
            continue
        joiner = joiner or Joiner()
        joiner.add(found, job.gap)
        if job.is_last:
            yield joiner.translations()
            joiner = None


def _search_jobs(
    texts: Iterable[tuple[str, str]], streaming: Streaming, search: Search, progress: "_Progress"
) -> Iterator[tuple[Job, list[Translated]]]:
    """Translate segments and yield them in order when finished.

    There is one search for all of them, so that it need not end with a window.
    """
    waiting: deque[Job] = deque()
    searched: dict[int, Job] = {}
    found: dict[int, list[Translated]] = {}

    def read() -> Iterator[list[Job]]:
        for jobs in segments(texts, streaming):
            progress.begin(jobs)
            waiting.extend(jobs)
            empty = [job for job in jobs if not job.ids]
            found.update((job.number, [EMPTY]) for job in empty)
            progress.end(empty)
            yield jobs

    def batches() -> Iterator[list[Job]]:
        place = 0
        for batch in _sorted_batches(read(), streaming):
            searched.update(enumerate(batch, start=place))
            place += len(batch)
            yield batch

    target = streaming.tokenizers[1]
    for best in search(batches()):
        jobs = [searched.pop(place) for place in best]
        translations = to_translations(list(best.values()), target, streaming.n_best)
        found.update(zip((job.number for job in jobs), translations, strict=True))
        progress.end(jobs)
        while waiting and waiting[0].number in found:
            yield waiting[0], found.pop(waiting.popleft().number)
    for job in waiting:
        yield job, found[job.number]


def _sorted_batches(parts: Iterable[list[Job]], streaming: Streaming) -> Iterator[list[Job]]:
    """Yield batches of similar length, which waste little padding; and empty ones in between."""
    size, n_batches = streaming.batch_size, 1 if streaming.is_eager else streaming.window
    read: list[Job] = []

    def batches(count: int) -> Iterator[list[Job]]:
        window = [job for job in read[:count] if job.ids]
        window.sort(key=_length, reverse=True)  # the longest first leave no gap
        del read[:count]
        for first in range(0, len(window), size):
            yield window[first : first + size]

    for jobs in parts:
        read += jobs
        if len(read) < n_batches * size:
            yield []
        else:
            yield from batches(len(read) // size * size)
            n_batches = min(2 * n_batches, streaming.window)
    yield from batches(len(read))


def _length(job: Job) -> int:
    return len(job.ids)


class _Progress:
    """Counts the texts of which all segments are finished."""

    def __init__(self, done: Done) -> None:
        self.done = done
        self.n_open: Counter[int] = Counter()
        """For each text, how many of its segments that were read are not finished."""
        self.ended: set[int] = set()
        """Texts that were read to their end."""

    def begin(self, jobs: list[Job]) -> None:
        """Note segments that were read."""
        self.n_open.update(job.text for job in jobs)
        self.ended.update(job.text for job in jobs if job.is_last)

    def end(self, jobs: list[Job]) -> None:
        """Note segments that are finished."""
        self.n_open.subtract(job.text for job in jobs)
        finished = {
            job.text for job in jobs if job.text in self.ended and not self.n_open[job.text]
        }
        self.ended -= finished
        for text in finished:
            del self.n_open[text]
        self.done(len(finished))


def to_translations(
    hypotheses: list[list[Hypothesis]], tokenizer: Tokenizer, n_best: int
) -> Iterator[list[Translated]]:
    """Convert the hypotheses of segments to text; of equal texts only the best is kept."""
    texts = iter(tokenizer.decode_batch([one.ids for best in hypotheses for one in best]))
    for best in hypotheses:
        found: dict[str, Translated] = {}
        for one, text in zip(best, texts, strict=False):
            found.setdefault(text, Translated(text, one.score, one.finished))
        yield list(found.values())[:n_best]


class _Part(NamedTuple):
    """A segment before it is encoded."""

    text: int
    segment: Segment
    prefix: str
    is_last: bool


def segments(texts: Iterable[tuple[str, str]], streaming: Streaming) -> Iterator[list[Job]]:
    """Split texts, each with a forced prefix, into segments; yield some of them at a time."""
    source, target = streaming.tokenizers
    max_length, size = streaming.max_length, streaming.window * streaming.batch_size
    longest = max(MAX_SENTENCE, 16 * max_length)
    number = 0
    for parts in _some(_parts(texts, streaming.sentences, longest), min(size, MAX_SEGMENTS)):
        jobs: list[Job] = []
        encoded = source.encode_batch([part.segment.text for part in parts])
        for part, ids in zip(parts, encoded, strict=True):
            prefix = target.encode(part.prefix) if part.prefix else []
            fits = len(ids) <= max_length
            *others, last = [ids] if fits else cut(ids, source.tokens(ids), max_length)
            for some in others:
                jobs.append(Job(number, part.text, some, prefix, " ", is_last=False))
                number, prefix = number + 1, []
            jobs.append(Job(number, part.text, last, prefix, part.segment.gap, part.is_last))
            number += 1
        yield jobs


def _parts(texts: Iterable[tuple[str, str]], sentences: int, limit: int) -> Iterator[_Part]:
    for number, (text, prefix) in enumerate(texts):
        held = Segment("", "")
        for segment in divide(text, sentences, limit):
            if held.text:
                yield _Part(number, held, prefix, is_last=False)
                prefix = ""
            held = segment
        yield _Part(number, held, prefix, is_last=True)


def _some(parts: Iterable[_Part], size: int) -> Iterator[list[_Part]]:
    """Collect parts until there are enough of them, or of their characters."""
    held: list[_Part] = []
    characters = 0
    for part in parts:
        held.append(part)
        characters += len(part.segment.text)
        if len(held) >= size or characters >= MAX_CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held


def cut(ids: list[int], tokens: list[str], limit: int) -> Iterator[list[int]]:
    """Cut a text that is too long: after a sentence, or before a word, or anywhere."""
    start = 0
    while len(ids) - start > limit:
        places = range(start + limit, start + limit // 2, -1)
        starts_word = [place for place in places if tokens[place].startswith(("▁", "Ġ", " "))]
        ends_sentence = [place for place in starts_word if tokens[place - 1].endswith(tuple(".!?"))]
        end = next(iter(ends_sentence or starts_word or places))
        yield ids[start:end]
        start = end
    if start < len(ids):
        yield ids[start:]


@dataclass(slots=True)
class _Growing:
    """One of the n best translations of a text, as far as it goes."""

    chunks: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)
    """What follows the chunks; joined now and then, since many short strings take much memory."""
    score: float = 0.0
    finished: bool = True

    def add(self, gap: str, one: Translated) -> None:
        self.recent += gap, one.text
        if len(self.recent) > 1000:
            self.chunks.append("".join(self.recent))
            self.recent.clear()
        self.score += one.score
        self.finished &= one.finished

    def copy(self) -> "_Growing":
        return replace(self, chunks=list(self.chunks), recent=list(self.recent))


class Joiner:
    """Joins the translations of the segments of a text.

    The k-th best translation is made of the k-th best of every segment, or of the last of those
    that have fewer.
    """

    def __init__(self) -> None:
        self._best = [_Growing()]
        self._gap = ""
        self._n_segments = 0

    def add(self, found: list[Translated], gap: str) -> None:
        """Append the translations of the next segment, the best first."""
        while len(self._best) < len(found):
            self._best.append(self._best[-1].copy())
        for place, growing in enumerate(self._best):
            growing.add(self._gap, found[min(place, len(found) - 1)])
        self._gap = gap
        self._n_segments += 1

    def translations(self) -> list[Translated]:
        """Return the translations of the whole text, the best first."""
        return [
            Translated("".join(one.chunks + one.recent), one.score, one.finished, self._n_segments)
            for one in self._best
        ]
