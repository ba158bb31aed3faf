"""One parameter update (forward, backward, clip, optimizer, moving average), and validation.

Everything that is trained is trained here: runs, benchmarks, and the small models of probes and
pages.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attendo.bundle import parameters_of
from attendo.config import DecodingConfig, TrainingConfig, choose
from attendo.data.batches import Batch, Layout, once
from attendo.data.corpus import Corpus
from attendo.data.readers import Record
from attendo.losses import Loss, count_labels, linear_cross_entropy
from attendo.models import Model
from attendo.nn import fast
from attendo.nn.fast.graph import Graph
from attendo.nn.fast.stacks import accelerate
from attendo.tasks import Task
from attendo.training.optimization import SCHEDULES, build_optimizers


class Learner:
    """A model with its optimizers, learning rate and moving average."""

    def __init__(
        self,
        model: Model,
        loss: Callable[..., Loss],
        config: TrainingConfig,
        d_model: int,
        scales: Mapping[nn.Parameter, float] | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.d_model = d_model
        self.device = next(model.parameters()).device
        self.optimizers = build_optimizers(model, config, scales)
        self.schedule = choose(SCHEDULES, config.schedule, "training.schedule")
        self.ema = {}
        if config.ema:
            self.ema = {name: weight.clone() for name, weight in parameters_of(model).items()}
        self.loss = loss
        self.step: Callable[[Batch], Tensor] = self._step
        if is_compiled(config, self.device) and model.parts():
            self._compile()
        else:
            self._accelerate(compiled=False)

    def _accelerate(self, *, compiled: bool) -> None:
        accelerate(
            self.model,
            compiled=compiled,
            checkpointed=self.config.activation_checkpointing,
            half_residual=self.config.residual == "bf16",
        )

    def _compile(self) -> None:
        """Compile part by part: all layers of a stack share one program, which is made soon."""
        # PyTorch keeps few programs for the same code, and those of another model only hinder.
        torch.compiler.reset()
        self._accelerate(compiled=True)
        for part in self.model.parts():
            part.compile()
        # For sizes that vary, the compiler of torch 2.11 fails; after a few it gives up compiling.
        criterion = torch.compile(linear_cross_entropy, dynamic=False)
        self.loss = partial(self.loss, criterion=criterion)
        # To draw the same random numbers again, a layer sets the state of the GPU's generator,
        # which cannot be recorded.
        if self.device.type == "cuda" and not self.config.activation_checkpointing:
            self.step = Graph(self._step)

    def rate(self, step: int | float) -> float:
        """Return the learning rate of a step."""
        return self.config.learning_rate * self.schedule(step, self.config, self.d_model)

    def update(self, batch: Batch, step: int | float) -> Tensor:
        """Update the parameters with a batch; return the sum of its losses, on the device."""
        self._set_rate(self.rate(step))
        batch = batch.to(self.device)
        if self.device.type == "cuda":
            # Another stream brought them, and must not use their memory again before we are done.
            for tensor in batch.tensors():
                tensor.record_stream(torch.cuda.current_stream())
        return self.step(batch)

    def _set_rate(self, rate: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                own = rate * group["scale"]
                if isinstance(group["lr"], Tensor):  # read by a recorded step
                    group["lr"].fill_(own)
                else:
                    group["lr"] = own

    def _step(self, batch: Batch) -> Tensor:
        """Update the parameters without waiting for a GPU."""
        n_labels = count_labels(batch.labels)
        total = torch.zeros((), device=self.device)
        for part in batch.split(self.config.accumulate):
            with self.autocast():
                loss = self.loss(self.model, part, self.config.label_smoothing, self.config.r_drop)
            (loss.total / n_labels).backward()
            total += loss.total.detach()
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.ema:
            parameters = parameters_of(self.model)
            names = list(parameters)
            torch._foreach_lerp_(
                [self.ema[name] for name in names],
                [parameters[name] for name in names],
                1 - self.config.ema,
            )
        return total

    def autocast(self) -> AbstractContextManager[object]:
        """Compute in bf16 where recipe and hardware allow it; parameters are in fp32."""
        is_fit = self.config.precision == "auto" and is_fast_in_bf16(self.device)
        if self.config.precision == "bf16" or is_fit:
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


@contextmanager
def without_tiny_numbers(device: torch.device) -> Iterator[None]:
    """Flush numbers below 10⁻³⁸ to zero on a CPU inside the context.

    Gradients that vanish on their way through a recurrent network become so small, and a CPU may
    take forty times as long over them. To be entered first of all: threads that PyTorch has started
    before continue as they did.
    """
    is_changed = device.type == "cpu" and torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if is_changed:
            torch.set_flush_denormal(False)


def is_compiled(config: TrainingConfig, device: torch.device) -> bool:
    """Return whether the step is compiled; auto means on GPUs that support it."""
    if config.compile == "auto":
        return device.type == "cuda" and fast.AVAILABLE
    return config.compile


def is_fast_in_bf16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bf16 faster than fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


class Validation(NamedTuple):
    """What is measured on the validation records."""

    loss: float
    value: float | None = None
    """The metric of the task, if it is measured."""


@dataclass(frozen=True, slots=True)
class Validator:
    """Measures loss on all validation records and the metric on the first few."""

    task: Task
    corpus: Corpus
    layout: Layout
    texts: list[Record]
    """The records whose metric is measured at each validation."""
    device: torch.device
    options: DecodingConfig
    by_metric: bool = False
    """Whether checkpoints are compared by the metric; if not, by the loss."""

    def measure(self, model: nn.Module) -> Validation:
        """Measure the loss, and the metric if there are records for it."""
        return Validation(self.loss(model), self.score(model) if self.texts else None)

    def rank(self, found: Validation) -> tuple[float, ...]:
        """Return what is lower for a better checkpoint; of equal metrics the loss decides."""
        if not self.by_metric:
            return (found.loss,)
        if found.value is None:
            return (math.inf, found.loss)
        return (-found.value if self.task.metric.higher_is_better else found.value, found.loss)

    def describe(self, found: Validation) -> str:
        """Return what was measured in words."""
        metric = self.task.metric
        score = "" if found.value is None else f", {metric.title} {found.value:.1f}"
        return f"validation loss {found.loss:.3f}{score}"

    def loss(self, model: nn.Module) -> float:
        """Return the mean loss per label, without label smoothing."""
        total, count = 0.0, 0
        with evaluating(model):
            for batch in once(self.corpus, self.layout):
                loss = self.task.loss(model, batch.to(self.device), 0.0)
                total, count = total + float(loss.total), count + batch.n_labels
        return total / max(1, count)

    def score(self, model: nn.Module, records: list[Record] | None = None) -> float:
        """Return the metric of the task, of `texts` or of the given records."""
        chosen = self.texts if records is None else records
        with evaluating(model):
            return self.task.validate(model, chosen, self.options, self.device)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients inside the context."""
    model.eval()
    try:
        # Batches of many shapes: compiling for each of them would take longer than it saves.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        model.train()
