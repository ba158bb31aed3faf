"""Recordings: wav files and folders of them, as samples of one channel at one rate."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int16

from attendo.data.media.drawn import draw_sound
from attendo.data.media.items import list_folder, read_item, shown
from attendo.errors import DataError

SUFFIXES = (".wav",)

LONGEST = 600
"""Seconds of a recording."""


class LabelledRecording(NamedTuple):
    """A recording and its label."""

    recording: str
    label: str

    @classmethod
    def list_items(cls, path: str) -> Iterator["LabelledRecording"] | None:
        """List what a folder holds; None for other files."""
        is_folder = Path(path).is_dir()
        return (cls(*item) for item in list_folder(Path(path), SUFFIXES)) if is_folder else None


class Transcribed(NamedTuple):
    """A recording and what is said in it."""

    recording: str
    text: str

    @classmethod
    def list_items(cls, path: str) -> Iterator["Transcribed"] | None:
        """List what a folder holds, with labels as texts; None for other files."""
        is_folder = Path(path).is_dir()
        return (cls(*item) for item in list_folder(Path(path), SUFFIXES)) if is_folder else None


def read_recording(reference: str, rate: int) -> Int16[np.ndarray, " samples"]:
    """Read a recording, mixed to one channel, with so many samples per second.

    Raises:
        DataError: There is no such file, or it is damaged or no wav file.
    """
    if reference.startswith("drawn:"):
        samples = draw_sound(reference.removeprefix("drawn:"), rate)
    else:
        content = read_item(reference)
        try:
            own_rate, channels = parse_wav(content)
            if not len(channels):
                raise ValueError("it has no samples")
            if len(channels) > LONGEST * own_rate:
                raise ValueError(f"it is longer than {LONGEST} seconds")
        except (ValueError, struct.error) as error:
            raise DataError(
                f"{shown(reference)} is not a wav file that can be read ({error}); expected PCM of "
                "8, 16, 24 or 32 bits, or floating point"
            ) from None
        samples = resample(channels.mean(axis=1), own_rate, rate)
    return (32767 * samples.clip(-1, 1)).round().astype(np.int16)


def parse_wav(content: bytes) -> tuple[int, Float32[np.ndarray, "samples channels"]]:
    """Return the rate of a wav file and its samples, from -1 to 1.

    The module `wave` of the standard library reads integers only.
    """
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError("no RIFF header")
    about: tuple[int, ...] | None = None
    place = 12
    while place + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, place)
        body = content[place + 8 : place + 8 + size]
        if name == b"fmt ":
            about = struct.unpack_from("<HHIIHH", body)
            if about[0] == 0xFFFE:  # extensible: the format is the beginning of an identifier
                about = (struct.unpack_from("<H", body, 24)[0], *about[1:])
        elif name == b"data" and about is not None:
            form, n_channels, rate, _, _, bits = about
            if not n_channels or not rate:
                raise ValueError("no channels, or no rate")
            return rate, _numbers(body, form, bits, n_channels)
        place += 8 + size + size % 2
    raise ValueError("no samples")


def _numbers(
    body: bytes, form: int, bits: int, n_channels: int
) -> Float32[np.ndarray, "samples channels"]:
    n_bytes = bits // 8
    body = body[: len(body) // (n_bytes * n_channels or 1) * n_bytes * n_channels]
    if (form, bits) == (1, 8):  # the only one without a sign
        numbers = np.frombuffer(body, np.uint8) / np.float32(128) - np.float32(1)
    elif (form, bits) == (1, 24):
        whole = np.zeros((len(body) // 3, 4), np.uint8)
        whole[:, 1:] = np.frombuffer(body, np.uint8).reshape(-1, 3)
        numbers = whole.view("<i4")[:, 0] / np.float32(2**31)
    elif form == 1 and bits in (16, 32):
        numbers = np.frombuffer(body, f"<i{n_bytes}") / np.float32(2 ** (bits - 1))
    elif form == 3 and bits in (32, 64):
        numbers = np.nan_to_num(np.frombuffer(body, f"<f{n_bytes}"))
    else:
        raise ValueError(f"format {form} with {bits} bits")
    return numbers.astype(np.float32).reshape(-1, n_channels)


def resample(
    samples: Float32[np.ndarray, " before"], rate: int, wanted: int
) -> Float32[np.ndarray, " after"]:
    """Return the same sound at another rate: its spectrum, cut off or continued with zeros."""
    if rate == wanted:
        return samples
    n_after = max(1, round(len(samples) * wanted / rate))
    spectrum = np.fft.rfft(samples)
    return (np.fft.irfft(spectrum[: n_after // 2 + 1], n_after) * (n_after / len(samples))).astype(
        np.float32
    )


def write_wav(path: Path, samples: Int16[np.ndarray, " samples"], rate: int) -> None:
    """Write samples of one channel as a wav file."""
    import wave

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
