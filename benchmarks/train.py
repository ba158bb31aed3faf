"""attendo beside its peers in training: the same pairs, the same sizes, one table.

PYTHONPATH=src python3 benchmarks/train.py --help
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from peers import check_comparable
from peers.learner import Compiling, Peer, Way
from peers.marian import Marian
from peers.padded import PaddedBatch, padded_batches
from peers.torch_nn import TorchTransformer
from script import run
from systems import Build, Ours, compared, measure

from attendo.bundle import find_device
from attendo.config import Recipe, choose, parse_overrides
from attendo.files import write_text
from attendo.lab.bench.results import Report, Row, print_report, settings_of, settled_recipe
from attendo.lab.bench.sentences import Sentences, numbered_tokenizer
from attendo.lab.bench.train import CPU, GPU, enough_sentences
from attendo.lab.clock import describe
from attendo.reporter import Console

MODELS = {"marian": Marian, "torch": TorchTransformer}
NAMES = {"marian": "Marian", "torch": "torch.nn"}

NOTES = [
    "Marian: Hugging Face's MarianMTModel; torch.nn: nn.Transformer; attendo ×: ours divided by it",
    "same pairs, sizes and loss; target tokens without padding; medians of all rounds",
    "attendo reads, packs and copies its batches while it learns; the peers' are made beforehand",
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(  # noqa: PLR0913 -- options are arguments
    recipe: Annotated[str, typer.Option(help="Recipe of the model.")] = "paper-base",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    batch_tokens: Annotated[
        list[int] | None,
        typer.Option(help="Target tokens per batch, with padding; may be repeated."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to measure.")] = None,
    warmup: Annotated[
        int | None, typer.Option(min=1, help="Steps before measuring (attendo).")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Measurements, of which the median counts.")
    ] = 5,
    mean_length: Annotated[float, typer.Option(help="Mean number of tokens of a sentence.")] = 27.0,
    peers: Annotated[
        str, typer.Option(help="marian, torch or both, separated by commas.")
    ] = "marian,torch",
    eager_peers: Annotated[
        bool,
        typer.Option(
            "--eager-peers/--no-eager-peers", help="Measure the peers without compilation, too."
        ),
    ] = True,
    precisions: Annotated[
        str | None, typer.Option(help="Precisions of the peers (GPU: bf16; CPU: fp32,bf16).")
    ] = None,
    compile_peers: Annotated[
        bool | None,
        typer.Option(
            "--compile-peers/--no-compile-peers",
            help="Measure the peers compiled, too (on GPUs: yes).",
        ),
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option("--dynamic/--static", help="One compiled program for all shapes, or each."),
    ] = True,
    compile_mode: Annotated[str, typer.Option(help="The mode of torch.compile.")] = "default",
    multiple: Annotated[
        int | None,
        typer.Option(min=1, help="Round the peers' widths up (1; compiled for each shape: 8)."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Measure training steps of attendo and of its peers."""
    where = find_device(device)
    usual = GPU if where.type == "cuda" else CPU
    names = [name.strip() for name in peers.split(",") if name.strip()]
    for name in names:
        choose(MODELS, name, "--peers")
    is_gpu = where.type == "cuda"
    compilings: list[Compiling | None] = [None] if eager_peers else []
    if compile_peers or (compile_peers is None and is_gpu):
        compilings.append(Compiling(dynamic, compile_mode))
    asked_precisions = (precisions or ("bf16" if is_gpu else "fp32,bf16")).split(",")
    ways = [Way(one, compiling) for compiling in compilings for one in asked_precisions]
    steps, warmup = steps or usual.steps, warmup or usual.warmup
    overrides = {**usual.overrides, **parse_overrides(settings or [])}
    resolved = settled_recipe(recipe, overrides)
    check_comparable(resolved)

    rows: list[Row] = []
    for budget in batch_tokens or [resolved.training.batch_tokens]:
        sized = settled_recipe(recipe, {**overrides, "training.batch_tokens": budget})
        sentences = enough_sentences(sized, steps + warmup, mean_length)
        builds: list[Build] = [partial(Ours, sized, sentences, where, warmup)]
        for way in ways:
            batches = _batches(sized, sentences, way, multiple, steps)
            builds += [partial(_peer, name, batches, sized, where, way) for name in names]
        found = compared(measure(builds, steps, rounds, where, Console()))
        rows += [{**row, "batch_tokens": budget} for row in found]
    asked: dict[str, Any] = {"steps": steps, "rounds": rounds, "mean_length": mean_length}
    asked |= {"dynamic": dynamic, "compile_mode": compile_mode, "multiple": multiple}
    chosen = settings_of(recipe, resolved, **asked)
    report = Report("train beside peers", describe(where), chosen, rows, NOTES)
    print_report(report, as_json=False)
    if json:
        write_text(json, report.to_json() + "\n")


def _batches(
    recipe: Recipe, sentences: Sentences, way: Way, multiple: int | None, count: int
) -> list[PaddedBatch]:
    """Build batches for the peers; with few shapes where each shape is compiled."""
    multiple = multiple or (8 if way.compiling and not way.compiling.is_dynamic else 1)
    specials = numbered_tokenizer(recipe.tokenizer.vocabulary).specials
    return padded_batches(sentences, specials, recipe.training.batch_tokens, multiple, count)


def _peer(
    name: str,
    batches: list[PaddedBatch],
    recipe: Recipe,
    device: torch.device,
    way: Way,
) -> Peer:
    torch.manual_seed(recipe.training.seed)
    specials = numbered_tokenizer(recipe.tokenizer.vocabulary).specials
    title = f"{NAMES[name]}, {way.name}"
    return Peer(title, MODELS[name](recipe, specials), batches, recipe, device, way)


if __name__ == "__main__":
    run(app)
