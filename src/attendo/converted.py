"""A conversion at work: text to text with CTranslate2, on the CPU, without PyTorch.

The search is that of `decoding`, as far as CTranslate2 has it: the same hypotheses end at the same
steps and are ranked in the same way. What differs is what happens at a limit. An output that is too
long or repeats itself is cut here when it is finished, and there while it grows, which may let
another hypothesis of a beam win.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from attendo.config import DecodingConfig
from attendo.errors import BundleError, ConfigError
from attendo.hypotheses import NOT_FINITE, Hypothesis, check_n_best, find_loop, rank
from attendo.text.streams import Found, Job, Streaming, Translated, stream_texts
from attendo.text.tokenizer import Tokenizer

WINDOW = 8
"""Batches that are sorted by length together, and that are translated at once."""


def count_threads() -> int:
    """Return how many threads to use: OMP_NUM_THREADS if it is set, else one for each core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else len(os.sched_getaffinity(0))


class Converted:
    """A folder that `ctranslate2.Translator` loads, with the tokenizers of its run."""

    def __init__(
        self, folder: Path, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, positions: int
    ) -> None:
        self.folder = folder
        self.tokenizers = tokenizers
        self.max_length = max_length
        """Longest sentence, in tokens, that the model has been trained on."""
        self.positions = positions
        """Positions that the conversion knows."""

    def lacks(self, decoding: DecodingConfig) -> str | None:
        """Return what of a search CTranslate2 does not have, or None if it has everything."""
        if decoding.strategy not in ("beam", "greedy"):
            return f"decoding.strategy = {decoding.strategy!r}"
        if decoding.no_repeat_ngram:
            return f"decoding.no_repeat_ngram = {decoding.no_repeat_ngram}"
        if self.max_length + decoding.max_extra >= self.positions:
            return f"decoding.max_extra = {decoding.max_extra}"
        return None

    def stream(
        self,
        texts: Iterable[tuple[str, str]],
        decoding: DecodingConfig,
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a forced prefix, and yield them in order when finished."""
        check_n_best(decoding, n_best)
        streaming = Streaming(
            self.tokenizers,
            sentences=decoding.sentences,
            max_length=self.max_length - 1,  # one place is for </s>
            batch_size=decoding.batch_size,
            window=WINDOW,
            n_best=n_best,
        )
        return stream_texts(texts, streaming, lambda batches: self._search(batches, decoding), done)

    def _search(self, batches: Iterable[list[Job]], decoding: DecodingConfig) -> Iterator[Found]:
        """Translate batches in several threads; no more are read before these are finished."""
        place = 0
        for started in _filled(batches):
            for found in self._translate_some(started, decoding) if started else ():
                yield dict(enumerate(found, start=place))
                place += len(found)
            yield {}  # so that texts without sentences can leave

    def _translate_some(
        self, started: list[list[Job]], decoding: DecodingConfig
    ) -> Iterator[list[list[Hypothesis]]]:
        """Translate batches at once, one part of a batch in each thread."""
        n_parts = max(1, count_threads() // len(started))
        parts = [[jobs[n::n_parts] for n in range(min(n_parts, len(jobs)))] for jobs in started]
        running = [[_Batch(jobs, decoding, self).start() for jobs in some] for some in parts]
        for jobs, some in zip(started, running, strict=True):
            found: list[list[Hypothesis]] = [[] for _ in jobs]
            for n, batch in enumerate(some):
                found[n :: len(some)] = batch.finish()
            yield found

    @cached_property
    def model(self) -> Any:
        """Return the loaded model."""
        import ctranslate2

        try:
            # Two threads for one sentence wait for each other so often that they take four to ten
            # times as long as one.
            return ctranslate2.Translator(
                str(self.folder), inter_threads=count_threads(), intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise BundleError(
                f"{str(self.folder)!r} is damaged: {error}; delete its folder to have it made again"
            ) from None

    @cached_property
    def source_tokens(self) -> list[str]:
        """Return the source token of each id."""
        return self.tokenizers[0].vocabulary()

    @cached_property
    def target_tokens(self) -> list[str]:
        """Return the target token of each id."""
        return self.tokenizers[1].vocabulary()

    @cached_property
    def target_ids(self) -> dict[str, int]:
        """Return the id of each target token."""
        return {token: number for number, token in enumerate(self.target_tokens)}


def _filled(batches: Iterable[list[Job]]) -> Iterator[list[list[Job]]]:
    """Yield several batches at a time, without empty ones; none at all for an empty one."""
    held: list[list[Job]] = []
    for batch in batches:
        if batch:
            held.append(batch)
        if len(held) == WINDOW:
            yield held
            held = []
        elif not batch:
            yield []
    yield held


class _Found(NamedTuple):
    """A hypothesis of CTranslate2."""

    ids: list[int]
    score: float
    finished: bool
    is_cut: bool
    """Whether its score is that of more than its tokens."""


class _Batch:
    """Sentences that are translated together."""

    def __init__(self, jobs: list[Job], decoding: DecodingConfig, owner: Converted) -> None:
        self.jobs, self.decoding, self.owner = jobs, decoding, owner
        self.sources = [[owner.source_tokens[number] for number in job.ids] for job in jobs]
        self.limits = [_limit(job, decoding, owner.positions) for job in jobs]
        self.n_beams = decoding.beam if decoding.strategy == "beam" else 1
        special = owner.tokenizers[1].specials
        self.eos = special.eos
        # Some vocabularies have one token for two purposes.
        self.forbidden = {
            owner.target_tokens[n] for n in {special.pad, special.bos} - {special.eos}
        }
        self.penalty = _exponent(decoding.alpha, sum(map(len, self.sources)) / len(jobs))

    def start(self) -> "_Batch":
        """Begin to translate in the background."""
        self.pending = self._translate(range(len(self.jobs)), asynchronous=True)
        return self

    def finish(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of every sentence, best first."""
        results = [one.result() for one in self.pending]
        # CTranslate2 forbids tokens before it normalises, which changes all scores; so it is done
        # only where the model would have chosen one, which a trained model hardly ever does.
        wrong = [place for place, result in enumerate(results) if self._has_forbidden(result)]
        if wrong:
            forbidden = [[token] for token in self.forbidden]
            again = self._translate(wrong, suppress_sequences=forbidden)
            for place, result in zip(wrong, again, strict=True):
                results[place] = result
        found = [
            [
                self._read(tokens, score, place)
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for place, result in enumerate(results)
        ]
        self._score_again(found)
        if any(math.isnan(one.score) for several in found for one in several):
            raise BundleError(NOT_FINITE)
        alpha = self.decoding.alpha
        return [
            rank((Hypothesis(tuple(one.ids), one.score, one.finished) for one in several), alpha)
            for several in found
        ]

    def _translate(self, places: Sequence[int], **options: Any) -> list[Any]:
        tokens = self.owner.target_tokens
        prefixes = [[tokens[n] for n in self.jobs[place].prefix] or None for place in places]
        found: list[Any] = self.owner.model.translate_batch(
            [self.sources[place] for place in places],
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=self.n_beams,
            num_hypotheses=self.n_beams,
            length_penalty=self.penalty,
            max_input_length=0,
            max_decoding_length=max(self.limits) + 1,  # one more for </s>
            min_decoding_length=0,
            return_end_token=True,
            return_scores=True,
            **options,
        )
        return found

    def _has_forbidden(self, result: Any) -> bool:
        return any(not self.forbidden.isdisjoint(tokens) for tokens in result.hypotheses)

    def _read(self, tokens: list[str], score: float, place: int) -> _Found:
        """Convert a hypothesis, and cut it where the rules of our search would have ended it."""
        index = self.owner.target_ids
        ids = [index[token] for token in tokens]
        total = score * max(len(ids), 1) ** self.penalty
        if finished := bool(ids) and ids[-1] == self.eos:
            ids.pop()
        start = len(self.jobs[place].prefix)
        loops = self.decoding.max_loops
        if loops and (end := find_loop(ids, start, loops)) is not None and end < len(ids):
            return _Found(ids[:end], total, finished=True, is_cut=True)
        if len(ids) > self.limits[place]:
            return _Found(ids[: self.limits[place]], total, finished=False, is_cut=True)
        # The scores of forced tokens are missing.
        return _Found(ids, total, finished, is_cut=start > 0 or not finished)

    def _score_again(self, found: list[list[_Found]]) -> None:
        """Replace the scores of hypotheses that are not those of their tokens."""
        places = [
            (row, column)
            for row, several in enumerate(found)
            for column, one in enumerate(several)
            if one.is_cut
        ]
        if not places:
            return
        tokens = self.owner.target_tokens
        scored = self.owner.model.score_batch(
            [self.sources[row] for row, _ in places],
            [[tokens[number] for number in found[row][column].ids] for row, column in places],
            max_input_length=0,
            max_batch_size=self.decoding.batch_size,
        )
        for (row, column), result in zip(places, scored, strict=True):
            one = found[row][column]
            # The last score is that of </s>.
            scores = result.log_probs if one.finished else result.log_probs[:-1]
            found[row][column] = one._replace(score=math.fsum(scores))


def _limit(job: Job, decoding: DecodingConfig, positions: int) -> int:
    """Return the most tokens of a translation, forced prefix included and </s> not counted."""
    if len(job.prefix) >= positions:
        raise ConfigError(
            f"the forced prefix has {len(job.prefix)} tokens, but at most {positions - 1} can be "
            "translated at once; shorten it"
        )
    return min(len(job.ids) + decoding.max_extra + len(job.prefix), positions - 1)


def _exponent(alpha: float, length: float) -> float:
    """Return the exponent for which length ** exponent grows as ((5 + length) / 6) ** alpha does.

    It matters only where more hypotheses end than the beam is wide, and CTranslate2 chooses: the
    others are ranked by the penalty itself. With 0 it would stop at the first end.
    """
    return max(alpha * length / (length + 5), 1e-6)
