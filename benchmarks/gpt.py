"""attendo beside its peers in training GPT-2: the same sizes, one table.

PYTHONPATH=src python3 benchmarks/gpt.py --help
"""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from peers.gpt import CompactGpt, GptPeer, HuggingFaceGpt
from script import run
from systems import Build, Ours, compared, measure
from torch import Tensor

from attendo.bundle import find_device
from attendo.config import Recipe, choose, parse_overrides
from attendo.data.batches import Position, stream
from attendo.files import write_text
from attendo.lab.bench.results import Report, print_report, settings_of, settled_recipe
from attendo.lab.bench.sentences import Sentences, numbered_task
from attendo.lab.bench.train import CPU, GPU, enough_sentences
from attendo.lab.clock import describe
from attendo.reporter import Console

MODELS = {"compact": CompactGpt, "huggingface": HuggingFaceGpt}
NAMES = {"compact": "nanoGPT-style", "huggingface": "Hugging Face GPT-2"}

NOTES = [
    "same sizes and tokens, no dropout; medians of all rounds; the peers have GELU, fp32 residuals",
    "attendo reads and copies its batches while it learns; the peers' are on the device beforehand",
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    recipe: Annotated[str, typer.Option(help="Recipe of the model.")] = "gpt2-small",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    batch_tokens: Annotated[int | None, typer.Option(min=16, help="Tokens per batch.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to measure.")] = None,
    warmup: Annotated[int | None, typer.Option(min=1, help="Steps before measuring.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements; the median counts.")] = 5,
    peers: Annotated[
        str, typer.Option(help="compact, huggingface or both, separated by commas.")
    ] = "compact,huggingface",
    compile_peers: Annotated[
        bool, typer.Option("--compile-peers/--no-compile-peers", help="Compile the peers.")
    ] = True,
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
    steps, warmup = steps or usual.steps, warmup or usual.warmup
    overrides = {**usual.overrides, **parse_overrides(settings or [])}
    overrides |= {"training.batch_tokens": batch_tokens} if batch_tokens else {}
    resolved = settled_recipe(recipe, overrides)
    sentences = enough_sentences(resolved, steps + warmup, resolved.data.max_length / 2)
    builds: list[Build] = [partial(Ours, resolved, sentences, where, warmup)]
    builds += [
        partial(_peer, name, sentences, resolved, where, compiled=compile_peers) for name in names
    ]
    rows = compared(measure(builds, steps, rounds, where, Console()))
    chosen = settings_of(recipe, resolved, steps=steps, rounds=rounds)
    report = Report("train GPT-2 beside peers", describe(where), chosen, rows, NOTES)
    print_report(report, as_json=False)
    if json:
        write_text(json, report.to_json() + "\n")


def _peer(
    name: str, sentences: Sentences, recipe: Recipe, device: torch.device, *, compiled: bool
) -> GptPeer:
    torch.manual_seed(recipe.training.seed)
    multiple = recipe.model.vocabulary_multiple
    vocabulary = -(-recipe.tokenizer.vocabulary // multiple) * multiple
    model = MODELS[name](recipe, vocabulary)
    return GptPeer(NAMES[name], model, _batches(sentences, recipe), device, compiled=compiled)


def _batches(sentences: Sentences, recipe: Recipe, count: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Return some of the batches that attendo is given."""
    task = numbered_task(recipe)
    layout = task.layout(recipe.data, recipe.training.batch_tokens)
    batches = stream(sentences.corpus(task.columns), layout, recipe.training.seed, Position())
    return [(batch.inputs["text"].ids, batch.labels) for _, batch in islice(batches, count)]


if __name__ == "__main__":
    run(app)
