"""attendo plan: what a recipe costs before it is trained."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import Settings, between

if TYPE_CHECKING:
    from attendo.training.plan import Plan

Row = tuple[str, str, str]
"""A title, a value, a remark."""


def plan(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A preset ('attendo recipes') or a .toml file.")
    ],
    gpus: Annotated[
        int, typer.Option(metavar="N", min=1, help="Also print the time on this many GPUs.")
    ] = 1,
    tokens: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            callback=between(1.0, 1e18),
            help="Tokens to train on, such as 300e9, instead of the steps of the recipe.",
        ),
    ] = None,
    settings: Settings = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print parameters, FLOPs, memory and time of a recipe before it is trained.

    The number of parameters is exact and nothing is allocated for them. The
    vocabulary is that of tokenizer.vocabulary, or of the tokenizer that
    tokenizer.path names if it exists; no data is needed.

    \b
    Examples:
      attendo plan gpt3-175b --gpus 1024
      attendo plan paper-base --tokens 4.5e9 --json
      attendo plan small --set model.decoder_layers=96
    """
    import json as json_
    from pathlib import Path

    from attendo.config import load_recipe, parse_overrides
    from attendo.training.plan import make_plan

    loaded = load_recipe(recipe, parse_overrides(settings or []))
    made = make_plan(loaded, None if tokens is None else int(tokens))
    if json:
        print(json_.dumps({"recipe": Path(recipe).stem, **made.to_dict(gpus)}))
        return
    print(f"{Path(recipe).stem}: {made.task}, {made.family}\n")
    for title, value, remark in _rows(made, gpus):
        print(f"{title:<34}{value:>18}  {remark}".rstrip())


def _rows(made: "Plan", n_gpus: int) -> Iterator[Row]:
    yield from _size_rows(made)
    yield "", "", ""
    yield from _memory_rows(made)
    yield "", "", ""
    yield from _time_rows(made, n_gpus)


def _size_rows(made: "Plan") -> Iterator[Row]:
    yield "parameters", f"{made.parameters:,}", f"vocabulary of {made.vocabulary:,}"
    for name, count in made.parts.items():
        remark = "shares the matrix of the embedding" if not count else ""
        if name in made.n_layers:
            remark = f"{made.n_layers[name]:,} layers of {made.layer_parameters[name]:,}"
        yield f"  {name.replace('_', ' ')}", f"{count:,}", remark
    yield "of these, in matrix products (N)", f"{made.matrix_parameters:,}", "without tables"


def _memory_rows(made: "Plan") -> Iterator[Row]:
    from attendo.training.plan import BF16, FP32, GPU, GPU_BYTES, INT8

    memory = made.memory
    yield "memory for training", _bytes(memory.total), ""
    yield "  parameters, fp32", _bytes(memory.parameters), ""
    yield "  gradients", _bytes(memory.gradients), ""
    yield "  optimizer", _bytes(memory.moments), ""
    yield "  bf16 copies", _bytes(memory.half_precision), "on a GPU"
    here = "as in the recipe"
    stored, recomputed = _bytes(memory.activations_stored), _bytes(memory.activations_recomputed)
    yield "  activations, stored", stored, "" if memory.is_recomputed else here
    if made.n_layers:
        yield "  activations, recomputed", recomputed, here if memory.is_recomputed else ""
    each = f"of {GPU_BYTES / 1e9:.0f} GB"
    fits = f"fits on one {each}" if made.fewest_gpus == 1 else f"{each} each, divided evenly"
    yield f"  fewest {GPU}s", f"{made.fewest_gpus:,}", fits
    yield "memory for inference", "", ""
    for name, width in (("fp32", FP32), ("bf16", BF16), ("int8", INT8)):
        yield f"  parameters, {name}", _bytes(made.inference_bytes(width)), ""
    if made.cache_values_per_token:
        cache = _bytes(made.cache_values_per_token * BF16)
        yield "  keys and values, bf16", cache, "for each token"


def _time_rows(made: "Plan", n_gpus: int) -> Iterator[Row]:
    from attendo.training.plan import GPU, GPU_FLOPS, GPU_SHARE

    formula = f"6 N + 12 d_model T for each attention, T = {made.context:,}"
    yield "FLOPs per token", f"{made.flops_per_token:.3g}", formula
    yield "tokens", f"{made.tokens:,}", ""
    yield "FLOPs of the training", f"{made.flops:.3g}", ""
    if made.memory.is_recomputed:
        yield "  with recomputation", f"{made.computed_flops:.3g}", "a third more"
    speed = f"{GPU_SHARE:.0%} of {GPU_FLOPS / 1e12:.0f} TFLOP/s in bf16"
    yield f"time on one {GPU}", _time(made.seconds()), speed
    if n_gpus > 1:
        yield f"time on {n_gpus:,} {GPU}s", _time(made.seconds(n_gpus)), "without losses"


def _bytes(n: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n = n / 1000  # type: ignore[assignment]
    return f"{n:,.0f} TB" if n >= 1000 else f"{n:.3g} TB"


def _time(seconds: float) -> str:
    for unit, size in (("years", 365.25 * 86400), ("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"
