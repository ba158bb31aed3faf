"""Translation: where text, grids, model, loss and search come together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DataConfig, DecodingConfig
from attendo.data.batches import Batch, Layout
from attendo.data.grids import pad_grid
from attendo.decoding import NOT_FINITE, Hypothesis, Request, search
from attendo.errors import BundleError
from attendo.losses import Loss, cross_entropy, linear_cross_entropy
from attendo.metrics import Scores, score
from attendo.models import Memory, Recording, Seq2Seq
from attendo.nn.grid import Grid
from attendo.tasks.segments import EMPTY, WINDOW, Job, Joiner, Translated, windows
from attendo.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Reading:
    """A pair of sentences as the input of a model, alone in its grids."""

    source: Grid
    target: Grid
    """Input of the decoder: at each position the tokens before the one to predict."""
    labels: Int[Tensor, " T"]
    """The tokens to predict."""
    source_tokens: list[str]
    target_tokens: list[str]
    """The labels as text: row t of the decoder's attention is for predicting token t."""

    def __repr__(self) -> str:
        """Name the tokens: the tensors say the same."""
        return f"Reading(source_tokens={self.source_tokens}, target_tokens={self.target_tokens})"


@dataclass(frozen=True, slots=True)
class Translation:
    """Text in one language to text in another, with any model of the type `Seq2Seq`."""

    source: Tokenizer
    target: Tokenizer
    max_length: int
    """Longest sentence, in tokens, that the model has been trained on."""

    def layout(self, data: DataConfig, batch_tokens: int) -> Layout:
        """Return the layout of batches of this task."""
        specials = (self.source.specials, self.target.specials)
        return Layout(data.max_length, batch_tokens, data.layout == "packed", specials)

    def loss(
        self,
        model: Seq2Seq,
        batch: Batch,
        smoothing: float,
        agreement: float = 0.0,
        criterion: Callable[..., Loss] = linear_cross_entropy,
    ) -> Loss:
        """Compute the loss of a model on a batch.

        Args:
            model: The model; in training mode dropout is applied.
            batch: Sources, targets and labels.
            smoothing: Share of the probability spread over the whole vocabulary.
            agreement: If not 0, the model is run twice on all pairs, with different dropout, and
                the divergence of the two outputs is added to the loss with this weight (R-Drop).
            criterion: The loss for training, or a compiled version of it.
        """
        n_passes = 2 if agreement else 1
        read = batch.map(lambda tensor: tensor.repeat(n_passes, 1)) if agreement else batch
        hidden = model.decode(read.target, model.encode(read.source))
        if not torch.is_grad_enabled():
            return _loss_row_by_row(model, hidden, batch.labels, smoothing)
        passes = hidden.unflatten(0, (n_passes, -1))
        return criterion(passes, model.output.weight, batch.labels, smoothing, agreement)

    def translate(
        self,
        model: Seq2Seq,
        texts: Sequence[str],
        options: DecodingConfig,
        device: torch.device,
        *,
        n_best: int = 1,
        prefixes: Sequence[str] = (),
        done: Callable[[int], None] = lambda n: None,
    ) -> list[list[Translated]]:
        """Translate texts, the best translation of each first; order and empty texts are kept.

        Args:
            model: The model, in evaluation mode.
            texts: What to translate.
            options: How to search.
            device: Device of the model.
            n_best: How many translations of each text to return.
            prefixes: What each translation must begin with (one for each text, or none at all).
            done: Called after each batch with the number of texts finished since the last call.
        """
        paired = zip(texts, prefixes or repeat(""), strict=False)
        return list(self.stream(model, paired, options, device, n_best=n_best, done=done))

    def stream(
        self,
        model: Seq2Seq,
        texts: Iterable[tuple[str, str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a forced prefix, and yield them in order when finished."""
        joiner = Joiner()
        for window in windows(
            texts,
            (self.source, self.target),
            sentences=options.sentences,
            max_length=self.max_length - 1,  # one place is for </s>
            size=WINDOW * options.batch_size,
        ):
            for job, found in self._search(model, window, options, device, n_best, done):
                joiner.add(found, job.gap)
                if job.is_last:
                    yield joiner.translations()
                    joiner = Joiner()

    def _search(
        self,
        model: Seq2Seq,
        jobs: list[Job],
        options: DecodingConfig,
        device: torch.device,
        n_best: int,
        done: Callable[[int], None],
    ) -> Iterator[tuple[Job, list[Translated]]]:
        """Translate segments and yield them in order when finished."""
        # Similar lengths together waste little padding.
        order = sorted((n for n, job in enumerate(jobs) if job.ids), key=lambda n: len(jobs[n].ids))
        found = {n: [EMPTY] for n, job in enumerate(jobs) if not job.ids}
        n_left = Counter(jobs[n].text for n in order)
        ending = {job.text for job in jobs if job.is_last}
        done(len(ending - n_left.keys()))  # the empty ones
        place = 0
        for start in range(0, len(order), options.batch_size):
            batch = order[start : start + options.batch_size]
            chosen = [jobs[n] for n in batch]
            request = self._request(model, chosen, options, device)
            hypotheses = search(request, options, _n_searched(options, n_best))
            for n, best in zip(batch, hypotheses, strict=True):
                found[n] = self._translations(best, n_best)
            n_left.subtract(job.text for job in chosen)
            done(sum(n_left[text] == 0 for text in {job.text for job in chosen} & ending))
            while place in found:
                yield jobs[place], found.pop(place)
                place += 1
        for n in range(place, len(jobs)):
            yield jobs[n], found[n]

    def evaluate(
        self,
        model: Seq2Seq,
        pairs: Sequence[tuple[str, str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Callable[[int], None] = lambda n: None,
    ) -> Scores:
        """Translate the source sides and compare with the target sides."""
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        found = self.translate(model, sources, options, device, done=done)
        return score([best[0].text for best in found], references)

    def score(
        self, model: Seq2Seq, sources: Sequence[str], targets: Sequence[str], device: torch.device
    ) -> list[float]:
        """Return the log-probability of each target given its source."""
        scores = []
        for source, target in zip(sources, targets, strict=True):
            ids, labels = self._encode_pair(source, target)
            with torch.inference_mode():
                memory = self._read(model, [ids], device)
                logits = model.logits(model.decode(self._given(labels).to(device), memory))
            log_probs = logits[0].float().log_softmax(-1).cpu()
            if log_probs.isnan().any():
                raise BundleError(NOT_FINITE)
            scores.append(float(log_probs[range(len(labels)), labels].sum()))
        return scores

    def read(self, source: str, target: str, device: torch.device) -> Reading:
        """Turn a pair into the input of a model, with the tokens of both sides."""
        ids, labels = self._encode_pair(source, target)
        return Reading(
            source=pad_grid([ids], self.source.specials.pad).to(device),
            target=self._given(labels).to(device),
            labels=torch.tensor(labels, device=device),
            source_tokens=self.source.pieces(ids),
            target_tokens=self.target.pieces(labels),
        )

    def record(
        self, model: Seq2Seq, source: str, target: str, device: torch.device
    ) -> tuple[Recording, Reading]:
        """Run a model on a pair and return attention weights, hidden states and logits."""
        reading = self.read(source, target, device)
        with torch.inference_mode():
            recording = model.record(reading.source, reading.target)
        if not recording.logits.isfinite().all():
            raise BundleError(NOT_FINITE)
        tokens = tuple(reading.source_tokens), tuple(reading.target_tokens)
        return recording._replace(source_tokens=tokens[0], target_tokens=tokens[1]), reading

    def request(
        self, model: Seq2Seq, text: str, options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Return the search for the translation of one text as one segment, for inspection."""
        job = Job(0, 0, self.source.encode(text), [], "", is_last=True)
        return self._request(model, [job], options, device)

    def _encode_pair(self, source: str, target: str) -> tuple[list[int], list[int]]:
        ids = [*self.source.encode(source), self.source.specials.eos]
        return ids, [*self.target.encode(target), self.target.specials.eos]

    def _given(self, labels: list[int]) -> Grid:
        """Shift labels by one position: the input of the decoder while it predicts them."""
        return pad_grid([[self.target.specials.bos, *labels[:-1]]], self.target.specials.pad)

    def _read(self, model: Seq2Seq, sources: list[list[int]], device: torch.device) -> Memory:
        return model.encode(pad_grid(sources, self.source.specials.pad).to(device))

    def _request(
        self, model: Seq2Seq, jobs: list[Job], options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        sources = [[*job.ids, self.source.specials.eos] for job in jobs]
        with torch.inference_mode():
            state = model.start(self._read(model, sources, device))
        return Request(
            step=model.step,
            state=state,
            max_lengths=[len(job.ids) + options.max_extra + len(job.prefix) for job in jobs],
            numbers=[job.number for job in jobs],
            specials=self.target.specials,
            device=device,
            prefixes=[job.prefix for job in jobs],
        )

    def _translations(self, hypotheses: list[Hypothesis], n_best: int) -> list[Translated]:
        """Turn hypotheses into text; of those that read alike only the best is kept."""
        found: dict[str, Translated] = {}
        for one in hypotheses:
            text = self.target.decode(one.ids)
            found.setdefault(text, Translated(text, one.score, one.finished))
        return list(found.values())[:n_best]


def _n_searched(options: DecodingConfig, n_best: int) -> int:
    """Return how many hypotheses to ask for, so that enough are left without duplicates."""
    return max(n_best, options.beam) if n_best > 1 and options.strategy == "beam" else n_best


def _loss_row_by_row(
    model: Seq2Seq, hidden: Float[Tensor, "R T D"], labels: Int[Tensor, "R T"], smoothing: float
) -> Loss:
    """Compute a loss without gradients, and never all logits at once: they would not fit."""
    losses = [
        cross_entropy(model.logits(rows), expected, smoothing)
        for rows, expected in zip(hidden.split(32), labels.split(32), strict=True)
    ]
    totals, counts = zip(*losses, strict=True)
    return Loss(torch.stack(totals).sum(), torch.stack(counts).sum())
