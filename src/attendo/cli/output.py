"""Printing scores."""

import json
from collections.abc import Mapping
from typing import Any

from attendo.metrics import describe_scores


def print_scores(card: Mapping[str, Any], *, as_json: bool) -> None:
    """Print BLEU, chrF, signature and confidence interval, or the whole card as JSON."""
    if as_json:
        print(json.dumps(card, ensure_ascii=False))
        return
    for name, value in describe_scores(card).items():
        print(f"{name:<9} {value}")
    if "start" in card:
        _print_start(card["start"], card["bleu"])


def _print_start(start: Mapping[str, Any], bleu: float) -> None:
    """Print the gain of a training that started from another run, and the loss on its pairs."""
    if "before" in start:
        print(f"before    {start['before']:.2f}  ({bleu - start['before']:+.2f} BLEU)")
    if "own_before" in start:
        lost = start["own_after"] - start["own_before"]
        print(f"on the test pairs of {start['run']}: {start['own_after']:.2f}  ({lost:+.2f} BLEU)")
