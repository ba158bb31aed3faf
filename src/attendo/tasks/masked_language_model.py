"""Masked language modelling, as in BERT: guess hidden tokens from both sides of their context."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, MaskingConfig, Recipe
from attendo.data.batches import Batch, Shaped, once
from attendo.data.corpus import Corpus, MemorySide, Ragged, ragged
from attendo.data.masking import Masking, most_guessed
from attendo.data.packing import pad_grid
from attendo.data.readers import Document
from attendo.errors import DataError
from attendo.models import Encoder, Recording, build_model
from attendo.models.maps import shown_tokens
from attendo.models.masked import MaskedLM
from attendo.nn.grid import Grid
from attendo.nn.stack import nothing_recorded
from attendo.runs import read_tokenizer
from attendo.specials import IGNORE
from attendo.tasks.base import Done, Example, Metric, Records, learn_tokenizer
from attendo.tasks.documents import NO_TOKENS, TOKENS, DocumentTask, split
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
    refuse_target,
)
from attendo.tasks.predicting import PredictingTask, encode_rows, finite
from attendo.text import Tokenizer

N_GUESSES = 5
"""Most probable tokens for each mask."""


@dataclass(frozen=True, slots=True)
class MaskedLanguageModelScores:
    """How well hidden tokens of unseen text are guessed."""

    pseudo_perplexity: float
    """The exponential of the mean loss of a token to guess; lower is better."""
    accuracy: float
    """Share of these tokens whose best guess is right, in percent."""
    tokens: int
    """Number of tokens to guess; the same ones for all models with this tokenizer and share."""
    documents: int

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name."""
        return asdict(self)


class Guess(NamedTuple):
    """A token in the place of a mask."""

    token: str
    probability: float


