"""Speech recognition: a recording to a text, with the search of translation."""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int16
from numpy.typing import NDArray
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, Recipe
from attendo.data import batches
from attendo.data.builtin import Sentence
from attendo.data.corpus import ColumnSize, Ragged, Vectors, ragged
from attendo.data.media.drawn import SOUNDS
from attendo.data.media.items import shown
from attendo.data.media.recordings import Transcribed
from attendo.data.packing import pad_grid
from attendo.decoding import Request, search
from attendo.errors import DataError
from attendo.metrics import WordErrors, count_word_errors
from attendo.models import Model, Seq2Seq, build_model
from attendo.nn.grid import Grid
from attendo.nn.spectrogram import AudioEmbedding
from attendo.runs import read_tokenizer
from attendo.tasks.audio_classification import (
    change_speed,
    draw_silence,
    in_positions,
    read_positions,
    show_positions,
)
from attendo.tasks.base import Done, Example, Metric, Records, learn_tokenizer
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    Picture,
    TokenizedText,
    check_finite,
    check_length,
)
from attendo.tasks.media import (
    Content,
    decode_name,
    encode_name,
    read_files,
    too_long,
)
from attendo.tasks.predicting import PredictingTask, similar
from attendo.text import Tokenizer


class Transcript(NamedTuple):
    """What is said in a recording."""

    text: str
    score: float
    """Log-probability of the text given the recording."""

    def to_text(self) -> str:
        """Return the text."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        return self._asdict()


class SpeechRecognition(PredictingTask):
    """A recording to a text, by any `Seq2Seq` model."""

    name: ClassVar[str] = "speech-recognition"
    models: ClassVar[str] = "speech recognisers"
    record_type: ClassVar[type[Any]] = Transcribed
    metric: ClassVar[Metric] = Metric(
        "word_error_rate", "word error rate", higher_is_better=False, unit=" %"
    )
    columns: ClassVar[tuple[str, ...]] = ("source", "target", "file")
    inputs: ClassVar[tuple[str, ...]] = ("recording",)
    promise: ClassVar[type[Model]] = Seq2Seq
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "recording.wav")
    reads_files: ClassVar[bool] = True
    examples: ClassVar[tuple[str, ...]] = ("drawn:low rising high-7", "drawn:buzz falling-8")

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self.target = tokenizer
        self.tokenizers = {"tokenizer": tokenizer}
        self.recipe = recipe
        self.max_length = recipe.data.max_length

    @classmethod
    def convert(cls, sentence: Sentence) -> Transcribed:
        """Return one to three drawn sounds for each sentence of the built-in corpus."""
        seed = zlib.crc32(sentence.source.encode())
        words = [SOUNDS[(seed >> 3 * k) % len(SOUNDS)] for k in range(1 + seed % 3)]
        return Transcribed(f"drawn:{' '.join(words)}-{seed}", " ".join(words))

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "SpeechRecognition":
        """Learn the vocabulary from the texts, or load it."""
        texts = (record.text for record in records())
        return cls(learn_tokenizer(recipe, texts, recipe.tokenizer.path), recipe)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "SpeechRecognition":
        """Load the tokenizer of a run folder."""
        return cls(read_tokenizer(folder / "tokenizer.json"), recipe)

    def files(self) -> dict[str, str]:
        """Return the tokenizer."""
        return {"tokenizer.json": self.target.to_json()}

    # -- data

    def read(self, reference: str) -> Content:
        """Read the samples of a recording, those of some frames at each position."""
        return read_positions(reference, self.recipe.audio)

    def encode(
        self, records: Sequence[Transcribed], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Transcribed, Example]]:
        """Read the recordings, and encode the texts as ids."""
        for record, content in read_files(self.read, records, data.max_length, dropped):
            ids = self.target.encode(record.text)
            if len(ids) + 1 > data.max_length:
                dropped[too_long(data.max_length)] += 1
            else:
                yield record, (content, ids, encode_name(record.recording))

    def scorable(
        self, records: Iterable[Transcribed], dropped: Counter[str]
    ) -> Iterator[Transcribed]:
        """Yield the records whose recordings can be read."""
        return (record for record, _ in read_files(self.read, records, self.max_length, dropped))

    def decode(self, example: Example) -> Transcribed:
        """Return the name of the recording, and the text."""
        _, ids, name = example
        return Transcribed(decode_name(name), self.target.decode(ids))

    @property
    def sizes(self) -> dict[str, ColumnSize]:
        """Return the samples of a position, and the sizes of the vocabulary and of a byte."""
        samples = Vectors(self.recipe.audio.samples, "<i2")
        return {"source": samples, "target": self.target.size, "file": 256}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> batches.Shaped:
        """Add </s> after labels, and <s> before the inputs of the decoder."""
        target, specials = columns["target"], self.target.specials
        inputs = {"source": columns["source"], "target": target.begun_with(specials.bos)}
        return batches.Shaped(inputs, target.ended_with(specials.eos))

    @property
    def pads(self) -> dict[str, int]:
        """Return silence, and the id of <pad>."""
        return {"source": 0, "target": self.target.specials.pad}

    def layout(self, data: DataConfig, batch_tokens: int) -> batches.Layout:
        """Return how batches are laid out; in training, recordings are changed and joined."""
        return replace(super().layout(data, batch_tokens), vary=self.vary)

    def vary(
        self, columns: Mapping[str, Ragged], chance: np.random.Generator
    ) -> Mapping[str, Ragged]:
        """Change the speed of recordings, and join each with some others, and their texts."""
        config = self.recipe.augmentation
        recordings, texts = (list(columns[name].sequences()) for name in ("source", "target"))
        if config.speed:
            recordings = [change_speed(one, config.speed, chance) for one in recordings]
        if config.join > 1 or config.silence:
            groups = [
                [n, *chance.integers(len(texts), size=chance.integers(config.join)).tolist()]
                for n in range(len(texts))
            ]
            joined = [self._join(group, recordings, texts, chance) for group in groups]
            recordings, texts = [one for one, _ in joined], [text for _, text in joined]
        return {**columns, "source": ragged(recordings), "target": ragged(texts)}

    def _join(
        self,
        group: Sequence[int],
        recordings: Sequence[Content],
        texts: Sequence[list[int]],
        chance: np.random.Generator,
    ) -> tuple[Content, list[int]]:
        """Join recordings, with near silence around them, as far as there is room.

        Each is softer than the loudest possible by as many decibels as chance says.
        """
        audio, config = self.recipe.audio, self.recipe.augmentation
        room = self.max_length * audio.samples
        first = recordings[group[0]]
        silence = draw_silence(config.silence, audio.rate, chance)[: max(0, room - first.size)]
        factors = 10 ** (-chance.uniform(0, config.softer, len(group)) / 20)
        parts, ids = [silence, _as_loud(first, first, factors[0])], [*texts[group[0]]]
        for number, factor in zip(group[1:], factors[1:], strict=True):
            gap = draw_silence(config.gap, audio.rate, chance)
            n_samples = sum(map(len, parts)) + gap.size + recordings[number].size
            n_ids = len(ids) + len(texts[number]) + 1
            if n_samples > room or n_ids > self.max_length:
                break
            parts += [gap, _as_loud(recordings[number], first, factor)]
            ids += texts[number]
        silence = draw_silence(config.silence, audio.rate, chance)
        parts.append(silence[: max(0, room - sum(map(len, parts)))])
        return in_positions(np.concatenate(parts), audio.samples), ids

    # -- model

    def build(self, config: AnyModelConfig) -> Seq2Seq:
        """Build an encoder of recordings and a decoder of text."""
        recipe = self.recipe.model_copy(update={"model": config})
        return self.outline_of(recipe, {"target": self.target.size})

    @classmethod
    def outline_of(cls, recipe: Recipe, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the same for a vocabulary of this size."""
        embedding = AudioEmbedding(recipe.audio, recipe.augmentation, recipe.model.d_model)
        return build_model(recipe.model, embedding, sizes["target"])

    def hidden(self, model: Seq2Seq, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of the text."""
        return model.decode(inputs["target"], model.encode(inputs["source"]))

    # -- use

    def predict(
        self,
        model: Seq2Seq,
        texts: Sequence[str | Sequence[str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Transcript]:
        """Return the text of each recording."""
        names = [name for text in texts for name in self.parse(text)]
        found: dict[int, Transcript] = {}
        for numbers, rows in similar(map(self._row, names), options.batch_size):
            given = dict(zip(numbers, rows, strict=True))
            request = self._request(model, given, options, device)
            for number, best in zip(numbers, search(request, options, 1), strict=True):
                found[number] = Transcript(self.target.decode(best[0].ids), best[0].score)
            done(len(numbers))
        return [found[number] for number in range(len(names))]

    def _row(self, name: str) -> Content:
        content = self.read(name)
        if len(content) > self.max_length:
            longest = self.max_length * self.recipe.audio.samples / self.recipe.audio.rate
            raise DataError(
                f"{shown(name)} is longer than {longest:.1f} seconds, which this model was trained "
                "for: take a part of it"
            )
        return content

    def check_inspectable(self, source: str) -> None:
        """Refuse a recording that is too long to be inspected."""
        check_length("recording", len(self._row(source)), LONGEST, "take a part of it")

    def request(
        self, model: Seq2Seq, text: str, options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Return the search for the text of one recording, for inspection."""
        return self._request(model, {0: self._row(text)}, options, device)

    def _request(
        self,
        model: Seq2Seq,
        numbered: Mapping[int, Content],
        options: DecodingConfig,
        device: torch.device,
    ) -> Request[Any]:
        """Return the search for the texts of recordings, each with its number among all."""
        rows = list(numbered.values())
        with torch.inference_mode():
            state = model.start(model.encode(pad_grid(rows, 0).to(device)))
        return Request(
            step=model.step,
            state=state,
            max_lengths=[min(len(row) + options.max_extra, self.max_length) for row in rows],
            numbers=list(numbered),
            specials=self.target.specials,
            device=device,
        )

    def evaluate(
        self,
        model: Seq2Seq,
        records: Sequence[Transcribed],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> WordErrors:
        """Measure the word error rate."""
        found = self.predict(model, [one[0] for one in records], options, device, done=done)
        return count_word_errors([one.text for one in found], [one[1] for one in records])

    def validate(
        self,
        model: Seq2Seq,
        records: Sequence[Transcribed],
        options: DecodingConfig,
        device: torch.device,
    ) -> float:
        """Return the word error rate of greedy search."""
        greedy = options.model_copy(update={"strategy": "greedy", "batch_size": 256})
        return self.evaluate(model, records, greedy, device).word_error_rate

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return the error rates as text."""
        return {
            "word error rate": f"{scores['word_error_rate']:.2f} %",
            "recordings without errors": f"{scores['correct']:.2f} %",
            "words": f"{scores['words']:,}",
            "recordings": f"{scores['recordings']:,}",
        }

    def inspect(
        self,
        model: Seq2Seq,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a recording with a text, the model's own if none is given."""
        self.check_inspectable(text)
        row = self._row(text)
        if target is None:
            target = self.predict(model, [text], options, device)[0].text
        specials = self.target.specials
        labels = [*self.target.encode(target), specials.eos]
        check_length("text", len(labels), LONGEST, "take a shorter one")
        inputs = {
            "source": pad_grid([row], 0).to(device),
            "target": pad_grid([[specials.bos, *labels[:-1]]], specials.pad).to(device),
        }
        with torch.inference_mode():
            recording = model.record(inputs["source"], inputs["target"])
        check_finite(recording)
        drawn = show_positions(row, self.recipe.audio)
        tokens = self.target.tokens(labels)
        tokenized = TokenizedText(inputs, torch.tensor(labels, device=device), drawn.names, tokens)
        recording = recording._replace(
            source_tokens=tuple(drawn.names), target_tokens=tuple(tokens)
        )
        picture = Picture(drawn.pixels, drawn.rows, drawn.columns)
        return Inspection(text, target, tokenized, recording, self.target.tokens, target, picture)


def _as_loud(recording: Content, other: Content, factor: float) -> Int16[np.ndarray, " samples"]:
    """Return the samples of a recording, so many times as loud as another unless one is silent."""
    powers = [np.square(one, dtype=np.float64).mean(axis=1) for one in (recording, other)]
    # As in `nn/spectrogram.py`, silence does not count.
    volumes = [np.sqrt(np.square(power).sum() / max(power.sum(), 1e-9)) for power in powers]
    scaled = recording.reshape(-1) * (factor * volumes[1] / volumes[0] if all(volumes) else 1.0)
    samples: NDArray[np.int16] = scaled.round().clip(-32768, 32767).astype(np.int16)
    return samples
