"""The training half of the Python API; the using half is `Translator`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attendo.bundle import find_device
from attendo.engines import Translator, load
from attendo.reporter import Console
from attendo.training.run import train_run


def train(
    recipe: str = "auto",
    *,
    out: str | Path,
    source: str | None = None,
    target: str | None = None,
    pairs: str | None = None,
    start: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    device: str = "auto",
) -> Translator:
    """Train a translator and load it.

    Args:
        recipe: A preset's name or the path of a TOML file.
        out: The run folder to write.
        source: A text file with one source sentence a line.
        target: A text file with the translations, line by line.
        pairs: A .tsv or .jsonl file with both sides, instead of source and target.
        start: A trained run to begin with: its vocabulary, its model and its weights.
        settings: Settings that replace the recipe's, such as {"training.steps": 2000}.
        resume: Go on with the run in `out`, if there is one.
        device: auto, cpu, cuda or cuda:1.
    """
    given = {
        "data.source": source,
        "data.target": target,
        "data.pairs": pairs,
        "start": None if start is None else str(start),
    }
    overrides = {key: path for key, path in given.items() if path is not None}
    train_run(
        recipe,
        {**overrides, **(settings or {})},
        Path(out),
        find_device(device),
        resume=resume,
        reporter=Console(),
    )
    return load(out, device)
