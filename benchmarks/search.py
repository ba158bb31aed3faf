"""Search in slots beside the plain search: the same real sentences, outputs compared, both timed.

PYTHONPATH=src python3 benchmarks/search.py --help
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from script import run

from attendo.cli.output import print_table
from attendo.data.readers import read_lines
from attendo.engines import Translator, load
from attendo.engines.pytorch import search_in_slots
from attendo.lab.clock import describe, timed

Precision = Literal["fp32", "bf16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A trained run.")],
    input: Annotated[str, typer.Option(help="Real sentences, one a line.")],
    sentences: Annotated[int, typer.Option(min=1, help="Sentences to compare.")] = 1000,
    beam: Annotated[int, typer.Option(min=2, help="Beam size.")] = 4,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences at once.")] = 512,
) -> None:
    """Compare outputs in fp32 and bf16, and time the whole input; needs a GPU."""
    translator = load(folder, "cuda")
    texts = [line for line in read_lines(input) if line.strip()]
    compared = list(islice(texts, sentences))
    rows = []
    for precision in DTYPES:
        translator.model.to(DTYPES[precision])
        search_in_slots(translator.model)  # anew: caches have the precision that the model had
        for n_beams in (1, beam):
            rows.append((precision, *_compare(translator, compared, n_beams, batch_size)))
    print(describe(translator.device))
    columns = ("precision", "beam", "sentences", "equal outputs", "slots, s", "plain search, s")
    print_table([columns, *rows])
    options = _options(beam, batch_size)
    translator.translate(texts, **options)  # records its steps
    _, seconds = timed(lambda: translator.translate(texts, **options), translator.device)
    print(f"bf16, beam {beam}, all {len(texts):,} lines, text to text: {seconds:.2f} s")


def _compare(
    translator: Translator, texts: Sequence[str], n_beams: int, batch_size: int
) -> tuple[str, ...]:
    """Translate with both, and return what was found: a row of the table."""
    options = _options(n_beams, batch_size)

    def translate() -> tuple[list[str], float]:
        found: list[str] = []
        _, seconds = timed(
            lambda: found.extend(translator.translate(texts, **options)), translator.device
        )
        return found, seconds

    translate()  # records its steps
    slots, seconds = translate()
    pools, translator.model.pools = translator.model.pools, None
    translate()  # compiles its kernels
    plain, plain_seconds = translate()
    translator.model.pools = pools
    n_equal = sum(one == other for one, other in zip(slots, plain, strict=True))
    figures = (n_beams, len(texts), n_equal, f"{seconds:.2f}", f"{plain_seconds:.2f}")
    return tuple(map(str, figures))


def _options(n_beams: int, batch_size: int) -> dict[str, object]:
    strategy = {"strategy": "greedy"} if n_beams == 1 else {"strategy": "beam", "beam": n_beams}
    return {**strategy, "batch_size": batch_size}


if __name__ == "__main__":
    run(app)
