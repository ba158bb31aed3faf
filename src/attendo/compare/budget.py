"""What every system may spend, and how a recipe is made to fit it."""

import math
from typing import Any, Literal, NamedTuple

from attendo.config import TrainingConfig
from attendo.errors import ConfigError

VALIDATIONS = 8
"""Points of a learning curve, at least, where a budget decides when a training ends."""


class Budget(NamedTuple):
    """The same for all: target tokens, seconds of training, or each recipe's steps.

    With a budget of parameters models are made wider or narrower to have as many.
    """

    kind: Literal["steps", "tokens", "seconds"] = "steps"
    amount: float = 0.0
    n_weights: int | None = None

    def __str__(self) -> str:
        units = {"tokens": "target tokens", "seconds": "seconds of training"}
        spent = "the steps of each recipe"
        if self.kind != "steps":
            spent = f"{self.amount:,.10g} {units[self.kind]} each"
        return spent + (f", and about {self.n_weights:,} parameters each" if self.n_weights else "")

    def settings(self, name: str, training: TrainingConfig) -> dict[str, Any]:
        """Return the settings with which a recipe's training ends with the budget.

        Raises:
            ConfigError: The budget is smaller than one step.
        """
        if self.kind == "seconds":
            return {"training.seconds": self.amount, **_intervals(training, training.steps)}
        if self.kind == "steps":
            return {}
        steps = int(self.amount // training.batch_tokens)
        if steps < 1:
            raise ConfigError(
                f"--budget-tokens {self.amount:.10g} is too little for {name!r}: one step takes "
                f"{training.batch_tokens:,} (training.batch_tokens); give more, or a smaller recipe"
            )
        limit = {"training.seconds": 0.0} if training.seconds else {}
        return fitted(training, steps) | limit


OWN_STEPS = Budget()


def choose_budget(tokens: int | None, seconds: float | None, n_weights: int | None) -> Budget:
    """Make a budget of what was given: one of the first two, or neither."""
    if tokens is not None and seconds is not None:
        raise ConfigError("--budget-tokens and --budget-seconds: give one of them, not both")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"--budget-seconds {seconds:g}: give a number of seconds above 0")
    if tokens is not None:
        return Budget("tokens", float(tokens), n_weights)
    if seconds is not None:
        return Budget("seconds", seconds, n_weights)
    return Budget(n_weights=n_weights)


def fitted(training: TrainingConfig, steps: int) -> dict[str, Any]:
    """Return the settings with which a recipe's schedule, stretched or shrunk, ends at a step.

    The warm-up keeps its share of all steps and the learning rate its highest value.
    """
    if steps == training.steps:
        return {}
    warmup = _scaled(training.warmup_steps, steps / training.steps)
    settings: dict[str, Any] = {
        "training.steps": steps,
        "training.warmup_steps": warmup,
        **_intervals(training, steps),
    }
    if training.schedule == "paper" and training.warmup_steps:
        # Its highest rate is learning_rate · (d_model · warmup_steps)^-0.5.
        share = math.sqrt(warmup / training.warmup_steps)
        settings["training.learning_rate"] = training.learning_rate * share
    return settings


def _intervals(training: TrainingConfig, steps: int) -> dict[str, int]:
    """Return how often to validate, save and log in so many steps."""
    every = math.ceil(steps / max(VALIDATIONS, round(training.steps / training.validate_every)))
    return {
        "training.validate_every": every,
        "training.save_every": min(training.save_every, max(1, 2 * every)),
        "training.log_every": min(training.log_every, every),
    }


def _scaled(warmup: int, ratio: float) -> int:
    return max(1, round(warmup * ratio)) if warmup else 0
