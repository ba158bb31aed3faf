"""The training loop: update, log, validate, save; stop on request, at the end or on an error."""

import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from attendo.data.batches import Batch, Layout, Position, stream
from attendo.data.corpus import Corpus
from attendo.data.prefetch import prefetch
from attendo.data.upload import upload
from attendo.errors import TrainingError
from attendo.files import write_text
from attendo.nn.grid import Grid
from attendo.reporter import Reporter
from attendo.text import Tokenizer
from attendo.training.interrupt import Interrupt
from attendo.training.learner import Learner
from attendo.training.log import Entry, Listener
from attendo.training.state import StateFolder, Tally
from attendo.training.validation import Validator


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
        self.clock = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether all steps have been done, or patience has run out."""
        is_stale = 0 < self.config.patience <= self.progress.stale
        return is_stale or self.progress.step >= self.config.steps

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
            reporter.bar("training", config.steps, progress.step) as advance,
        ):
            if self.has_learned and progress.step == 0:
                self.states.keep_start(self.learner.model)
                reporter.say(self._validate())
            for position, batch in batches:
                self._learn(position, batch)
                advance(1, "")
                if self._is_due(config.log_every):
                    advance(0, self._report())
                if self._is_due(config.validate_every):
                    reporter.say(self._validate())
                is_over = interrupt.is_asked or self.is_done
                if self._is_due(config.save_every) or is_over:
                    self._save()
                if is_over:
                    break

    def _is_due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.progress.step == self.config.steps

    def _learn(self, position: Position, batch: Batch) -> None:
        loss = self.learner.update(batch, self.progress.step + 1)
        self.steps.append(_Step(self.progress.position, loss, batch.n_labels))
        self.progress.step += 1
        self.progress.position = position

    def _look(self) -> None:
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
        tally.seconds += self._lap()
        self.steps = []

    def _report(self) -> str:
        self._look()
        progress, tally = self.progress, self.progress.tally
        entry = {
            "step": progress.step,
            "loss": round(tally.loss / tally.n_labels, 4),
            "learning_rate": self.learner.rate(progress.step),
            "epoch": progress.position.epoch,
            "tokens_per_second": round(tally.n_labels / tally.seconds),
            "seconds": round(progress.seconds, 1),
        }
        self._tell(entry)
        progress.tally = Tally()
        return f"loss {entry['loss']:.3f}, {entry['tokens_per_second']:,} tokens/s"

    def _tell(self, entry: Entry) -> None:
        for listener in self.listeners:
            listener.add(entry)

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self.clock = now - self.clock, now
        self.progress.seconds += seconds
        return seconds

    def _validate(self) -> str:
        self._look()
        model, progress = self.learner.model, self.progress
        loss = self.validator.loss(model)
        entry: Entry = {"step": progress.step, "valid_loss": round(loss, 4)}
        if self.validator.texts:
            entry["valid_bleu"] = round(self.validator.bleu(model), 2)
        self._tell(entry)
        if progress.step:  # the start is not part of the average
            self.states.snapshot(progress.step, model)
            progress.snapshots = [*progress.snapshots, progress.step][-self.config.average :]
        if loss < progress.best_loss:
            progress.best_loss, progress.best_step, progress.stale = loss, progress.step, 0
            self.states.keep_best(progress.step, model)
        else:
            progress.stale += 1
        self._lap()  # the tokens per second of training leave this time out
        return _in_words(entry, self.config.steps, is_best=progress.stale == 0)

    def _save(self) -> None:
        self._look()
        learner = self.learner
        self.states.save(self.progress, learner.model, learner.optimizers, learner.ema)

    def _stop(self, number: int, before: Position, reason: str) -> NoReturn:
        """End a training that has diverged, and write the batch of that step."""
        _, batch = next(stream(self.corpus, self.layout, self.config.seed, before))
        task = self.validator.task
        sources = _sentences(batch.source, task.source)
        targets = _sentences(batch.target, task.target)
        lines = [
            {"source": source, "target": target}
            for source, target in zip(sources, targets, strict=True)
        ]
        path = self.states.folder.parent / f"broken-batch-{number}.jsonl"
        write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        raise TrainingError(
            f"{reason}; its batch is in {path}. The last saved state is from before it: continue "
            "with --resume after lowering training.learning_rate, raising training.warmup_steps or "
            "setting training.clip_norm=1.0"
        )


def _sentences(grid: Grid, tokenizer: Tokenizer) -> list[str]:
    """Decode a grid, sentence by sentence."""
    return [
        tokenizer.decode(row[segments == segment].tolist())
        for row, segments in zip(grid.ids, grid.segments, strict=True)
        for segment in range(1, int(segments.max()) + 1)
    ]


def _has_finite_weights(model: nn.Module) -> bool:
    return bool(torch.stack([weight.isfinite().all() for weight in model.parameters()]).all())


def _in_words(entry: Entry, steps: int, *, is_best: bool) -> str:
    bleu = f", BLEU {entry['valid_bleu']:.1f}" if "valid_bleu" in entry else ""
    best = " (best so far)" if is_best else ""
    place = f"step {entry['step']:,} of {steps:,}"
    return f"{place}: validation loss {entry['valid_loss']:.3f}{bleu}{best}"
