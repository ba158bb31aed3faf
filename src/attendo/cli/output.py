"""How scores are printed."""

import json
from collections.abc import Mapping
from typing import Any


def print_scores(card: Mapping[str, Any], *, as_json: bool) -> None:
    """Print BLEU, chrF, signature and confidence interval, or the whole card as one JSON object."""
    if as_json:
        print(json.dumps(card, ensure_ascii=False))
        return
    low, high = card["bleu_interval"] or (card["bleu"], card["bleu"])
    print(f"BLEU      {card['bleu']:.2f}  (95 % confidence: {low:.2f} to {high:.2f})")
    print(f"chrF      {card['chrf']:.2f}")
    print(f"sentences {card['sentences']:,}")
    print(f"signature {card['signature']}")
    if "start" in card:
        _print_start(card["start"], card["bleu"])


def _print_start(start: Mapping[str, Any], bleu: float) -> None:
    """Print what a training that began with another run has gained, and what it has lost."""
    if "before" in start:
        print(f"before    {start['before']:.2f}  ({bleu - start['before']:+.2f} BLEU)")
    if "own_before" in start:
        lost = start["own_after"] - start["own_before"]
        print(f"on the test pairs of {start['run']}: {start['own_after']:.2f}  ({lost:+.2f} BLEU)")
