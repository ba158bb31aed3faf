"""Text to text on a CPU: attendo's CTranslate2 engine, bare CTranslate2, and Marian's `generate`.

PYTHONPATH=src python3 benchmarks/engines.py --help
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import ctranslate2
import torch
import transformers
import typer
from script import run

from attendo.bundle import save_parameters, save_task
from attendo.config import parse_overrides
from attendo.conversions import FOLDER
from attendo.converted import count_threads
from attendo.data.readers import read_lines
from attendo.engines import CTranslate2Translator, load_translator
from attendo.errors import ConfigError
from attendo.files import write_text
from attendo.interop import export_model
from attendo.lab.bench.results import Report, Row, print_report, settings_of, settled_recipe
from attendo.lab.clock import describe, spread, timed
from attendo.models import Transformer
from attendo.reporter import Console
from attendo.tasks import Translation
from attendo.text import split_sentences, train_tokenizer
from attendo.text.streams import Streaming, segments

LENGTH = 27
"""Tokens of every output of an untrained model: about the mean of news."""

NOTES = [
    "attendo and Marian go from text to text, bare CTranslate2 from tokens to tokens",
    "CPU s is the time of all threads together, which other work on the machine changes least",
    "all have the same sentences, sorted by length; tokens are those that CTranslate2 writes",
]
UNTRAINED = (
    f"untrained parameters, except that the output layer reads from the position when {LENGTH} "
    "tokens have been written: then it ends every output, in all systems"
)

BARE = "CTranslate2 int8"

CPU = torch.device("cpu")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    input: Annotated[str, typer.Option(help="Real sentences, one a line.")],
    trained: Annotated[
        Path | None, typer.Option("--run", help="A trained run, instead of an untrained model.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="Recipe of the untrained model.")] = "paper-base",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences to translate.")] = 500,
    beam: Annotated[
        list[int] | None, typer.Option(min=1, help="Beam sizes; 1 is greedy. May be repeated.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences per batch.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each case.")] = 3,
    marian: Annotated[bool, typer.Option(help="Measure Marian, too.")] = True,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Measure all systems in turns, with as many threads as OMP_NUM_THREADS says."""
    torch.set_num_threads(count_threads())
    lines = [line for line in read_lines(input) if line.strip()]
    found = chain.from_iterable(map(split_sentences, lines))
    texts = [sentence.text for sentence in islice(found, sentences)]
    if not texts:
        raise ConfigError(f"--input {input!r} has no text in it")
    with TemporaryDirectory() as name:
        folder = trained or _write_untrained(recipe, settings or [], lines, Path(name) / "run")
        translator = load_translator(folder, engine="ctranslate2", precision="int8")
        assert isinstance(translator, CTranslate2Translator)
        systems = {"attendo int8": _ours(translator, batch_size)}
        systems[BARE] = _bare(translator, texts, batch_size)
        if marian:
            export_model(folder, Path(name) / "marian")
            systems["Marian"] = _marian(Path(name) / "marian", translator, texts, batch_size)
        rows: list[Row] = []
        sizes = beam or [1, 4]
        with Console().bar("translating", len(sizes) * rounds * len(systems)) as advance:
            for size in sizes:
                rows += _contest(systems, texts, size, rounds, lambda name: advance(1, name))
    asked = {"sentences": len(texts), "rounds": rounds, "batch_size": batch_size}
    chosen = settings_of(recipe, translator.recipe, **asked, threads=count_threads())
    notes = NOTES if trained else [UNTRAINED, *NOTES]
    report = Report("engines", describe(CPU), chosen, rows, notes)
    print_report(report, as_json=False)
    if json:
        write_text(json, report.to_json() + "\n")


System = Callable[[Sequence[str], int], Any]
"""Translates texts with a beam."""


