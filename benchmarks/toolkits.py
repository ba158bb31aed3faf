"""attendo beside whole toolkits in training, each by its own command: one machine, one table.

PYTHONPATH=src python3 benchmarks/toolkits.py --help
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from peers import check_comparable
from peers.toolkits import TOOLKITS, Job, train, write_texts
from script import run
from systems import compared

from attendo.config import Recipe, parse_overrides
from attendo.errors import ConfigError
from attendo.files import write_text
from attendo.lab.bench.results import Report, Row, print_report, settings_of, settled_recipe
from attendo.lab.bench.sentences import Sentences
from attendo.lab.bench.train import Training, enough_sentences
from attendo.lab.clock import Stretch, describe, speed, time_stretch
from attendo.reporter import Console

CPU = torch.device("cpu")

NOTES = [
    "same pairs, sizes, loss and places a batch; target tokens without padding, as each counts",
    "medians of all reports but the first; attendo × is ours divided by theirs",
    "ours is measured before the others and after them; its batches are made while it learns",
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    eole: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Python of an environment with EOLE.")
    ] = None,
    joeynmt: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Python of an environment with JoeyNMT.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="Recipe of the model.")] = "tiny",
    steps: Annotated[int, typer.Option(min=1, help="Steps per report.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Reports to measure.")] = 5,
    mean_length: Annotated[float, typer.Option(help="Mean number of tokens of a sentence.")] = 27.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Measure attendo and other toolkits on the CPU.

    \b
    Examples:
      python3 -m venv eole && eole/bin/pip install torch==2.13.0 eole==0.6.4 aiohttp
      python3 -m venv joey && joey/bin/pip install torch==2.13.0 joeynmt==2.3.0 importlib_metadata
      python3 benchmarks/toolkits.py --eole eole/bin/python --joeynmt joey/bin/python
    """  # noqa: D301 -- a backspace keeps click from rewrapping the examples
    pythons = {"EOLE": eole, "JoeyNMT": joeynmt}
    asked = {name: python.absolute() for name, python in pythons.items() if python}
    if not asked:
        raise ConfigError("nothing to compare with; give --eole or --joeynmt")
    for python in asked.values():
        if not python.exists():
            raise ConfigError(f"there is no {str(python)!r}; give the Python of an environment")
    resolved = settled_recipe(recipe, parse_overrides(settings or []))
    check_comparable(resolved)
    if eole and resolved.model.norm_order != "pre":
        raise ConfigError("EOLE has no post-norm; choose a recipe with model.norm_order = 'pre'")
    rows = compared(_measure(asked, resolved, steps, rounds, mean_length))
    chosen = settings_of(recipe, resolved, steps=steps, rounds=rounds, mean_length=mean_length)
    report = Report("train beside toolkits", describe(CPU), chosen, rows, NOTES)
    print_report(report, as_json=False)
    if json:
        write_text(json, report.to_json() + "\n")


def _measure(
    pythons: Mapping[str, Path], recipe: Recipe, steps: int, rounds: int, mean_length: float
) -> list[Row]:
    """Train with one toolkit after the other, and with attendo before and after them."""
    n_steps = steps * (rounds + 1)  # the first report does not count
    sentences = enough_sentences(recipe, n_steps, mean_length)
    runs = [(name, one) for name in pythons for one in TOOLKITS[name].precisions]
    with TemporaryDirectory() as folder, Console().bar("measuring", len(runs) + 2) as advance:
        job = Job(recipe, Path(folder), n_steps, steps)
        write_texts(sentences, recipe.tokenizer.vocabulary, job.folder)
        n_parameters, stretches = _ours(recipe, sentences, steps, rounds)
        advance(1, "attendo")
        rows = []
        for name, precision in runs:
            rows.append(train(name, pythons[name], job, precision))
            advance(1, rows[-1]["system"])
        stretches += _ours(recipe, sentences, steps, rounds)[1]
        advance(1, "attendo")
    return [{"system": "attendo", "parameters": n_parameters, **speed(stretches)}, *rows]


def _ours(
    recipe: Recipe, sentences: Sentences, steps: int, rounds: int
) -> tuple[int, list[Stretch]]:
    """Measure our own training; return the number of parameters and all stretches but the first."""
    training = Training(recipe, sentences, CPU)
    stretches = [time_stretch(training.step, steps, CPU) for _ in range(rounds + 1)]
    training.close()
    return training.n_parameters, stretches[1:]


if __name__ == "__main__":
    run(app)
