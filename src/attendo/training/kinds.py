"""Every kind that a recipe can name, with its table."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from attendo.config import Recipe, TokenizerConfig, choose
from attendo.decoding import STRATEGIES
from attendo.nn.attention import ATTENTIONS
from attendo.nn.feedforward import FEED_FORWARDS
from attendo.nn.layers import NORMS
from attendo.nn.positions import POSITIONS
from attendo.nn.recurrence import CELLS
from attendo.tasks import TASKS
from attendo.text import TOKENIZERS, check_vocabulary, load_tokenizer
from attendo.training.optimization import OPTIMIZERS, SCHEDULES


def check_kinds(recipe: Recipe) -> None:
    """Refuse unknown kinds before any work is done."""
    for key, table in (KINDS | FAMILY_KINDS.get(recipe.model.kind, {})).items():
        choose(table, attrgetter(key)(recipe), key)
    for kind in getattr(recipe.model, "attention_pattern", ()):
        choose(ATTENTIONS, kind, "model.attention_pattern")


def check_tokenizers(config: TokenizerConfig) -> None:
    """Raise an error for tokenizers that cannot be learned or read, before any data is."""
    if config.path is None or (config.shared is not True and config.target_path is None):
        check_vocabulary(config.kind, config.vocabulary, lossless=config.lossless)
    for path in (config.path, config.target_path):
        if path is not None:
            load_tokenizer(path)


KINDS: dict[str, Mapping[str, Any]] = {
    "task": TASKS,
    "tokenizer.kind": TOKENIZERS,
    "training.optimizer": OPTIMIZERS,
    "training.schedule": SCHEDULES,
    "decoding.strategy": STRATEGIES,
}

FAMILY_KINDS: dict[str, dict[str, Mapping[str, Any]]] = {
    "transformer": {
        "model.attention": ATTENTIONS,
        "model.positions": POSITIONS,
        "model.feed_forward": FEED_FORWARDS,
        "model.norm": NORMS,
    },
    "recurrent": {"model.cell": CELLS},
}
"""Those of model families."""
