"""One weight update: forward, backward, clip, optimizer, moving average."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from attendo.bundle import weights_of
from attendo.config import TrainingConfig, choose
from attendo.data.batches import Batch
from attendo.models import Seq2Seq
from attendo.tasks import Translation
from attendo.training.optimizers import build_optimizers
from attendo.training.schedules import SCHEDULES


class Learner:
    """A model together with what changes its weights."""

    def __init__(
        self, model: Seq2Seq, task: Translation, config: TrainingConfig, d_model: int
    ) -> None:
        self.model = model
        self.config = config
        self.d_model = d_model
        self.device = next(model.parameters()).device
        self.optimizers = build_optimizers(model, config)
        self.schedule = choose(SCHEDULES, config.schedule, "training.schedule")
        self.loss = torch.compile(task.loss) if config.compile else task.loss
        self.ema = {}
        if config.ema:
            self.ema = {name: weight.clone() for name, weight in weights_of(model).items()}

    def rate(self, step: int) -> float:
        """Give the learning rate of a step."""
        return self.config.learning_rate * self.schedule(step, self.config, self.d_model)

    def update(self, batch: Batch, step: int) -> Tensor:
        """Learn from a batch; returns the sum of its losses, still on the device."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step)
        total = torch.zeros((), device=self.device)
        for part in batch.split(self.config.accumulate):
            with self.autocast():
                loss = self.loss(self.model, part.to(self.device), self.config.label_smoothing)
            (loss.total / batch.n_labels).backward()
            total += loss.total.detach()
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.ema:
            for name, weight in weights_of(self.model).items():
                self.ema[name].lerp_(weight, 1 - self.config.ema)
        return total

    def autocast(self) -> AbstractContextManager[object]:
        """Compute in bf16 where the recipe and the hardware allow it; weights stay in fp32."""
        has_bf16 = self.device.type == "cuda" and torch.cuda.is_bf16_supported()
        if self.config.precision == "bf16" or (self.config.precision == "auto" and has_bf16):
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()
