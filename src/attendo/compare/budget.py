"""What every system may spend, and how a recipe's schedule is made to fit it."""

import math
from typing import Any, Literal, NamedTuple

from attendo.config import TrainingConfig
from attendo.errors import ConfigError

VALIDATIONS = 8
"""Points of a learning curve, at least, where a budget sets the number of steps."""


class Budget(NamedTuple):
    """The same for all: places for target tokens, seconds of learning, or each recipe's steps.

    Besides that, weights: to have so many, models are made wider or narrower.
    """

    kind: Literal["steps", "tokens", "seconds"] = "steps"
    amount: float = 0.0
    n_weights: int | None = None

    def __str__(self) -> str:
        if self.kind == "steps":
            spent = "the recipes' own numbers of steps"
        else:
            unit = "places for target tokens" if self.kind == "tokens" else "seconds of learning"
            spent = f"{self.amount:,.10g} {unit} each"
        return spent + (f", and about {self.n_weights:,} weights each" if self.n_weights else "")

    def steps(self, name: str, training: TrainingConfig, step_seconds: float | None) -> int:
        """Say how many steps of a recipe the budget pays for; seconds are known once measured.

        Raises:
            ConfigError: It does not pay for one.
        """
        if self.kind == "steps":
            return training.steps
        if self.kind == "tokens":
            cost, what = float(training.batch_tokens), "places (training.batch_tokens)"
        else:
            assert step_seconds is not None, "a budget of seconds needs the seconds of a step"
            cost, what = step_seconds, "seconds"
        steps = int(self.amount // cost)
        if steps < 1:
            raise ConfigError(
                f"--budget-{self.kind} {self.amount:.10g} is too little for {name!r}: "
                f"one step of it takes {cost:.3g} {what}; give more, or a smaller recipe"
            )
        return steps


OWN_STEPS = Budget()


def choose_budget(tokens: int | None, seconds: float | None, n_weights: int | None) -> Budget:
    """Make a budget of what a person has given: one of the first two, or neither."""
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
    """Give the settings with which a recipe's schedule, drawn out or drawn in, ends at a step.

    The warm-up keeps its share of all steps and the learning rate its highest value.
    """
    if steps == training.steps:
        return {}
    warmup = _scaled(training.warmup_steps, steps / training.steps)
    every = math.ceil(steps / max(VALIDATIONS, round(training.steps / training.validate_every)))
    settings: dict[str, Any] = {
        "training.steps": steps,
        "training.warmup_steps": warmup,
        "training.validate_every": every,
        "training.save_every": min(training.save_every, max(1, 2 * every)),
        "training.log_every": min(training.log_every, every),
    }
    if training.schedule == "paper" and training.warmup_steps:
        # Its highest rate is learning_rate · (d_model · warmup_steps)^-0.5.
        share = math.sqrt(warmup / training.warmup_steps)
        settings["training.learning_rate"] = training.learning_rate * share
    return settings


def _scaled(warmup: int, ratio: float) -> int:
    return max(1, round(warmup * ratio)) if warmup else 0
