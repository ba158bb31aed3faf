"""Classification of recordings: frames of a spectrogram to a label."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32, Int16, UInt8
from numpy.typing import NDArray

from attendo.config import AudioConfig, DataConfig, Recipe
from attendo.data.batches import Layout
from attendo.data.builtin import Sentence
from attendo.data.corpus import Ragged, Vectors, ragged
from attendo.data.media.drawn import SOUNDS
from attendo.data.media.recordings import LabelledRecording, read_recording
from attendo.data.readers import Record
from attendo.nn.spectrogram import AudioEmbedding, LogMel
from attendo.tasks.media import Content, MediaClassification, Shown


class AudioClassification(MediaClassification):
    """A recording to a label."""

    name: ClassVar[str] = "audio-classification"
    models: ClassVar[str] = "classifiers of recordings"
    record_type: ClassVar[type[Any]] = LabelledRecording
    columns: ClassVar[tuple[str, ...]] = ("recording", "label", "file")
    inputs: ClassVar[tuple[str, ...]] = ("recording",)
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "recording.wav")
    examples: ClassVar[tuple[str, ...]] = tuple(f"drawn:{sound}-7" for sound in SOUNDS)

    @classmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return a drawn sound for each sentence of the built-in corpus."""
        seed = zlib.crc32(sentence.source.encode())
        sound = SOUNDS[seed % len(SOUNDS)]
        return LabelledRecording(f"drawn:{sound}-{seed}", sound)

    def read(self, reference: str) -> Content:
        """Read the samples of a recording, those of some frames at each position."""
        return read_positions(reference, self.recipe.audio)

    @property
    def vectors(self) -> Vectors:
        """Return the samples of a position."""
        return Vectors(self.recipe.audio.samples, "<i2")

    @classmethod
    def embedding(cls, recipe: Recipe) -> AudioEmbedding:
        """Build what embeds samples."""
        return AudioEmbedding(
            recipe.audio,
            recipe.augmentation,
            recipe.model.d_model,
            class_token=recipe.model.pooling == "first",
        )

    def layout(self, data: DataConfig, batch_tokens: int) -> Layout:
        """Return how batches are laid out, with other speeds in training."""
        return replace(super().layout(data, batch_tokens), vary=self.vary)

    def vary(
        self, columns: Mapping[str, Ragged], chance: np.random.Generator
    ) -> Mapping[str, Ragged]:
        """Change the speed of recordings, and the silence around them."""
        config, rate = self.recipe.augmentation, self.recipe.audio.rate
        if not (config.speed or config.silence):
            return columns
        recordings = list(columns["recording"].sequences())
        if config.speed:
            recordings = [change_speed(one, config.speed, chance) for one in recordings]
        if config.silence:
            recordings = [add_silence(one, config.silence, rate, chance) for one in recordings]
        return {**columns, "recording": ragged(recordings)}

    def show(self, content: Content) -> Shown:
        """Return the spectrogram, and the time of each position."""
        return show_positions(content, self.recipe.audio)


def read_positions(reference: str, audio: AudioConfig) -> Content:
    """Read the samples of a recording in rows, with silence at the end of the last one."""
    return in_positions(read_recording(reference, audio.rate), audio.samples)


def in_positions(
    samples: Int16[np.ndarray, " samples"], width: int
) -> Int16[np.ndarray, "positions width"]:
    """Divide samples into rows, with silence at the end of the last one."""
    return np.pad(samples, (0, -len(samples) % width)).reshape(-1, width)


QUIET = 30
"""Most noise (standard deviation) in silence that is added; full scale is 32,768."""


def add_silence(
    content: Int16[np.ndarray, "before width"],
    longest: float,
    rate: int,
    chance: np.random.Generator,
) -> Int16[np.ndarray, "after width"]:
    """Add near silence of up to so many seconds at both ends of a recording."""
    before, after = (draw_silence(longest, rate, chance) for _ in range(2))
    return in_positions(np.concatenate((before, content.reshape(-1), after)), content.shape[1])


def draw_silence(
    longest: float, rate: int, chance: np.random.Generator
) -> Int16[np.ndarray, " samples"]:
    """Return near silence of up to so many seconds."""
    n_samples, level = int(rate * chance.uniform(0, longest)), chance.uniform(0, QUIET)
    silence: NDArray[np.int16] = chance.normal(0, level, n_samples).astype(np.int16)
    return silence


def change_speed(
    content: Int16[np.ndarray, "before width"], most: float, chance: np.random.Generator
) -> Int16[np.ndarray, "after width"]:
    """Play a recording faster or slower, and so higher or lower, by up to a share of the speed."""
    samples = content.reshape(-1)
    speed = 1 + chance.uniform(-most, most)
    places = np.arange(0, len(samples) - 1, speed)
    changed = np.interp(places, np.arange(len(samples)), samples)
    return in_positions(changed.round().astype(np.int16), content.shape[1])


def show_positions(content: Content, audio: AudioConfig) -> Shown:
    """Return the spectrogram of a recording, with low bands at the bottom, and times in seconds."""
    samples = torch.from_numpy(content)[None].float() / 32768
    segments = torch.ones(samples.shape[:2], dtype=torch.long)
    mels = LogMel(audio)(samples, segments)[0].flatten(0, 1)
    times = [f"{number * audio.samples / audio.rate:.2f} s" for number in range(len(content))]
    return Shown(_pixels(mels.T.flip(0).numpy()), 1, len(content), times)


def _pixels(mels: Float32[np.ndarray, "mels frames"]) -> UInt8[np.ndarray, "mels frames"]:
    low, high = np.quantile(mels, (0.05, 0.995))
    pixels: NDArray[np.uint8] = (255 * ((mels - low) / max(high - low, 1e-6)).clip(0, 1)).astype(
        "u1"
    )
    return pixels
