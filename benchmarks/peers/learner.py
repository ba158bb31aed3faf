"""How a peer is trained: the shortest loop that a competent user would write."""

from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attendo.config import Recipe
from attendo.losses import cross_entropy
from peers.padded import PaddedBatch

MOST_SHAPES = 1024
"""Compiled versions that are kept; PyTorch gives up after 8."""

LEARNING_RATE = 1e-4
"""Any that does no harm, where only speed counts."""

BETAS = (0.9, 0.98)
"""Adam's, as in the paper."""


class Compiling(NamedTuple):
    """How a peer is compiled."""

    is_dynamic: bool
    """One program for all shapes, or one for each."""
    mode: str = "default"
    """As torch.compile has it."""


class Way(NamedTuple):
    """One of the ways in which a peer can be used."""

    precision: str
    compiling: Compiling | None

    @property
    def name(self) -> str:
        """Return the name for a table."""
        return f"{'compiled' if self.compiling else 'eager'}, {self.precision}"


class PeerLearner:
    """A module from source and target ids to logits, with what changes its parameters."""

    def __init__(self, model: nn.Module, recipe: Recipe, device: torch.device, way: Way) -> None:
        self.model = model.to(device).train()
        self.config = recipe.training
        self.device = device
        self.precision = way.precision
        self.loss = self._loss
        if way.compiling:
            torch._dynamo.config.recompile_limit = MOST_SHAPES
            torch._dynamo.config.accumulated_recompile_limit = MOST_SHAPES
            self.loss = torch.compile(
                self._loss, dynamic=way.compiling.is_dynamic, mode=way.compiling.mode
            )
        self.learned = [weight for weight in model.parameters() if weight.requires_grad]
        # Whatever the recipe names: Adam does the same work, and Muon does more.
        self.optimizer = torch.optim.AdamW(
            self.learned, LEARNING_RATE, betas=BETAS, weight_decay=0.0, fused=True
        )

    @property
    def n_parameters(self) -> int:
        """Return the number of learned parameters."""
        return sum(weight.numel() for weight in self.learned)

    def set_rate(self, rate: float) -> None:
        """Learn with another learning rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def learn(self, batch: PaddedBatch) -> Tensor:
        """Learn from a batch; returns the sum of its losses, still on the device."""
        batch = batch.to(self.device)
        with self._autocast():
            total = self.loss(batch.source, batch.target, batch.labels)
        (total / batch.n_target).backward()
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.learned, self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total.detach()

    def _loss(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        logits = self.model(source, target)
        return cross_entropy(logits, labels, self.config.label_smoothing).total

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


class Peer(PeerLearner):
    """A peer whose speed is measured, on a few batches again and again."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        batches: list[PaddedBatch],
        recipe: Recipe,
        device: torch.device,
        way: Way,
    ) -> None:
        super().__init__(model, recipe, device, way)
        self.name = name
        self.batches = [batch.pinned() for batch in batches] if _is_gpu(device) else batches
        self.order = cycle(self.batches)

    def step(self) -> int:
        """Learn from the next batch; returns its number of target tokens."""
        batch = next(self.order)
        self.learn(batch)
        return batch.n_target

    def warm_up(self) -> None:
        """Run every shape once, so that nothing is compiled later."""
        for batch in {batch.source.shape: batch for batch in self.batches}.values():
            self.learn(batch)

    def figures(self, seconds: float) -> dict[str, Any]:
        """Return statistics of the batches."""
        places = sum(batch.source.numel() for batch in self.batches)
        return {
            "source_fill": sum(batch.n_source for batch in self.batches) / places,
            "target_fill": sum(batch.n_target for batch in self.batches) / places,
            "shapes": len({batch.source.shape for batch in self.batches}),
        }

    def close(self) -> None:
        """Do nothing: no process is left running."""


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"
