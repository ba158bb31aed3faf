"""From a recipe to a run folder: prepare, train, choose the best weights, score them."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from attendo.bundle import (
    RECIPE,
    SCORE_CARD,
    WEIGHTS,
    WORDS,
    load_task,
    put_weights,
    read_score_card,
    read_tensors,
    read_words,
    save_task,
    weights_of,
    write_tensors,
    write_words,
)
from attendo.config import DecodingConfig, Recipe, load_recipe, write_recipe
from attendo.data.readers import Pair
from attendo.data.texts import Texts, open_texts
from attendo.errors import AttendoError, ConfigError
from attendo.files import alone_in, clear_leftovers, write_json, write_text
from attendo.models import build_model
from attendo.reporter import Reporter
from attendo.tasks import Translation
from attendo.training.adapt import Start, start_of
from attendo.training.auto import Choice, choose_adaptation, choose_settings
from attendo.training.curve import draw_curve
from attendo.training.interrupt import polite_interrupt
from attendo.training.kinds import check_kinds, check_tokenizers
from attendo.training.learner import Learner, without_tiny_numbers
from attendo.training.log import Listener, Log, TensorBoard
from attendo.training.prepare import (
    Prepared,
    make_task,
    open_prepared,
    prepare,
    sentences_per_source,
    set_sentences,
)
from attendo.training.state import StateFolder
from attendo.training.trainer import Trainer
from attendo.training.validation import Validator, evaluating

KEPT = (
    "start", "data", "tokenizer", "model",
    "training.seed", "training.optimizer", "training.ema",
)  # fmt: skip
"""What a saved state depends on, so that a resumed run cannot change it."""


class Interrupted(Exception):  # noqa: N818 -- not an error
    """The training was stopped by the person; all is saved."""


def train_run(
    name: str,
    overrides: Mapping[str, Any],
    folder: Path,
    device: torch.device,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Train a recipe, named or by path and with overrides, into a folder; returns the score card.

    Raises:
        AttendoError: Something about recipe, data or folder is wrong; the message says what.
        Interrupted: Ctrl-C or SIGTERM came; the state is saved and `resume` goes on from it.
    """
    if overrides.get("start"):  # so that the run can be resumed from anywhere
        overrides = {**overrides, "start": str(Path(overrides["start"]).resolve())}
    with without_tiny_numbers(device):
        return _train(name, overrides, folder, device, resume, reporter or Reporter())


def _train(
    name: str,
    overrides: Mapping[str, Any],
    folder: Path,
    device: torch.device,
    resume: bool,
    reporter: Reporter,
) -> dict[str, Any]:
    if (folder / RECIPE).exists() and (resume or _is_begun(folder)):
        if not resume:
            raise ConfigError(
                f"{str(folder)!r} already holds a run; "
                "go on with it by --resume, or give another --out"
            )
        if (folder / WEIGHTS).exists() and not (folder / "state").exists():
            reporter.say(f"{folder} is trained, and without its state/ it can only be used")
            return read_score_card(folder)
        with _alone(folder):
            recipe, task = _reopen(folder, overrides)
            return _go_on(recipe, task, None, folder, device, reporter)
    recipe = load_recipe(name, overrides)
    if resume and not recipe.data.model_fields_set:
        raise ConfigError(
            f"{str(folder)!r} holds no run to go on with; "
            "check --out, or give the data for a new run"
        )
    if start := start_of(recipe):
        recipe = start.hand_over(recipe)
        read_tensors(start.folder / WEIGHTS)  # says now, not after the encoding, if it is damaged
    check_kinds(recipe)
    check_tokenizers(recipe.tokenizer)
    with _alone(folder):
        texts = _open_texts(recipe)
        recipe, task = _begin(recipe, texts, start, folder, device, reporter)
        return _go_on(recipe, task, texts, folder, device, reporter)


