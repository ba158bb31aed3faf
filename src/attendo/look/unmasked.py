"""Training without the look-ahead mask: the model can copy the next token.

Two small models are trained on the same pairs, with and without the mask. Without it the decoder
attends to the token that it has to predict: the training loss falls, but generation fails.
"""

import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import torch

from attendo.bundle import Bundle
from attendo.config import Recipe, TrainingConfig, TransformerConfig, load_recipe
from attendo.data.batches import Batch
from attendo.data.builtin import sentences
from attendo.data.packing import pad_grid
from attendo.engines import Translator
from attendo.errors import DataError
from attendo.models import Transformer
from attendo.specials import IGNORE
from attendo.tasks import Translation
from attendo.training.learner import Learner

N_STEPS = 150
LONGEST = 48
"""Most tokens of the text that both models translate."""

N_SENTENCES = 24
"""Sentence pairs of a batch."""

SIZES = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.n_heads": 4,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
}

TRAINING = TrainingConfig(
    learning_rate=3e-3,
    schedule="constant",
    warmup_steps=0,
    label_smoothing=0.0,
    precision="fp32",
    compile=False,
)


class Cheaters(NamedTuple):
    """Two models trained on the same pairs, and their losses at each step."""

    task: Translation
    recipe: Recipe
    with_mask: tuple[list[float], Transformer]
    without_mask: tuple[list[float], Transformer]


def train_both(task: Translation, n_steps: int = N_STEPS) -> Cheaters:
    """Train both models, from the same initial parameters, for a few seconds."""
    recipe = load_recipe("demo", SIZES)
    config = cast(TransformerConfig, recipe.model)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        masked = Transformer(config, task.source.size, task.target.size)
    unmasked = copy.deepcopy(masked)
    unmasked.decoder.causal = False
    return Cheaters(task, recipe, *(_train(task, model, n_steps) for model in (masked, unmasked)))


def compare(cheaters: Cheaters, text: str) -> dict[str, Any]:
    """Return the losses of both models and their translations of a text."""
    task = cheaters.task
    if (n_tokens := len(task.source.encode(text))) > LONGEST:
        raise DataError(
            f"the text has {n_tokens} tokens, at most {LONGEST} are allowed: enter a shorter one"
        )
    both = {"with_mask": cheaters.with_mask, "without_mask": cheaters.without_mask}
    translators = {
        name: Translator(Bundle(cheaters.recipe, task, model)) for name, (_, model) in both.items()
    }
    translations = {
        name: translator.translate([text], strategy="greedy")[0]
        for name, translator in translators.items()
    }
    losses = {name: values for name, (values, _) in both.items()}
    return {**losses, "source": text, "translations": translations}


def _train(task: Translation, model: Transformer, n_steps: int) -> tuple[list[float], Transformer]:
    learner = Learner(model, task.loss, TRAINING, SIZES["model.d_model"])
    losses = [
        round(learner.update(batch, step).item() / batch.n_labels, 4)
        for step, batch in enumerate(islice(_batches(task), n_steps), start=1)
    ]
    return losses, model.eval()


def _batches(task: Translation) -> Iterator[Batch]:
    """Yield batches of the built-in corpus."""
    pairs = sentences(seed=11)
    while True:
        chosen = list(islice(pairs, N_SENTENCES))
        source, target = (
            tokenizer.encode_batch([getattr(pair, side) for pair in chosen])
            for tokenizer, side in ((task.source, "source"), (task.target, "target"))
        )
        specials = task.target.specials
        labels = [torch.tensor([*ids, specials.eos]) for ids in target]
        inputs = {
            "source": pad_grid([[*ids, specials.eos] for ids in source], specials.pad),
            "target": pad_grid([[specials.bos, *ids] for ids in target], specials.pad),
        }
        expected = torch.nn.utils.rnn.pad_sequence(labels, True, IGNORE)
        yield Batch(inputs, expected, sum(map(len, labels)), ())
