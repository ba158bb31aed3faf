"""Images and sounds drawn by ourselves, so that everything can be tried without any data.

A name such as `circle-17` determines what is drawn: a shape, and the seed of everything else.
"""

import math
import re

import numpy as np
from jaxtyping import Float32, UInt8

from attendo.errors import DataError

SHAPES = ("circle", "cross", "square", "triangle")
SOUNDS = ("buzz", "falling", "high", "low", "rising")

FINER = 4
"""Images are drawn so many times larger, and scaled down, for smooth edges."""


def _parse(name: str, known: tuple[str, ...]) -> tuple[list[str], np.random.Generator]:
    words, _, seed = name.rpartition("-")
    is_seed = re.fullmatch("[0-9]{1,18}", seed)
    if not words.split() or not is_seed or any(word not in known for word in words.split()):
        raise DataError(f"'drawn:{name}' cannot be drawn; expected drawn:{known[0]}-17")
    return words.split(), np.random.default_rng(int(seed))


def draw_image(name: str, size: int) -> UInt8[np.ndarray, "H W"]:
    """Draw the outline of a shape at a random place, size and angle, with some noise."""
    from PIL import Image, ImageDraw

    (shape, *_), chance = _parse(name, SHAPES)
    side = FINER * size
    radius = side * chance.uniform(0.22, 0.36)
    x, y = side / 2 + chance.uniform(-0.1, 0.1, 2) * side
    turn = chance.uniform(-0.4, 0.4)
    width = max(1, round(side * chance.uniform(0.04, 0.08)))
    canvas = Image.new("L", (side, side), 0)
    pen, light = ImageDraw.Draw(canvas), int(chance.integers(160, 256))

    def point(angle: float) -> tuple[float, float]:
        return x + radius * math.cos(angle + turn), y + radius * math.sin(angle + turn)

    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=light, width=width)
    elif shape == "cross":
        for angle in (0.0, math.pi / 2):
            pen.line((*point(angle), *point(angle + math.pi)), fill=light, width=width)
    else:
        n = 4 if shape == "square" else 3
        corners = [point(2 * math.pi * k / n) for k in range(n)]
        pen.line([*corners, corners[0], corners[1]], fill=light, width=width, joint="curve")
    small = np.asarray(canvas.resize((size, size), Image.Resampling.BOX), dtype=np.float64)
    noisy = small + chance.normal(0, 12, small.shape)
    return noisy.clip(0, 255).astype(np.uint8)


def draw_sound(name: str, rate: int) -> Float32[np.ndarray, " samples"]:
    """Draw one or more tones with gaps between them, each a word, at a random pitch and speed."""
    words, chance = _parse(name, SOUNDS)
    pitch = chance.uniform(0.85, 1.15) * min(1.0, rate / 8000)
    parts = []
    for word in words:
        parts += [_tone(word, pitch, rate, chance), np.zeros(int(rate * chance.uniform(0.02, 0.1)))]
    sound = np.concatenate(parts) * chance.uniform(0.3, 0.8)
    return (sound + chance.normal(0, 0.005, sound.shape)).astype(np.float32)


def _tone(
    word: str, pitch: float, rate: int, chance: np.random.Generator
) -> Float32[np.ndarray, " samples"]:
    n = int(rate * chance.uniform(0.15, 0.3))
    first, last = {
        "low": (300, 300), "high": (1600, 1600), "rising": (400, 1400), "falling": (1400, 400),
        "buzz": (150, 150),
    }[word]  # fmt: skip
    phase = np.cumsum(2 * np.pi * pitch * np.linspace(first, last, n) / rate)
    wave = np.sign(np.sin(phase)) / 2 if word == "buzz" else np.sin(phase)
    return (wave * np.hanning(n)).astype(np.float32)