def _contest(
    systems: dict[str, System],
    texts: Sequence[str],
    beam: int,
    rounds: int,
    done: Callable[[str], None],
) -> list[Row]:
    """Translate everything with each system in turns, after a few sentences to warm up."""
    for translate in systems.values():
        translate(texts[: max(1, len(texts) // 2)], beam)
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in systems}
    n_tokens = 0
    for _ in range(rounds):
        for name, translate in systems.items():
            before = time.process_time()
            found, taken = timed(lambda one=translate: one(texts, beam), CPU)
            cpu_seconds[name].append(time.process_time() - before)
            n_tokens = sum(map(len, found)) if name == BARE else n_tokens
            seconds[name].append(taken)
            done(name)
    rows = [
        {
            "system": name,
            "search": "greedy" if beam == 1 else f"beam {beam}",
            "cpu_seconds": median(cpu_seconds[name]),
            "sentences_per_second": len(texts) / median(taken),
            **spread("tokens_per_second", [n_tokens / one for one in taken]),
        }
        for name, taken in seconds.items()
    ]
    fast = rows[0]["tokens_per_second"]
    return [{**row, "speedup_of_attendo": fast / row["tokens_per_second"]} for row in rows]


def _ours(translator: CTranslate2Translator, batch_size: int) -> System:
    def translate(texts: Sequence[str], beam: int) -> list[str]:
        return translator.translate(list(texts), beam=beam, batch_size=batch_size)

    return translate


def _segments(translator: CTranslate2Translator, texts: Sequence[str]) -> list[list[int]]:
    """Return the source tokens that attendo translates."""
    streaming = Streaming(
        translator.converted.tokenizers,
        sentences=translator.recipe.decoding.sentences,
        max_length=translator.converted.max_length - 1,
        batch_size=len(texts),
        window=1,
    )
    found = segments([(text, "") for text in texts], streaming)
    return [job.ids for jobs in found for job in jobs if job.ids]


def _bare(translator: CTranslate2Translator, texts: Sequence[str], batch_size: int) -> System:
    """Return CTranslate2 as its documentation recommends it: one call, sorted and split by it."""
    tokens = translator.converted.source_tokens
    sources = {
        len(some): [[tokens[number] for number in ids] for ids in _segments(translator, some)]
        for some in (texts[: max(1, len(texts) // 2)], texts)
    }
    n_threads = count_threads()
    folder = str(translator.run / FOLDER / "int8")
    model = ctranslate2.Translator(folder, inter_threads=n_threads, intra_threads=1)
    extra = translator.recipe.decoding.max_extra

    def translate(texts: Sequence[str], beam: int) -> list[list[str]]:
        given = sources[len(texts)]
        found = model.translate_batch(
            given,
            max_batch_size=batch_size,
            beam_size=beam,
            length_penalty=0.6,
            max_input_length=0,
            max_decoding_length=max(map(len, given)) + extra,
        )
        return [one.hypotheses[0] for one in found]

    return translate


def _marian(
    folder: Path, translator: CTranslate2Translator, texts: Sequence[str], batch_size: int
) -> System:
    """Return `transformers` with the exported parameters, in float32."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model: Any = transformers.MarianMTModel.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    longest, extra = translator.converted.max_length, translator.recipe.decoding.max_extra

    def translate(texts: Sequence[str], beam: int) -> list[str]:
        translations: list[str] = []
        ordered = sorted(texts, key=len)
        for start in range(0, len(ordered), batch_size):
            given = tokenizer(
                ordered[start : start + batch_size],
                padding=True,
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            )
            with torch.inference_mode():
                found = model.generate(
                    **given, num_beams=beam, max_new_tokens=given.input_ids.shape[1] + extra
                )
            translations += tokenizer.batch_decode(found, skip_special_tokens=True)
        return translations

    return translate


def _write_untrained(
    name: str, settings: Sequence[str], lines: Sequence[str], folder: Path
) -> Path:
    """Write a run whose vocabulary is learned from the text, and whose outputs all end alike."""
    fixed = {
        "tokenizer.vocabulary": 8000,
        "data.max_length": 256,
        "model.tied": "none",
        "model.positions": "sinusoidal",
        "model.norm_order": "post",  # as Marian has it
    }
    recipe = settled_recipe(name, {**fixed, **parse_overrides(settings)})
    config = recipe.tokenizer
    tokenizer = train_tokenizer(config.kind, iter(lines), config.vocabulary)
    task = Translation(tokenizer, tokenizer, recipe.data.max_length)
    torch.manual_seed(recipe.training.seed)
    model = task.build(recipe.model)
    assert isinstance(model, Transformer)
    _end_after(model, LENGTH, tokenizer.specials.eos)
    folder.mkdir()
    save_task(folder, recipe, task)
    save_parameters(folder, model, task)
    return folder


@torch.no_grad()
def _end_after(model: Transformer, length: int, eos: int) -> None:
    """Make the output layer end a sequence after `length` tokens, whatever they are.

    A pair of coordinates is kept free for a sine and a cosine of the position. Layers normalise
    both alike, so that which of them is larger depends on the position alone. Embeddings and what
    layers add are small, so that the difference is large enough for int8.
    """
    width = model.output.in_features
    # The sine is larger from a quarter of pi on.
    pair = round(math.log(4 * length / math.pi) / math.log(10000) * width / 2)
    free = torch.tensor([2 * pair, 2 * pair + 1])
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.weight.mul_(0.1)[:, free] = 0
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.output.weight", "feed_forward.outer.weight")):
            parameter.mul_(0.01)[free] = 0
    model.output.weight[eos] = 0
    model.output.weight[eos, free] = torch.tensor([1000.0, -1000.0])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    run(app)