def _is_begun(folder: Path) -> bool:
    """Tell whether there is something to lose; a start that failed early may be made again."""
    return (folder / WEIGHTS).exists() or (folder / "state" / "data").exists()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folders of a run, and see that nobody else writes there."""
    try:
        (folder / "state").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None
    with alone_in(folder):
        clear_leftovers(folder)
        clear_leftovers(folder / "state")
        yield


def _reopen(folder: Path, overrides: Mapping[str, Any]) -> tuple[Recipe, Translation]:
    """Take up a run; what its weights depend on must not change."""
    recipe, task = load_task(folder)
    changed = load_recipe(str(folder / RECIPE), overrides)
    for kept in KEPT:
        if attrgetter(kept)(recipe) != attrgetter(kept)(changed):
            raise ConfigError(
                f"{str(folder)!r} was begun with other settings in [{kept}]; a resumed run "
                "keeps them. Leave those options out, or begin a new run with another --out"
            )
    check_kinds(changed)
    if changed != recipe:
        write_text(folder / RECIPE, write_recipe(changed))
    return changed, task


def _begin(
    recipe: Recipe,
    texts: Texts,
    start: Start | None,
    folder: Path,
    device: torch.device,
    reporter: Reporter,
) -> tuple[Recipe, Translation]:
    """Settle the settings and the vocabularies of a new run."""
    reporter.say(
        f"data: {texts.n_train:,} training, {len(texts.valid):,} validation, "
        f"{len(texts.test):,} test pairs"
    )
    for reason, count in texts.report.dropped.items():
        reporter.say(f"dropped {count:,} lines: {reason}")
    _say_what_is_known(texts, reporter)
    choices: list[Choice] = []
    if start:
        reporter.say(f"begins with the vocabulary and the weights of {start.folder}")
        has_gone = "" if start.prepared() else "; they have gone with its state/"
        reporter.say(f"remembers {texts.n_remembered:,} of its training pairs{has_gone}")
        length = start.mean_tokens(texts)
        recipe, choices = choose_adaptation(recipe, start.recipe, texts.n_train, length)
    elif recipe.auto:
        recipe, choices = choose_settings(recipe, texts, device)
    if choices:
        reporter.say("chosen by looking at the data and the hardware:")
    for choice in choices:
        reporter.say(f"  {choice.key} = {choice.value}  ({choice.reason})")
    recipe = set_sentences(recipe, lambda: sentences_per_source(texts))
    task = make_task(recipe, texts)
    save_task(folder, recipe, task)
    return recipe, task


def _say_what_is_known(texts: Texts, reporter: Reporter) -> None:
    for name, n_known, pairs in (
        ("validation", texts.n_known_valid, texts.valid),
        ("test", texts.n_known_test, texts.test),
    ):
        if n_known:
            reporter.say(
                f"{name} sources that are trained on, too: {n_known:,} of {len(pairs):,}; "
                "they look easier than new text ('attendo check' shows them)"
            )


def _go_on(
    recipe: Recipe,
    task: Translation,
    texts: Texts | None,
    folder: Path,
    device: torch.device,
    reporter: Reporter,
) -> dict[str, Any]:
    """Do what is left to do, of encoding and of learning."""
    data = _prepared(recipe, task, texts, folder / "state" / "data", reporter)
    _save_words(recipe, folder)
    return _learn(recipe, task, data, folder, device, reporter)


def _open_texts(recipe: Recipe) -> Texts:
    """Find the pairs of a run, with those that it remembers."""
    texts = open_texts(recipe.data)
    start = start_of(recipe)
    return start.mix(texts, recipe.data.remember) if start else texts


def _prepared(
    recipe: Recipe, task: Translation, texts: Texts | None, folder: Path, reporter: Reporter
) -> Prepared:
    """Encode the data, unless an earlier start has done so."""
    if not folder.exists():
        texts = texts or _open_texts(recipe)
        with reporter.bar("encoding", texts.n_train) as advance:
            report = prepare(texts, task, recipe, folder, lambda n: advance(n, ""))
        if report.too_long or report.uneven:
            reporter.say(
                f"left out {report.too_long:,} pairs longer than {recipe.data.max_length} tokens "
                f"and {report.uneven:,} of uneven length"
            )
    return open_prepared(folder, task, recipe)


def _save_words(recipe: Recipe, folder: Path) -> None:
    """Write the source words that the model learns from, with those of the run it begins with."""
    if (folder / WORDS).exists():
        return
    words = read_words(folder / "state" / "data")
    if recipe.start is not None:
        before = read_words(Path(recipe.start))
        words = words | before if before else frozenset()
    if words:
        write_words(folder, sorted(words))


def _learn(
    recipe: Recipe,
    task: Translation,
    data: Prepared,
    folder: Path,
    device: torch.device,
    reporter: Reporter,
) -> dict[str, Any]:
    """Train to the end, choose the weights, and score them."""
    trainer = _trainer(recipe, task, data, folder, device)
    if trainer.is_done and _is_scored(folder, trainer.progress.step):
        reporter.say(f"the run in {folder} is complete")
        return read_score_card(folder)
    model = trainer.learner.model
    n_weights = sum(weight.numel() for weight in weights_of(model).values())
    reporter.say(f"model: {n_weights:,} weights, on {hardware(device)}")
    _run(trainer, folder, reporter)
    chosen = _choose_weights(trainer, reporter)
    write_tensors(folder / WEIGHTS, weights_of(model))
    card: dict[str, Any] = {
        **_test(trainer, data.test_texts, recipe.decoding, reporter),
        "weights": chosen,
        "parameters": n_weights,
        "steps": trainer.progress.step,
        "training_seconds": round(trainer.progress.seconds, 1),
        "training_pairs": data.train.size,
        "seed": recipe.training.seed,
        "hardware": hardware(device),
        "torch": torch.__version__,
    }
    if recipe.start is not None:
        card["start"] = _before_and_after(trainer, data.test_texts, recipe, reporter)
    write_json(folder / SCORE_CARD, card)
    return card


def _is_scored(folder: Path, step: int) -> bool:
    """Tell whether the score card is of this step, not of one where the training once ended."""
    return (folder / SCORE_CARD).exists() and read_score_card(folder).get("steps") == step


def _trainer(
    recipe: Recipe, task: Translation, data: Prepared, folder: Path, device: torch.device
) -> Trainer:
    """Build model, learner and trainer, and bring them to the saved state."""
    config = recipe.training
    if config.deterministic:
        # Without this cuBLAS refuses to be repeatable; it is read when the GPU is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic)
    torch.manual_seed(config.seed)
    model = build_model(recipe.model, task.source.size, task.target.size).to(device)
    states = StateFolder(folder / "state")
    if states.is_empty and (start := start_of(recipe)):
        start.put_weights(model)
    learner = Learner(model, task, config, recipe.model.d_model)
    layout = task.layout(recipe.data, config.batch_tokens)
    translated = data.valid_texts[: config.validation_bleu]
    sentences = recipe.decoding.sentences
    validator = Validator(task, data.valid, layout, translated, device, sentences)
    has_learned = recipe.start is not None
    return Trainer(learner, validator, data.train, layout, states, has_learned=has_learned)


def _run(trainer: Trainer, folder: Path, reporter: Reporter) -> None:
    """Train with the log open and signals caught."""
    from_step = -1 if trainer.states.is_empty else trainer.progress.step
    log = Log(folder / "log.jsonl", from_step=from_step)
    listeners: list[Listener] = [log]
    if trainer.config.tensorboard:
        listeners.append(TensorBoard(folder / "tensorboard", from_step=from_step))
    try:
        with polite_interrupt() as interrupt:
            trainer.run(interrupt, reporter, listeners)
    finally:
        for listener in listeners:
            listener.close()
    draw_curve(log.entries, folder / "curve.png")
    if interrupt.is_asked:
        raise Interrupted(f"stopped and saved at step {trainer.progress.step:,}")


def _choose_weights(trainer: Trainer, reporter: Reporter) -> str:
    """Leave the model with the weights that do best on the validation pairs."""
    progress, states = trainer.progress, trainer.states
    last = {name: weight.clone() for name, weight in weights_of(trainer.learner.model).items()}
    candidates = {f"step {progress.step}": last}
    if progress.has_best:
        candidates[f"step {progress.best_step}"] = states.best(progress.best_step)
    if len(progress.snapshots) > 1:
        name = f"average of the last {len(progress.snapshots)} validations"
        candidates[name] = states.average(progress.snapshots)
    if trainer.learner.ema:
        candidates["moving average"] = dict(trainer.learner.ema)
    model, losses = trainer.learner.model, {}
    for name, weights in candidates.items():
        put_weights(model, weights, name)
        losses[name] = trainer.validator.loss(model)
    best = min(losses, key=losses.__getitem__)
    put_weights(model, candidates[best], best)
    reporter.say(f"weights: {best}, with validation loss {losses[best]:.3f}")
    return best


def _test(
    trainer: Trainer, pairs: list[Pair], options: DecodingConfig, reporter: Reporter
) -> dict[str, Any]:
    """Score the chosen weights on the test pairs."""
    model = trainer.learner.model
    with evaluating(model), reporter.bar("scoring", len(pairs)) as advance:
        scores = trainer.validator.task.evaluate(
            model, pairs, options, trainer.learner.device, done=lambda n: advance(n, "")
        )
    return {**scores.to_dict(), "decoding": options.model_dump()}


def _before_and_after(
    trainer: Trainer, pairs: list[Pair], recipe: Recipe, reporter: Reporter
) -> dict[str, Any]:
    """Tell what the start could do on these pairs, and how it and we do on its own test pairs.

    Leaves the model with the weights of the start.
    """
    told: dict[str, Any] = {"run": recipe.start}
    try:
        start = start_of(recipe)
        assert start, "only what has begun with a run is compared with it"
        data = start.prepared()
        own = (data.test_texts, start.recipe.decoding) if data else None
        if own:
            told["own_after"] = _test(trainer, *own, reporter)["bleu"]
        start.put_weights(trainer.learner.model)
        told["before"] = _test(trainer, pairs, recipe.decoding, reporter)["bleu"]
        if own:
            told["own_before"] = _test(trainer, *own, reporter)["bleu"]
    except AttendoError as error:
        reporter.say(f"no comparison with what it began with: {error}")
    return told


def hardware(device: torch.device) -> str:
    """Name what the model runs on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} {platform.machine()} CPU cores"
