"""Hugging Face's Marian on the pairs of an attendo run: how good it gets, and how soon.

PYTHONPATH=src python3 benchmarks/quality.py --help
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
import typer
from curves import Curve, Point, compare, curve_table, in_words, read_curve
from peers.budget import Budget, Schedule
from peers.learner import BETAS, Compiling, PeerLearner, Way
from peers.marian import Marian
from peers.trial import BEAMS, Job, Training, open_job, translate, validate
from rich.console import Console as Terminal
from script import run

from attendo import metrics
from attendo.bundle import find_device
from attendo.config import Recipe
from attendo.data.readers import Pair, ReadReport, RecordFiles, read_records
from attendo.files import explained, write_json, write_text
from attendo.lab.bench.results import WIDTH
from attendo.lab.clock import describe
from attendo.reporter import Console

N_VALIDATIONS = 10
"""Validations of a training, unless their number is given."""

MARIANS = {"positions": "sinusoidal", "norm": "layer", "norm_order": "post", "attention": "dot"}
"""What Marian has whatever the run has."""

NOTES = [
    "seconds of training: Marian's without its validations, attendo's with them; compiling is in "
    "both",
    "BLEU of the curve: greedy, fp32, on the first validation sentences; loss: a token, without "
    "smoothing, on all validation pairs",
    "parameters of Marian: the last ones; of attendo: the last, the best or an average",
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(  # noqa: PLR0913 -- options are arguments
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run of 'attendo train', trained or prepared.")
    ],
    seconds: Annotated[float, typer.Option(min=0.1, help="Training time.")] = 600.0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after this number of steps if that is sooner.")
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option(min=16, help="Target tokens per batch, with padding.")
    ] = 25_000,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 7e-4,
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="Warm-up steps; at most half of the training.")
    ] = 4000,
    validate_every: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            metavar="SECONDS",
            help="Seconds of training between two validations (a tenth).",
        ),
    ] = None,
    valid_sentences: Annotated[
        int | None, typer.Option(min=1, help="Sentences per validation (as many as in the run).")
    ] = None,
    test_pairs: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Test pairs to score at the end; may be repeated."),
    ] = None,
    curve: Annotated[
        Path | None, typer.Option(metavar="LOG", help="log.jsonl of attendo, to compare with.")
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile Marian's step (on GPUs: yes)."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for model and translations.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Train Marian for some time on exactly the pairs, vocabulary and sizes of a run.

    RUN needs recipe.toml, tokenizer.json and state/data; its parameters are not
    read. The learning rate falls to zero when the time is up. What has been
    found is in the JSON after every validation.

    \b
    Examples:
      python3 benchmarks/quality.py run --seconds 600 --test-pairs news/test-newstest2014.tsv
      python3 benchmarks/quality.py run --seconds 600 --curve run/log.jsonl --json quality.json
      python3 benchmarks/quality.py run --seconds 60 --batch-tokens 2048 --device cpu
    """  # noqa: D301 -- a backspace keeps click from rewrapping the examples
    # Whatever can be wrong is found before the training, not after it.
    job = open_job(run, find_device(device))
    tests = {path: _read_pairs(path) for path in test_pairs or []}
    ours = read_curve(curve) if curve else None
    if out:
        with explained(out):
            out.mkdir(parents=True, exist_ok=True)
    way = _way(job.device, compiled)
    n_sentences = valid_sentences or job.recipe.training.validation_bleu or 512
    asked = {
        "run": str(run),
        "seconds": seconds,
        "steps": steps,
        "batch_tokens": batch_tokens,
        "learning_rate": learning_rate,
        "warmup_steps": warmup_steps,
        "valid_sentences": min(n_sentences, len(job.data.valid_texts)),
        "way": way.name,
    }
    torch.manual_seed(job.recipe.training.seed)
    marian = Marian(job.recipe, job.task.target.specials)
    learner = PeerLearner(marian, job.recipe, job.device, way)
    budget, schedule = Budget(seconds, steps, job.device), Schedule(learning_rate, warmup_steps)
    training = Training(job, learner, schedule, budget, batch_tokens)
    findings = Findings(job, {**asked, **_settings(job)}, learner.n_parameters, ours, (json, out))
    findings.write()
    for _ in training.stretches(validate_every or seconds / N_VALIDATIONS):
        findings.validate(marian, n_sentences, training)
    if out:
        marian.model.save_pretrained(out / "model")
    for path, pairs in tests.items():
        findings.test(marian, path, pairs)
    findings.show()


def _read_pairs(path: Path) -> list[Pair]:
    return list(read_records(RecordFiles(files=(str(path),)), ReadReport()))


def _way(device: torch.device, is_compiled: bool | None) -> Way:
    """Return how Marian runs on this device."""
    is_gpu = device.type == "cuda"
    is_compiled = is_gpu if is_compiled is None else is_compiled
    return Way("bf16" if is_gpu else "fp32", Compiling(is_dynamic=True) if is_compiled else None)


