"""Translation: where text, grids, model, loss and search come together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, NoiseConfig, Recipe
from attendo.data.batches import Layout, Shaped
from attendo.data.builtin import Sentence
from attendo.data.corpus import Ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Pair
from attendo.decoding import NOT_FINITE, Request, search_all
from attendo.errors import BundleError
from attendo.metrics import Scores, bleu, describe_scores, score
from attendo.models import Memory, Model, Recording, Seq2Seq, build_model
from attendo.nn.grid import Grid
from attendo.runs import check_tokenizers, read_tokenizers
from attendo.tasks.base import (
    Example,
    Metric,
    Records,
    Task,
    learn_tokenizer,
)
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
)
from attendo.tasks.noise import PairNoise
from attendo.text import Tokenizer
from attendo.text.streams import Found, Job, Streaming, Translated, stream_texts

ENCODED = 256
"""Sentences that are encoded at once for a search in slots, but at most a few times the slots."""
WINDOW = 4
"""Batches that are sorted by length together."""

MORE = 50
"""How many more tokens than a source a translation may have to be inspected."""


class Translation(Task):
    """Text in one language to text in another, by any `Seq2Seq` model."""

    name: ClassVar[str] = "translation"
    models: ClassVar[str] = "translation models"
    record_type: ClassVar[type[Any]] = Pair
    metric: ClassVar[Metric] = Metric("bleu", "BLEU", higher_is_better=True)
    columns: ClassVar[tuple[str, ...]] = ("source", "target")
    promise: ClassVar[type[Model]] = Seq2Seq
    command: ClassVar[tuple[str, ...]] = ("translate", "RUN", "some text")
    examples: ClassVar[tuple[str, ...]] = (
        "The animal did not cross the street because it was too tired.",
        "The animal did not cross the street because it was too wide.",
        "The old dog that the farmer saw yesterday sleeps in the big house.",
        "The brothers whom the teacher often helps want to sell the old car.",
    )

    def __init__(self, source: Tokenizer, target: Tokenizer, max_length: int) -> None:
        self.source = source
        self.target = target
        self.tokenizers = {"tokenizer": source, "target_tokenizer": target}
        self.max_length = max_length
        """Longest sentence, in tokens, that the model has been trained on."""

    @classmethod
    def convert(cls, sentence: Sentence) -> Pair:
        """Return both sides."""
        return Pair(sentence.source, sentence.target)

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "Translation":
        """Learn one vocabulary for both sides, or two, or load them."""
        config = recipe.tokenizer
        if config.shared is True:
            texts = chain.from_iterable(records())
            source = target = learn_tokenizer(recipe, texts, config.path)
        else:
            sources = (record.source for record in records())
            source = learn_tokenizer(recipe, sources, config.path)
            targets = (record.target for record in records())
            target = learn_tokenizer(recipe, targets, config.target_path)
        check_tokenizers(source, target, recipe)
        return cls(source, target, recipe.data.max_length)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "Translation":
        """Load the tokenizers of a run folder."""
        return cls(*read_tokenizers(folder, recipe), recipe.data.max_length)

    def files(self) -> dict[str, str]:
        """Return the tokenizers; a shared one once."""
        files = {"tokenizer.json": self.source.to_json()}
        if self.target is not self.source:
            files["target_tokenizer.json"] = self.target.to_json()
        return files

    def encode(
        self, records: Sequence[Pair], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Pair, Example]]:
        """Encode pairs as ids, without those that a row cannot hold."""
        sources = self.source.encode_batch([record.source for record in records])
        targets = self.target.encode_batch([record.target for record in records])
        for record, source, target in zip(records, sources, targets, strict=True):
            longer, shorter = sorted((len(source), len(target)), reverse=True)
            if longer >= data.max_length:  # one position is for </s>
                dropped[f"longer than data.max_length = {data.max_length} tokens"] += 1
            elif not shorter:
                dropped["side without tokens"] += 1
            elif data.max_ratio and longer > data.max_ratio * shorter:
                dropped["sides of uneven length (data.max_ratio)"] += 1
            else:
                yield record, (source, target)

    def decode(self, example: Example) -> Pair:
        """Decode ids to text."""
        source, target = example
        return Pair(self.source.decode(source), self.target.decode(target))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes of the vocabularies."""
        return {"source": self.source.size, "target": self.target.size}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add </s> after sources and labels, and <s> before the inputs of the decoder."""
        source, target = columns["source"], columns["target"]
        inputs = {
            "source": source.ended_with(self.source.specials.eos),
            "target": target.begun_with(self.target.specials.bos),
        }
        return Shaped(inputs, target.ended_with(self.target.specials.eos))

    @property
    def pads(self) -> dict[str, int]:
        """Return the ids of <pad>."""
        return {"source": self.source.specials.pad, "target": self.target.specials.pad}

    def noisy(self, layout: Layout, noise: NoiseConfig) -> Layout:
        """Return the layout of training batches, with noise in some of the pairs."""
        if not noise.total:
            return layout
        tokenizers = {"source": self.source, "target": self.target}
        return replace(layout, vary=PairNoise(noise, tokenizers))

    def build(self, config: AnyModelConfig) -> Seq2Seq:
        """Build an encoder and a decoder."""
        return self.outline(config, self.sizes)

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the same for vocabularies of these sizes."""
        return build_model(config, sizes["source"], sizes["target"])

    def hidden(self, model: Seq2Seq, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of the target."""
        return model.decode(inputs["target"], model.encode(inputs["source"]))

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

        def search(batches: Iterable[list[Job]]) -> Iterator[Found]:
            requests = (self.request_jobs(model, jobs, options, device) for jobs in batches)
            return search_all(requests, options, _n_searched(options, n_best), model.pools)

        # Search in slots does not depend on how many sentences are encoded at once.
        more = 0 if model.pools is None else min(WINDOW * options.batch_size, ENCODED)
        streaming = Streaming(
            (self.source, self.target),
            sentences=options.sentences,
            max_length=self.max_length - 1,  # one place is for </s>
            batch_size=max(options.batch_size, more),
            window=WINDOW,
            is_eager=model.pools is not None,
            n_best=n_best,
        )
        return stream_texts(texts, streaming, search, done)

    def evaluate(
        self,
        model: Seq2Seq,
        records: Sequence[tuple[str, str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Callable[[int], None] = lambda n: None,
    ) -> Scores:
        """Translate the source sides and compare with the target sides."""
        sources, references = [source for source, _ in records], [target for _, target in records]
        found = self.translate(model, sources, options, device, done=done)
        return score([best[0].text for best in found], references)

    def validate(
        self,
        model: Seq2Seq,
        records: Sequence[tuple[str, str]],
        options: DecodingConfig,
        device: torch.device,
    ) -> float:
        """Return BLEU of greedy translations."""
        greedy = options.model_copy(update={"strategy": "greedy", "batch_size": 256})
        found = self.translate(model, [source for source, _ in records], greedy, device)
        return bleu([best[0].text for best in found], [target for _, target in records])

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return BLEU and chrF as text."""
        return describe_scores(scores)

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

    def tokenize_pair(self, source: str, target: str, device: torch.device) -> TokenizedText:
        """Convert a pair to the input of a model, with the tokens of both sides."""
        ids, labels = self._encode_pair(source, target)
        return TokenizedText(
            inputs={
                "source": pad_grid([ids], self.source.specials.pad).to(device),
                "target": self._given(labels).to(device),
            },
            labels=torch.tensor(labels, device=device),
            source_tokens=self.source.tokens(ids),
            target_tokens=self.target.tokens(labels),
        )

    def record(
        self, model: Seq2Seq, source: str, target: str, device: torch.device
    ) -> tuple[Recording, TokenizedText]:
        """Run a model on a pair and return attention weights, hidden states and logits."""
        tokenized = self.tokenize_pair(source, target, device)
        with torch.inference_mode():
            recording = model.record(tokenized.source, tokenized.target)
        check_finite(recording)
        tokens = tuple(tokenized.source_tokens), tuple(tokenized.target_tokens)
        return recording._replace(source_tokens=tokens[0], target_tokens=tokens[1]), tokenized

    def inspect(
        self,
        model: Seq2Seq,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a source with a target, the model's own translation if none is given."""
        self.check_inspectable(text, target)
        if target is None:
            target = self.translate(model, [text], options, device)[0][0].text
        recording, tokenized = self.record(model, text, target, device)
        return Inspection(text, target, tokenized, recording, self.target.tokens, target)

    def check_inspectable(self, source: str, target: str | None = None) -> None:
        """Refuse sentences that are too long to be inspected."""
        longest = min(LONGEST, self.max_length - 1)
        check_length("sentence", len(self.source.encode(source)), longest, "take a part of it")
        if target is not None:
            n_tokens = len(self.target.encode(target))
            check_length("translation", n_tokens, longest + MORE, "take a shorter one")

    def request(
        self, model: Seq2Seq, text: str, options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Return the search for the translation of one text as one segment, for inspection."""
        job = Job(0, 0, self.source.encode(text), [], "", is_last=True)
        return self.request_jobs(model, [job], options, device)

    def _encode_pair(self, source: str, target: str) -> tuple[list[int], list[int]]:
        ids = [*self.source.encode(source), self.source.specials.eos]
        return ids, [*self.target.encode(target), self.target.specials.eos]

    def _given(self, labels: list[int]) -> Grid:
        """Shift labels by one position: the input of the decoder while it predicts them."""
        return pad_grid([[self.target.specials.bos, *labels[:-1]]], self.target.specials.pad)

    def _read(self, model: Seq2Seq, sources: list[list[int]], device: torch.device) -> Memory:
        return model.encode(pad_grid(sources, self.source.specials.pad).to(device))

    @torch.inference_mode()
    def _start(self, model: Seq2Seq, sources: list[list[int]], device: torch.device) -> Any:
        """Return the state of the decoder before the first token."""
        if model.pools is not None and model.pools.start is not None:
            return model.pools.start(pad_grid(sources, self.source.specials.pad))
        return model.start(self._read(model, sources, device))

    def request_jobs(
        self, model: Seq2Seq, jobs: list[Job], options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Return the search for the translations of encoded segments, if there are any."""
        sources = [[*job.ids, self.source.specials.eos] for job in jobs]
        state = self._start(model, sources, device) if jobs else None
        return Request(
            step=model.step,
            state=state,
            max_lengths=[len(job.ids) + options.max_extra + len(job.prefix) for job in jobs],
            numbers=[job.number for job in jobs],
            specials=self.target.specials,
            device=device,
            prefixes=[job.prefix for job in jobs],
        )


def _n_searched(options: DecodingConfig, n_best: int) -> int:
    """Return how many hypotheses to search for, so that enough are left without duplicates."""
    return max(n_best, options.beam) if n_best > 1 and options.strategy == "beam" else n_best