class Guesses(NamedTuple):
    """The most probable tokens in the place of each mask of a text."""

    guesses: tuple[tuple[Guess, ...], ...]

    def to_text(self) -> str:
        """Return a line for each mask."""
        return "\n".join(
            ", ".join(f"{token} {probability:.4f}" for token, probability in best)
            for best in self.guesses
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        return {"guesses": [[guess._asdict() for guess in best] for best in self.guesses]}


class MaskedLanguageModel(DocumentTask, PredictingTask):
    """Text alone, by any model that keeps the promise `Encoder`."""

    name: ClassVar[str] = "masked-language-model"
    models: ClassVar[str] = "masked language models"
    metric: ClassVar[Metric] = Metric(
        "pseudo_perplexity", "pseudo-perplexity", higher_is_better=False, is_loss=True
    )
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "some <mask> text")
    examples: ClassVar[tuple[str, ...]] = (
        "The old dog <mask> in the big house.",
        "The brothers want to <mask> the car.",
        "The animal did not cross the street because it was too <mask>.",
        "The <mask> did not cross the street because it was too tired.",
    )

    def __init__(self, tokenizer: Tokenizer, data: DataConfig, masking: MaskingConfig) -> None:
        tokenizer = tokenizer.with_mask()
        super().__init__(tokenizer, data)
        assert tokenizer.mask is not None
        self.mask = tokenizer.mask_name
        specials = (*tokenizer.specials, tokenizer.mask)
        self.masking = Masking(
            share=masking.share,
            mask=tokenizer.mask,
            replacements=np.setdiff1d(np.arange(tokenizer.size), specials),
            continues=np.array(tokenizer.continuing()) if masking.whole_words else None,
        )

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "MaskedLanguageModel":
        """Learn the vocabulary from the training texts, or load it; with a mask token."""
        texts = (record.text for record in records())
        tokenizer = learn_tokenizer(recipe, texts, recipe.tokenizer.path, spare=1)
        return cls(tokenizer, recipe.data, recipe.masking)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "MaskedLanguageModel":
        """Load the tokenizer of a run folder."""
        return cls(read_tokenizer(folder / "tokenizer.json"), recipe.data, recipe.masking)

    def encode(
        self, records: Sequence[Document], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Document, Example]]:
        """Split texts into examples that fit into a row."""
        for record, ids in zip(records, self.encode_texts(records), strict=True):
            if not ids:
                dropped[NO_TOKENS] += 1
            for part in split(ids, data.max_length - 2):  # two are for <s> and </s>
                yield record, (part,)

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Hide some tokens, to be guessed, and add <s> before and </s> after a text."""
        specials = self.tokenizer.specials
        text, labels = self.masking.apply(columns["text"], chance)
        return Shaped(
            {"text": text.begun_with(specials.bos).ended_with(specials.eos)},
            labels.begun_with(IGNORE).ended_with(IGNORE),
        )

    def build(self, config: AnyModelConfig) -> MaskedLM:
        """Build an encoder with BERT's head."""
        return self.outline(config, self.sizes)

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> MaskedLM:
        """Build the same for a vocabulary of this size."""
        body = build_model(config, sizes["text"], promise=Encoder)
        epsilon = getattr(config, "norm_epsilon", 1e-5)  # a setting of Transformers
        return MaskedLM(body, tied=config.tied != "none", epsilon=epsilon)

    def hidden(self, model: MaskedLM, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of all positions."""
        return model.encode(inputs["text"]).hidden

    def select(
        self, model: MaskedLM, hidden: Float[Tensor, "R T D"], labels: Int[Tensor, "R T"]
    ) -> tuple[Float[Tensor, "R P D"], Int[Tensor, "R P"]]:
        """Transform the hidden states of tokens to guess; the others need no output.

        In training their number is the most that a row of this width can have, so that all batches
        have the same shape and a step can be recorded as a graph.
        """
        has_label = labels != IGNORE
        if torch.is_grad_enabled():
            n = most_guessed(labels.shape[1], self.masking.share)
        else:
            n = max(1, int(has_label.sum(1).max()))
        places = has_label.int().argsort(dim=1, descending=True, stable=True)[:, :n]
        chosen = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
        return model.transform(chosen), labels.gather(1, places)

    def evaluate(
        self,
        model: MaskedLM,
        records: Sequence[Document],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> MaskedLanguageModelScores:
        """Measure pseudo-perplexity and accuracy; the same tokens are hidden every time."""
        total, right, count = 0.0, 0, 0
        with torch.inference_mode():
            for batch in self._batches(records, device, done):
                hidden = self.hidden(model, batch.inputs)
                states, labels = self.select(model, hidden, batch.labels)
                expected = labels[labels != IGNORE]
                log_probs = model.output(states[labels != IGNORE]).float().log_softmax(-1)
                total -= float(log_probs.gather(1, expected[:, None]).sum())
                right += int((log_probs.argmax(-1) == expected).sum())
                count += len(expected)
        if not count:
            raise DataError("no text to score: it has no tokens that can be hidden")
        return MaskedLanguageModelScores(
            pseudo_perplexity=round(math.exp(min(total / count, 700.0)), 4),
            accuracy=round(100 * right / count, 2),
            tokens=count,
            documents=len(records),
        )

    def _batches(
        self, records: Sequence[Document], device: torch.device, done: Done
    ) -> Iterator[Batch]:
        """Yield every record once, and report how many are finished."""
        if not records:
            raise DataError("no text to score: give at least one line")
        ids = [example[0] for _, example in self.encode(records, self.data, Counter())]
        corpus = Corpus({"text": MemorySide(ragged(ids))}, len(ids))
        share, finished = len(records) / max(1, len(ids)), 0.0
        for batch in once(corpus, self.layout(self.data, max(TOKENS, self.max_length))):
            yield batch.to(device)
            before, finished = finished, finished + share * len(batch.records)
            done(round(finished) - round(before))

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return pseudo-perplexity and accuracy as text."""
        return {
            "pseudo-perplexity": f"{scores['pseudo_perplexity']:.2f}",
            "accuracy": f"{scores['accuracy']:.2f} %",
            "tokens": f"{scores['tokens']:,}",
            "documents": f"{scores['documents']:,}",
        }

    def predict(
        self,
        model: MaskedLM,
        texts: Sequence[str | Sequence[str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Guesses]:
        """Return the most probable tokens for each mask of each text."""
        rows = [self._row(self.parse(text)[0]) for text in texts]
        for text, row in zip(texts, rows, strict=True):
            self._check_masks(text, row)
        found: dict[int, Guesses] = {}
        pad = self.tokenizer.specials.pad
        for numbers, memory in encode_rows(model, rows, pad, options.batch_size, device):
            for number, hidden in zip(numbers, memory.hidden, strict=True):
                masks = [at for at, token in enumerate(rows[number]) if token == self.masking.mask]
                with torch.inference_mode():
                    found[number] = self._guesses(model.logits(hidden[masks]))
            done(len(numbers))
        return [found[number] for number in range(len(rows))]

    def _row(self, text: str) -> list[int]:
        """Encode a text in which the mask token may be written, with special tokens."""
        specials = self.tokenizer.specials
        return [specials.bos, *self.tokenizer.encode_masked(text), specials.eos]

    def _check_masks(self, text: str | Sequence[str], row: list[int]) -> None:
        name = self.tokenizer.mask_name
        if self.masking.mask not in row:
            raise DataError(f"{text!r:.60} has no {name}; write {name} in place of a word to guess")
        if len(row) > self.max_length:
            raise DataError(
                f"{text!r:.60} has {len(row)} tokens, and this model reads up to "
                f"{self.max_length}: take a part of it"
            )

    def _guesses(self, logits: Float[Tensor, "M V"]) -> Guesses:
        best = finite(logits).float().softmax(-1).topk(min(N_GUESSES, logits.shape[1]))
        return Guesses(
            tuple(
                tuple(map(Guess, self._shown(ids), values))
                for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
        )

    def _shown(self, ids: Sequence[int]) -> list[str]:
        """Return tokens for people, as if they followed others."""
        return shown_tokens(["<s>", *self.tokenizer.tokens(ids)])[1:]

    def check_inspectable(self, source: str) -> None:
        """Refuse texts that are too long to be inspected."""
        longest = min(LONGEST, self.max_length - 2)
        check_length("text", len(self._row(source)) - 2, longest, "take a part of it")

    def inspect(
        self,
        model: MaskedLM,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a text; its summary has the guesses for its masks, if it has any."""
        refuse_target(self.name, target)
        self.check_inspectable(text)
        row = self._row(text)
        masks = [at for at, token in enumerate(row) if token == self.masking.mask]
        places = masks or list(range(1, len(row) - 1))
        grid = pad_grid([row], self.tokenizer.specials.pad).to(device)
        with torch.inference_mode():
            memory, encoder = model.record(grid)
            logits = model.logits(memory.hidden[:, places])
        tokens = self.tokenizer.tokens(row)
        recording = Recording(encoder, nothing_recorded(), logits, source_tokens=tuple(tokens))
        check_finite(recording)
        labels = torch.full((len(row),), IGNORE, device=device)
        labels[places] = logits[0].argmax(-1) if masks else grid.ids[0, places]
        tokenized = TokenizedText({"text": grid}, labels, tokens, [])
        name = self.tokenizer.mask_name
        summary = (
            self._guesses(logits[0]).to_text()
            if masks
            else f"no {name} in the text: nothing to guess"
        )
        found = self.tokenizer.tokens(labels[places].tolist())
        guessed = " ".join(shown_tokens(found)) if masks else ""
        return Inspection(text, guessed, tokenized, recording, self.tokenizer.tokens, summary)