def _settings(job: Job) -> dict[str, Any]:
    """Return the settings that the figures depend on, besides the options."""
    recipe = job.recipe
    return {
        "optimizer": f"AdamW, betas {BETAS}, no weight decay",
        "schedule": "linear rise, then half a cosine to zero by the clock",
        "label_smoothing": recipe.training.label_smoothing,
        "clip_norm": recipe.training.clip_norm,
        "seed": recipe.training.seed,
        "beam": BEAMS,
        "length_penalty": recipe.decoding.alpha,
        "max_extra": recipe.decoding.max_extra,
        "pairs": job.data.train.size,
        "vocabulary": recipe.tokenizer.vocabulary,
        "max_length": recipe.data.max_length,
        "model": {**recipe.model.model_dump(mode="json"), **MARIANS},
    }


def _differences(recipe: Recipe) -> list[str]:
    """Return where Marian differs from the model of the run."""
    return [
        f"model.{key}: Marian's is {theirs!r}, the run's {getattr(recipe.model, key)!r}"
        for key, theirs in MARIANS.items()
        if getattr(recipe.model, key) != theirs
    ]


class Findings:
    """What is known of Marian's training; on disk after every validation and test."""

    def __init__(
        self,
        job: Job,
        settings: dict[str, Any],
        n_parameters: int,
        ours: Curve | None,
        places: tuple[Path | None, Path | None],
    ) -> None:
        self.job, self.ours, self.points = job, ours, list[Point]()
        self.json, self.out = places
        self.reporter = Console()
        self.found: dict[str, Any] = {
            "bench": "quality",
            "machine": {**describe(job.device), "transformers": transformers.__version__},
            "settings": settings,
            "parameters": n_parameters,
            "notes": [*NOTES, *_differences(job.recipe)],
            "validation_seconds": 0.0,
            "tests": [],
            "attendo": None,
        }

    def validate(self, marian: Marian, n_sentences: int, training: Training) -> None:
        """Add a point to the curve."""
        start = time.perf_counter()
        loss, bleu, translations = validate(self.job, marian, n_sentences)
        self.found["validation_seconds"] += time.perf_counter() - start
        point = Point(training.budget.spent, training.step, loss, bleu)
        self.points.append(point)
        self.found |= training.figures()
        self.found["curve"] = [point._asdict() for point in self.points]
        if self.ours:
            curve = [point._asdict() for point in self.ours]
            self.found["attendo"] = {"curve": curve, **compare(self.ours, self.points)}
        self._write("validation", translations)
        place = f"{point.seconds:,.1f} s, step {point.step:,}"
        self.reporter.say(
            f"{place}: validation loss {loss:.3f}, BLEU {bleu:.2f} ({translations[0][:60]})"
        )

    def test(self, marian: Marian, path: Path, pairs: Sequence[Pair]) -> None:
        """Score the last parameters on a test set."""
        start = time.perf_counter()
        translations = translate(self.job, marian, pairs, BEAMS)
        seconds = time.perf_counter() - start
        scores = metrics.score(translations, [pair.target for pair in pairs])
        self.found["tests"].append({"file": str(path), **scores.to_dict(), "seconds": seconds})
        self._write(path.stem, translations)
        self.reporter.say(_scored(self.found["tests"][-1]))

    def _write(self, name: str, translations: Sequence[str]) -> None:
        if self.out:
            write_text(self.out / f"{name}.txt", "".join(f"{line}\n" for line in translations))
        self.write()

    def write(self) -> None:
        """Write the JSON with the results so far."""
        for path in (self.json, self.out and self.out / "quality.json"):
            if path:
                write_json(path, self.found)

    def show(self) -> None:
        """Print the curve, followed by the settings."""
        terminal = Terminal(highlight=False)
        if not terminal.is_terminal:
            terminal = Terminal(highlight=False, width=WIDTH)
        machine = self.found["machine"]
        versions = f"torch {machine['torch']}, transformers {machine['transformers']}"
        terminal.print(f"{machine['hardware']}, {versions}", soft_wrap=True)
        beside = {"attendo": self.ours} if self.ours else {}
        terminal.print(curve_table({"Marian": self.points, **beside}))
        for line in self._lines():
            terminal.print(line, markup=False, soft_wrap=True)

    def _lines(self) -> list[str]:
        found, settings = self.found, self.found["settings"]
        alpha = settings["length_penalty"]
        return [
            f"{found['parameters']:,} parameters, {settings['way']}: {found['steps']:,} steps in "
            f"{found['seconds']:,.1f} s, {found['epochs']:.2f} epochs of {settings['pairs']:,} "
            "pairs",
            f"first step {found['seconds_to_first_step']:,.1f} s, with compiling; after it "
            f"{found['tokens_per_second']:,.0f} target tokens/s, target fill "
            f"{found['target_fill']:.1%}, waiting for data {found['waiting_share']:.1%}",
            f"not counted: {found['validation_seconds']:,.1f} s of validation",
            *map(_scored, found["tests"]),
            *(in_words(found["attendo"]) if self.ours else []),
            f"test sets: beam {BEAMS}, scores divided by length ** {alpha}; attendo divides by "
            f"((5 + length) / 6) ** {alpha}",
            *found["notes"],
        ]


def _scored(test: dict[str, Any]) -> str:
    what = f"{test['file']}: BLEU {test['bleu']:.2f}, chrF {test['chrf']:.2f}"
    return f"{what} ({test['sentences']:,} sentences, {test['seconds']:.0f} s)"


if __name__ == "__main__":
    run(app)
