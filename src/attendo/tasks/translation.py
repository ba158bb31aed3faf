"""Translation: where text, grids, model, loss and search come together."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DataConfig, DecodingConfig
from attendo.data.batches import Batch, Layout
from attendo.data.grids import pad_grid
from attendo.decoding import Hypothesis, Request, search
from attendo.losses import Loss, cross_entropy, linear_cross_entropy
from attendo.metrics import Scores, score
from attendo.models import Memory, Recording, Seq2Seq
from attendo.nn.grid import Grid
from attendo.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Translated:
    """One translation of one text."""

    text: str
    score: float
    """Log-probability of the translation given the source."""
    finished: bool
    """False when it was cut at the longest allowed length."""
    n_pieces: int = 1
    """Number of pieces a long source was translated in."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A pair of sentences as a model reads it, alone in its grids."""

    source: Grid
    target: Grid
    """What the decoder sees: at each place all but the token that it is to predict there."""
    labels: Int[Tensor, " T"]
    """What it is to predict."""
    source_tokens: list[str]
    target_tokens: list[str]
    """The labels as text: row t of the decoder's attention is for predicting token t."""

    def __repr__(self) -> str:
        """Name the tokens: the tensors say the same."""
        return f"Reading(source_tokens={self.source_tokens}, target_tokens={self.target_tokens})"


EMPTY = Translated("", 0.0, finished=True)
"""The translation of an empty line; the model is not asked."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a text that the model can read at once: nearly always the whole text."""

    text: int
    """Number of the text it comes from."""
    ids: list[int]
    prefix: list[int]


@dataclass(frozen=True, slots=True)
class Translation:
    """Text in one language to text in another, by any model that keeps the promise `Seq2Seq`."""

    source: Tokenizer
    target: Tokenizer
    max_length: int
    """Longest sentence, in tokens, that the model has been trained on."""

    def layout(self, data: DataConfig, batch_tokens: int) -> Layout:
        """Say how batches of this task are laid out."""
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
        """Measure how badly the model predicts the labels of a batch.

        Args:
            model: The model; in training mode it drops out.
            batch: What it reads and what it should say.
            smoothing: Share of the probability spread over the whole vocabulary.
            agreement: If not 0, all pairs are read twice, each time with other dropout, and how
                much the two readings differ is added to the loss with this weight (R-Drop).
            criterion: The loss for training, or a compiled twin of it.
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
            device: Where the model lives.
            n_best: How many translations of each text to return.
            prefixes: What each translation must begin with (one for each text, or none at all).
            done: Told how many texts have been translated since the last call.
        """
        pieces = list(self._pieces(texts, prefixes))
        found: list[list[list[Hypothesis]]] = [[] for _ in texts]
        # Like lengths together waste no padding. The order of pieces of one text is restored below.
        order = sorted(range(len(pieces)), key=lambda number: len(pieces[number].ids))
        results: dict[int, list[Hypothesis]] = {}
        n_left = Counter(piece.text for piece in pieces)
        done(len(texts) - len(n_left))  # the empty ones
        for start in range(0, len(order), options.batch_size):
            batch = order[start : start + options.batch_size]
            request = self._request(model, pieces, batch, options, device)
            results.update(zip(batch, search(request, options, n_best), strict=True))
            n_left.subtract(pieces[number].text for number in batch)
            done(sum(n_left[text] == 0 for text in {pieces[number].text for number in batch}))
        for number, piece in enumerate(pieces):
            found[piece.text].append(results[number])
        # Of a text in several pieces, the k-th best is made of the k-th best of every piece.
        return [
            [self._join(parts) for parts in zip(*lists, strict=False)] or [EMPTY] for lists in found
        ]

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
        """Compute the log-probability of each target given its source."""
        scores = []
        for source, target in zip(sources, targets, strict=True):
            ids, labels = self._encode_pair(source, target)
            with torch.inference_mode():
                memory = self._read(model, [ids], device)
                logits = model.logits(model.decode(self._given(labels).to(device), memory))
            log_probs = logits[0].float().log_softmax(-1).cpu()
            scores.append(float(log_probs[range(len(labels)), labels].sum()))
        return scores

    def read(self, source: str, target: str, device: torch.device) -> Reading:
        """Turn a pair into what a model reads, with the tokens of both sides."""
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
        """Let a model read a pair, and keep all that happens on the way."""
        reading = self.read(source, target, device)
        with torch.inference_mode():
            recording = model.record(reading.source, reading.target)
        tokens = tuple(reading.source_tokens), tuple(reading.target_tokens)
        return recording._replace(source_tokens=tokens[0], target_tokens=tokens[1]), reading

    def request(
        self, model: Seq2Seq, text: str, options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Ask for the translation of one text, in one piece, for those who watch the search."""
        pieces = [_Piece(0, self.source.encode(text), [])]
        return self._request(model, pieces, [0], options, device)

    def _encode_pair(self, source: str, target: str) -> tuple[list[int], list[int]]:
        ids = [*self.source.encode(source), self.source.specials.eos]
        return ids, [*self.target.encode(target), self.target.specials.eos]

    def _given(self, labels: list[int]) -> Grid:
        """Shift labels by one place: what the decoder sees while it predicts them."""
        return pad_grid([[self.target.specials.bos, *labels[:-1]]], self.target.specials.pad)

    def _read(self, model: Seq2Seq, sources: list[list[int]], device: torch.device) -> Memory:
        return model.encode(pad_grid(sources, self.source.specials.pad).to(device))

    def _pieces(self, texts: Sequence[str], prefixes: Sequence[str]) -> Iterator[_Piece]:
        forced = self.target.encode_batch(list(prefixes)) if prefixes else [[]] * len(texts)
        for number, ids in enumerate(self.source.encode_batch(list(texts))):
            prefix = forced[number]
            for part in cut(ids, self.source.pieces(ids), self.max_length - 1):
                yield _Piece(number, part, prefix)
                prefix = []

    def _request(
        self,
        model: Seq2Seq,
        pieces: list[_Piece],
        numbers: list[int],
        options: DecodingConfig,
        device: torch.device,
    ) -> Request[Any]:
        chosen = [pieces[number] for number in numbers]
        sources = [[*piece.ids, self.source.specials.eos] for piece in chosen]
        with torch.inference_mode():
            state = model.start(self._read(model, sources, device))
        return Request(
            step=model.step,
            state=state,
            max_lengths=[
                len(piece.ids) + options.max_extra + len(piece.prefix) for piece in chosen
            ],
            numbers=numbers,
            specials=self.target.specials,
            device=device,
            prefixes=[piece.prefix for piece in chosen],
        )

    def _join(self, parts: tuple[Hypothesis, ...]) -> Translated:
        return Translated(
            text=" ".join(self.target.decode(part.ids) for part in parts),
            score=sum(part.score for part in parts),
            finished=all(part.finished for part in parts),
            n_pieces=len(parts),
        )


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


def cut(ids: list[int], pieces: list[str], limit: int) -> Iterator[list[int]]:
    """Cut what is too long to be read at once: after a sentence, or before a word, or anywhere."""
    start = 0
    while len(ids) - start > limit:
        places = range(start + limit, start + limit // 2, -1)
        starts_word = [place for place in places if pieces[place].startswith(("▁", "Ġ", " "))]
        ends_sentence = [place for place in starts_word if pieces[place - 1].endswith(tuple(".!?"))]
        end = next(iter(ends_sentence or starts_word or places))
        yield ids[start:end]
        start = end
    if start < len(ids):
        yield ids[start:]
