"""Marian trained by the clock, on exactly the pairs, vocabulary and sizes of an attendo run."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attendo import metrics
from attendo.bundle import load_task
from attendo.config import Recipe, make_recipe
from attendo.data.batches import once
from attendo.data.prefetch import prefetch
from attendo.data.readers import Pair
from attendo.errors import BundleError, TrainingError
from attendo.losses import cross_entropy
from attendo.tasks import Translation
from attendo.training.prepare import Prepared, open_prepared
from peers import check_comparable
from peers.budget import Budget, Schedule
from peers.learner import PeerLearner
from peers.marian import Marian, Search, translate_texts
from peers.padded import PaddedBatch, endless_batches

LABEL_SMOOTHING = 0.1
CLIP_NORM = 1.0
BEAMS = 4

VALIDATION_TOKENS = 4096
"""Places of a batch whose loss is measured: all its logits are in memory, in fp32."""

LOOK_EVERY = {"cuda": 20}
"""Steps between two readings of the clock, for which the CPU waits for a GPU."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run, as Marian learns from it."""

    recipe: Recipe
    """With the size that the vocabulary turned out to have, and Marian's settings for learning."""
    task: Translation
    data: Prepared
    device: torch.device


def open_job(folder: Path, device: torch.device) -> Job:
    """Open a run whose data is encoded; it need not be trained."""
    recipe, task = load_task(folder)
    check_comparable(recipe, ("feed_forward", "tied"))
    prepared = folder / "state" / "data"
    if not prepared.is_dir():
        raise BundleError(
            f"{str(folder)!r} has no state/data, the pairs as ids; "
            "make it again with 'attendo train', which may be stopped once it trains"
        )
    data = open_prepared(prepared, task, recipe)
    values = recipe.model_dump()
    values["tokenizer"]["vocabulary"] = task.target.size
    values["training"] |= {"label_smoothing": LABEL_SMOOTHING, "clip_norm": CLIP_NORM}
    return Job(make_recipe(values, str(folder)), task, data, device)


class Training:
    """Marian's training, from validation to validation."""

    def __init__(
        self,
        job: Job,
        learner: PeerLearner,
        schedule: Schedule,
        budget: Budget,
        batch_tokens: int,
    ) -> None:
        self.job, self.learner, self.schedule, self.budget = job, learner, schedule, budget
        self.batch_tokens = batch_tokens
        self.step = self.n_tokens = self.n_places = self.n_pairs = 0
        self.n_first, self.seconds_of_first = 0, 0.0
        """Target tokens of the first step, and its seconds: compiling is among them."""
        self.waited = 0.0

    def stretches(self, validate_every: float) -> Iterator[None]:
        """Train, and yield whenever a validation is due and at the end of the training.

        What is done until the next stretch is requested does not count.
        """
        due, is_over = validate_every, False
        self.budget.skip()
        with closing(prefetch(self._batches())) as batches:
            while not is_over:
                loss = self._learn(self._next(batches))
                if not self._is_time_to_look():
                    continue
                self._read_clock(loss)
                is_over = self.budget.share(self.step) >= 1
                if is_over or self.budget.spent >= due:
                    due = validate_every * (1 + self.budget.spent // validate_every)
                    yield
                    self.budget.skip()

    def figures(self) -> dict[str, Any]:
        """Return the speed, and statistics of the batches."""
        spent = self.budget.spent
        after_first = max(spent - self.seconds_of_first, 1e-9)
        return {
            "steps": self.step,
            "seconds": spent,
            "seconds_to_first_step": self.seconds_of_first,
            "tokens_per_second": (self.n_tokens - self.n_first) / after_first,
            "tokens_per_second_with_first_step": self.n_tokens / spent,
            "target_fill": self.n_tokens / self.n_places,
            "waiting_share": self.waited / spent,
            "epochs": self.n_pairs / self.job.data.train.size,
        }

    def _batches(self) -> Iterator[PaddedBatch]:
        job = self.job
        batches = endless_batches(
            job.data.train,
            job.task.target.specials,
            self.batch_tokens,
            job.recipe.data.max_length,
            job.recipe.training.seed,
        )
        return (batch.pinned() for batch in batches) if job.device.type == "cuda" else batches

    def _next(self, batches: Iterator[PaddedBatch]) -> PaddedBatch:
        start = time.perf_counter()
        batch = next(batches)
        self.waited += time.perf_counter() - start
        return batch

    def _learn(self, batch: PaddedBatch) -> torch.Tensor:
        share = self.budget.share(self.step)
        self.step += 1
        self.n_tokens += batch.n_target
        self.n_places += batch.target.numel()
        self.n_pairs += len(batch.target)
        self.learner.set_rate(self.schedule.rate(self.step, share))
        return self.learner.learn(batch)

    def _is_time_to_look(self) -> bool:
        every = LOOK_EVERY.get(self.job.device.type, 1)
        return self.step in (1, self.budget.steps) or self.step % every == 0

    def _read_clock(self, loss: torch.Tensor) -> None:
        """Read the clock and the loss; only here does the CPU wait for a GPU."""
        self.budget.look()
        if self.step == 1:
            self.n_first, self.seconds_of_first = self.n_tokens, self.budget.spent
        if not math.isfinite(loss.item()):
            raise TrainingError(
                f"the loss of step {self.step} is {loss.item()}; "
                "lower --learning-rate or raise --warmup-steps"
            )


@contextmanager
def _evaluating(marian: Marian) -> Iterator[None]:
    """Disable dropout and gradients inside the context."""
    marian.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        marian.train()


def validation_loss(job: Job, marian: Marian) -> float:
    """Compute the mean loss a token on all validation pairs, as attendo's validation does."""
    total, count = 0.0, 0
    with _evaluating(marian):
        for batch in once(job.data.valid, job.task.layout(job.recipe.data, VALIDATION_TOKENS)):
            moved = batch.to(job.device)
            logits = marian(moved.inputs["source"].ids, moved.inputs["target"].ids)
            total += float(cross_entropy(logits, moved.labels).total)
            count += batch.n_labels
    return total / max(1, count)


def translate(job: Job, marian: Marian, pairs: Sequence[Pair], n_beams: int) -> list[str]:
    """Translate the sources of pairs with the settings of the run."""
    options = job.recipe.decoding
    search = Search(n_beams, options.alpha, options.max_extra)
    sources = [pair.source for pair in pairs]
    with _evaluating(marian):
        return translate_texts(marian, job.task, sources, search, job.device)


def validate(job: Job, marian: Marian, n_sentences: int) -> tuple[float, float, list[str]]:
    """Measure loss, and BLEU of greedy translations of the first sentences, which come with it."""
    pairs = job.data.valid_texts[:n_sentences]
    said = translate(job, marian, pairs, n_beams=1)
    bleu = metrics.bleu(said, [pair.target for pair in pairs])
    return validation_loss(job, marian), bleu, said
