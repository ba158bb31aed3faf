"""The parts of the Python API that need training: `train`, and the score card of a run.

What a trained model can do is in `Translator`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attendo.bundle import find_device, read_score_card
from attendo.engines import load_engine
from attendo.metrics import describe_scores, to_html
from attendo.reporter import Console
from attendo.training.run import train_run


class ScoreCard(Mapping[str, Any]):
    """The contents of a run's `scorecard.json`: scores on its test pairs, and how it was trained.

    A read-only mapping with the keys of the file. A notebook displays it as a table.

    >>> card = attendo.load_score_card("runs/demo")
    >>> sorted(card)[:4]
    ['bleu', 'bleu_interval', 'bleu_lowercase', 'checkpoint']
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ScoreCard({self._values!r})"

    def _repr_html_(self) -> str:
        made = {
            "parameters": f"{self['parameters']:,}" if "parameters" in self else None,
            "training pairs": f"{self['training_pairs']:,}" if "training_pairs" in self else None,
            "training steps": f"{self['steps']:,}" if "steps" in self else None,
            "training seconds": self.get("training_seconds"),
            "hardware": self.get("hardware"),
        }
        scores = describe_scores(self) if "bleu" in self else {}
        return to_html(scores | {key: value for key, value in made.items() if value is not None})


def load_score_card(run: str | Path) -> ScoreCard:
    """Read the score card of a run.

    Args:
        run: The run folder.

    Raises:
        BundleError: There is no score card, or it is damaged.

    >>> 0 <= attendo.load_score_card("runs/demo")["bleu"] <= 100
    True
    """
    return ScoreCard(read_score_card(Path(run)))


def train(
    recipe: str = "auto",
    *,
    out: str | Path,
    source: str | None = None,
    target: str | None = None,
    pairs: str | None = None,
    from_run: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    device: str = "auto",
) -> Any:
    """Train a model, write it to a run folder and load it.

    The result is a `Translator`, or what else the task of the recipe needs: a `Generator` for a
    language model, a `TextClassifier` for classification.

    Args:
        recipe: The name of a recipe (`attendo recipes` lists them) or the path of a TOML file.
        out: The run folder to write.
        source: A text file with one source sentence per line.
        target: A text file with their translations, line by line.
        pairs: A .tsv or .jsonl file with both sides, instead of source and target.
        from_run: A trained run to start from: its vocabulary, its architecture and its parameters.
        settings: Settings that replace those of the recipe, such as {"training.steps": 2000}.
        resume: Continue the run in `out`, if there is one.
        device: auto, cpu, cuda or cuda:1.

    Raises:
        AttendoError: A setting, a file or the run folder cannot be used.

    >>> small = {"model.d_model": 32, "model.n_heads": 2, "training.steps": 3}
    >>> model = attendo.train("demo", out="runs/small", settings={"data.builtin": 400} | small)
    >>> len(model.translate(["The dog sleeps.", "The cat sings."], beam=1))
    2
    """
    given = {
        "data.source": source,
        "data.target": target,
        "data.pairs": pairs,
        "start": None if from_run is None else str(from_run),
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
    return load_engine(out, device)
