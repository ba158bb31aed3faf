"""The demo: train on the built-in corpus, translate, score, draw attention."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attendo.data.builtin import sentences
from attendo.engines import load
from attendo.look.maps import draw_look
from attendo.look.record import look
from attendo.reporter import Reporter
from attendo.training.run import train_run

EXAMPLE = (
    "The brothers whom the teacher often helps want to sell the old car "
    "because it is too expensive."
)
"""The sentence of the attention map: it has reordering and agreement over a distance."""


class Example(NamedTuple):
    """A test sentence, its translation by the model, and the reference."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The results of the demo."""

    card: dict[str, Any]
    examples: list[Example]
    heatmap: Path
    curve: Path


def demonstrate(
    folder: Path, device: torch.device, reporter: Reporter, settings: dict[str, Any]
) -> Demonstration:
    """Train the recipe `demo`, or continue its run, and translate test sentences."""
    card = train_run("demo", settings, folder, device, resume=True, reporter=reporter)
    translator = load(folder, str(device))
    unseen = list(islice(sentences(seed=3, held_out=True), 5))
    translations = translator.translate([sentence.source for sentence in unseen])
    examples = [
        Example(sentence.source, translation, sentence.target)
        for sentence, translation in zip(unseen, translations, strict=True)
    ]
    heatmap = folder / "attention.png"
    draw_look(look(translator, EXAMPLE), heatmap)
    return Demonstration(card, examples, heatmap, folder / "curve.png")
