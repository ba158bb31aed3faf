"""What happens without the look-ahead mask: a model that learns to copy its own answer.

Two small models learn the same pairs, one with the mask and one without. The one without sees the
token that it is to predict: its loss falls to nothing, and it cannot translate a word.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import torch

from attendo.bundle import Bundle
from attendo.config import Recipe, TransformerConfig, load_recipe
from attendo.data.builtin import sentences
from attendo.data.grids import pad_grid
from attendo.engines import Translator
from attendo.errors import DataError
from attendo.losses import cross_entropy
from attendo.models import Transformer
from attendo.nn.grid import Grid
from attendo.specials import IGNORE
from attendo.tasks import Translation

N_STEPS = 150
LONGEST = 48
"""Most tokens of a text that both translate."""

N_SENTENCES = 24
"""In a batch."""

SIZES = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.n_heads": 4,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
}


class Cheaters(NamedTuple):
    """Two models that have learned the same pairs, and their losses step by step."""

    task: Translation
    recipe: Recipe
    with_mask: tuple[list[float], Transformer]
    without_mask: tuple[list[float], Transformer]


def train_both(task: Translation, n_steps: int = N_STEPS) -> Cheaters:
    """Train both models for a few seconds."""
    recipe = load_recipe("demo", SIZES)
    models = (_train(task, recipe, n_steps, sees=sees) for sees in (False, True))
    return Cheaters(task, recipe, *models)


def tell(cheaters: Cheaters, text: str) -> dict[str, Any]:
    """Tell the losses, and what both models make of a text."""
    task = cheaters.task
    if len(task.source.encode(text)) > LONGEST:
        raise DataError(f"the text has more than {LONGEST} tokens: take a shorter one")
    both = {"with_mask": cheaters.with_mask, "without_mask": cheaters.without_mask}
    translations = {
        name: Translator(Bundle(cheaters.recipe, task, model)).translate([text], strategy="greedy")[
            0
        ]
        for name, (_, model) in both.items()
    }
    losses = {name: values for name, (values, _) in both.items()}
    return {**losses, "source": text, "translations": translations}


def _train(
    task: Translation, recipe: Recipe, n_steps: int, *, sees: bool
) -> tuple[list[float], Transformer]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = cast(TransformerConfig, recipe.model)
        model = Transformer(config, task.source.size, task.target.size)
    model.decoder.causal = not sees
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for source, target, labels in islice(_batches(task), n_steps):
        logits = model.logits(model.decode(target, model.encode(source)))
        loss = cross_entropy(logits, labels)
        mean = loss.total / loss.n_labels
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        losses.append(round(float(mean.detach()), 4))
    return losses, model.eval()


def _batches(task: Translation) -> Iterator[tuple[Grid, Grid, torch.Tensor]]:
    """Lay out pairs of the built-in corpus: source, what the decoder sees, what it is to say."""
    pairs = sentences(seed=11)
    while True:
        chosen = list(islice(pairs, N_SENTENCES))
        source, target = (
            tokenizer.encode_batch([getattr(pair, side) for pair in chosen])
            for tokenizer, side in ((task.source, "source"), (task.target, "target"))
        )
        specials = task.target.specials
        labels = [torch.tensor([*ids, specials.eos]) for ids in target]
        yield (
            pad_grid([[*ids, specials.eos] for ids in source], specials.pad),
            pad_grid([[specials.bos, *ids] for ids in target], specials.pad),
            torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORE),
        )
