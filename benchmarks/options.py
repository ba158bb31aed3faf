"""What each option of a language model gains: the same training with one option changed at a time.

PYTHONPATH=src python3 benchmarks/options.py --help
"""

import math
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from script import run

from attendo.bundle import find_device
from attendo.config import choose, parse_overrides
from attendo.reporter import Console
from attendo.training.run import train_run

VARIANTS: dict[str, dict[str, Any]] = {
    "recipe": {},
    "AdamW": {"training.optimizer": "adamw", "training.learning_rate": 1e-3},
    "learned positions": {"model.positions": "learned"},
    "sinusoidal positions": {"model.positions": "sinusoidal"},
    "GELU": {"model.feed_forward": "gelu"},
    "squared ReLU": {"model.feed_forward": "relu2"},
    "RMSNorm": {"model.norm": "rms"},
    "query-key norm": {"model.query_key_norm": True},
    "output projections from 1/√N": {"model.initialisation": "scaled"},
    "output projections from zero": {"model.initialisation": "zero"},
    "logit cap 30": {"model.logit_cap": 30.0},
    "windows of 64 in 3 of 4 layers": {
        "model.attention_pattern": ["window", "window", "window", "dot"],
        "model.window.reach": 64,
        "model.window.n_global": 0,
    },
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[str, typer.Option(help="Text for training.")],
    valid_data: Annotated[str, typer.Option(help="Text for the loss that is compared.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the runs.")],
    recipe: Annotated[str, typer.Option(help="Recipe of a language model.")] = "shakespeare",
    only: Annotated[list[str] | None, typer.Option(help="Only this variant.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 1.")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of all variants.")
    ] = None,
) -> None:
    """Train each variant with each seed; print the losses of the kept checkpoints as a table.

    What is finished is not done again: the same command continues.
    """
    given = parse_overrides(settings or [])
    given |= {
        "data.files": [data],
        "data.valid_files": [valid_data],
        "data.test_files": [valid_data],
    }
    names = ["recipe", *(only or list(VARIANTS)[1:])]
    variants = {name: choose(VARIANTS, name, "--only") for name in names}
    losses: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(1, seeds + 1):
        for name in names:
            folder = out / f"{name.replace(' ', '-').replace('/', '-')}-{seed}"
            overrides = {**given, **variants[name], "training.seed": seed}
            card = train_run(
                recipe, overrides, folder, find_device(device), resume=True, reporter=Console()
            )
            losses[name].append(math.log(card["perplexity"]))
            seconds[name].append(card["training_seconds"])
    print(f"{'':<30} loss   gain    time   each seed")
    for name in names:
        gain = mean(losses["recipe"]) - mean(losses[name])
        slower = mean(seconds[name]) / mean(seconds["recipe"])
        each = " ".join(f"{one:.3f}" for one in losses[name])
        print(f"{name:<30} {mean(losses[name]):.3f}  {gain:+.3f}  × {slower:.2f}  {each}")


if __name__ == "__main__":
    run(app)
