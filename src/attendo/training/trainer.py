"""The training loop: update, log, validate, save; stop on a signal, at the end or on an error."""

import gc
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from types import FrameType
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from attendo.data.batches import Batch, Layout, Position, stream
from attendo.data.corpus import Corpus
from attendo.data.prefetch import prefetch, upload
from attendo.errors import TrainingError
from attendo.files import write_text
from attendo.nn.fast.graph import Pace
from attendo.reporter import Reporter
from attendo.training.learner import Learner, Validation, Validator, is_compiled
from attendo.training.log import Entry, Listener
from attendo.training.state import StateFolder, Tally

COMPILING = 5
"""First steps of a process that compiles: they do not count as seconds of training."""


class Interrupt:
    """Whether the training is to stop."""

    is_requested = False


@contextmanager
def catch_interrupts() -> Iterator[Interrupt]:
    """Record the first SIGINT, SIGTERM or SIGHUP; a second one stops at once."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is what nohup does
        before[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)

    def request_stop(number: int, frame: FrameType | None) -> None:
        interrupt.is_requested = True
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield interrupt
    finally:
        restore()


class _Step(NamedTuple):
    """A step whose loss has not been fetched from the device yet."""

    before: Position
    loss: Tensor
    n_labels: int


class Trainer:
    """Trains from the saved step to the last one."""

    def __init__(
        self,
        learner: Learner,
        validator: Validator,
        corpus: Corpus,
        layout: Layout,
        states: StateFolder,
        *,
        has_learned: bool = False,
    ) -> None:
        self.learner = learner
        self.config = learner.config
        self.validator = validator
        self.corpus = corpus
        self.layout = layout
        self.states = states
        self.has_learned = has_learned  # so its first parameters may be its best
        self.progress = states.restore(learner.model, learner.optimizers, learner.ema)
        self.listeners: Sequence[Listener] = ()
        self.steps: list[_Step] = []
        self.pace = Pace(learner.device)
        self.n_compiling = COMPILING if is_compiled(self.config, learner.device) else 0
        self.clock = time.monotonic()
        self.place = self._place()
        self.before = self.place - 1  # of the last step

    @property
    def is_done(self) -> bool:
        """Return whether all steps are done, all seconds used, or patience has run out."""
        is_stale = 0 < self.config.patience <= self.progress.stale
        return is_stale or self.place >= self.config.steps

    def _place(self) -> int | float:
        """Return how far the training has come, from 0 to `steps`.

        With a limit of seconds it is their used share of `steps`, whatever number of steps that
        was. Learning rate, log, validations and saves follow it, so that the whole schedule fits
        into the seconds.
        """
        config, progress = self.config, self.progress
        if not config.seconds:
            return progress.step
        return config.steps * min(1.0, progress.learning_seconds / config.seconds)

    def run(
        self, interrupt: Interrupt, reporter: Reporter, listeners: Sequence[Listener] = ()
    ) -> None:
        """Train to the end, or until interrupted; the last state is then on disk."""
        if self.is_done:
            return
        config, progress = self.config, self.progress
        self.listeners = listeners
        self.learner.model.train()
        self.clock = time.monotonic()
        planned = stream(self.corpus, self.layout, config.seed, progress.position)
        batches = prefetch(upload(planned, self.learner.device))
        with (
            closing(batches),
            reporter.bar("training", *self._bar()) as advance,
            ExitStack() as end,
        ):
            end.callback(gc.unfreeze)  # what `_learn` freezes
            if self.has_learned and progress.step == 0:
                self.states.keep_start(self.learner.model)
                reporter.say(self._validate())
            for position, batch in batches:
                shown = self._bar()[1]
                self._learn(position, batch)
                advance(self._bar()[1] - shown, "")
                if self._is_due(config.log_every):
                    advance(0, self._report())
                if self._is_due(config.validate_every):
                    reporter.say(self._validate())
                is_over = interrupt.is_requested or self.is_done
                if self._is_due(config.save_every) or is_over:
                    self._save()
                if is_over:
                    break

    def _bar(self) -> tuple[int, int]:
        """Return the end of the progress bar and its current value, in steps or seconds."""
        if self.config.seconds:
            return math.ceil(self.config.seconds), int(self.progress.learning_seconds)
        return self.config.steps, self.progress.step

    def _is_due(self, every: int) -> bool:
        """Return whether the last step has passed a multiple, or was the very last."""
        has_passed = self.place // every > self.before // every
        return has_passed or self.place >= self.config.steps

    def _learn(self, position: Position, batch: Batch) -> None:
        after = 2 * self.place - self.before  # if this step takes as long as the last
        loss = self.learner.update(batch, max(1, min(after, self.config.steps)))
        self.pace.keep()
        self.steps.append(_Step(self.progress.position, loss, batch.n_labels))
        self.progress.step += 1
        self.progress.position = position
        self._lap()
        if self.n_compiling == 1:
            gc.freeze()  # the compiler leaves millions of objects, which take a second to search
        self.n_compiling = max(0, self.n_compiling - 1)
        self.before, self.place = self.place, self._place()

    def _check_losses(self) -> None:
        """Check the losses of the last steps; only here does the CPU wait for a GPU."""
        if not self.steps:
            return
        tally = self.progress.tally
        losses = torch.stack([step.loss for step in self.steps]).tolist()
        first = self.progress.step - len(self.steps) + 1
        for number, (step, loss) in enumerate(zip(self.steps, losses, strict=True), start=first):
            if not math.isfinite(loss):
                self._stop(number, step.before, f"the loss of step {number} is {loss}")
            tally.loss += loss
            tally.n_labels += step.n_labels
        if not _has_finite_weights(self.learner.model):
            number, before = self.progress.step, self.steps[-1].before
            self._stop(number, before, f"step {number} has made parameters that are not finite")
        self._lap()
        self.steps = []

    def _report(self) -> str:
        self._check_losses()
        progress, tally = self.progress, self.progress.tally
        entry = {
            "step": progress.step,
            "loss": round(tally.loss / tally.n_labels, 4),
            "learning_rate": self.learner.rate(max(1, self.place)),
            "epoch": progress.position.epoch,
            "tokens_per_second": round(tally.n_labels / tally.seconds),
            "seconds": round(progress.seconds, 1),
            "learning_seconds": round(progress.learning_seconds, 2),
        }
        self._tell(entry)
        progress.tally = Tally()
        return f"loss {entry['loss']:.3f}, {entry['tokens_per_second']:,} tokens/s"

    def _tell(self, entry: Entry) -> None:
        for listener in self.listeners:
            listener.add(entry)

    def _lap(self, *, is_learning: bool = True) -> None:
        """Add the time since the last lap to what has been spent so far."""
        now, progress = time.monotonic(), self.progress
        seconds, self.clock = now - self.clock, now
        progress.seconds += seconds
        if is_learning:
            progress.tally.seconds += seconds
            progress.learning_seconds += 0 if self.n_compiling else seconds

    def _validate(self) -> str:
        self._check_losses()
        model, progress, validator = self.learner.model, self.progress, self.validator
        found = validator.measure(model)
        entry: Entry = {"step": progress.step, "valid_loss": round(found.loss, 4)}
        if found.value is not None:
            entry[f"valid_{validator.task.metric.name}"] = round(found.value, 2)
        self._tell(entry)
        if progress.step:  # the start is not part of the average
            self.states.snapshot(progress.step, model)
            progress.snapshots = [*progress.snapshots, progress.step][-self.config.average :]
        best = Validation(progress.best_loss, progress.best_metric)
        if validator.rank(found) < validator.rank(best):
            progress.best_loss, progress.best_step, progress.stale = found.loss, progress.step, 0
            progress.best_metric = found.value if validator.by_metric else None
            self.states.keep_best(progress.step, model)
        else:
            progress.stale += 1
        self._lap(is_learning=False)
        is_best = " (best so far)" if progress.stale == 0 else ""
        return f"{self._progress_in_words()}: {validator.describe(found)}{is_best}"

    def _progress_in_words(self) -> str:
        config, progress = self.config, self.progress
        if config.seconds:
            return (
                f"step {progress.step:,}, {progress.learning_seconds:.0f} of {config.seconds:g} s"
            )
        return f"step {progress.step:,} of {config.steps:,}"

    def _save(self) -> None:
        self._check_losses()
        learner = self.learner
        self.states.save(self.progress, learner.model, learner.optimizers, learner.ema)
        self._lap(is_learning=False)

    def _stop(self, number: int, before: Position, reason: str) -> NoReturn:
        """Stop a training that has diverged, and write the batch of that step."""
        _, batch = next(stream(self.corpus, self.layout, self.config.seed, before))
        task = self.validator.task
        examples = zip(
            *(
                column.take(np.array(batch.records), np.random.default_rng(0)).sequences()
                for column in self.corpus.columns.values()
            ),
            strict=True,
        )
        lines = [task.decode(example)._asdict() for example in examples]
        path = self.states.folder.parent / f"broken-batch-{number}.jsonl"
        write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        raise TrainingError(
            f"{reason}; its batch is in {path}. The last saved state is from before it: continue "
            "with --resume after lowering training.learning_rate, raising training.warmup_steps or "
            "setting training.clip_norm=1.0"
        )


def _has_finite_weights(model: nn.Module) -> bool:
    return bool(torch.stack([weight.isfinite().all() for weight in model.parameters()]).all())
