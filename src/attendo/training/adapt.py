"""Beginning with what another run has learned: its vocabulary, its model and its weights."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from attendo.bundle import TARGET_TOKENIZER, TOKENIZER, WEIGHTS, load_task, read_weights
from attendo.config import Recipe, make_recipe
from attendo.data.corpus import CHUNK, Corpus, Numbers
from attendo.data.readers import Pair
from attendo.data.texts import Texts
from attendo.errors import BundleError, ConfigError
from attendo.models import Seq2Seq
from attendo.tasks import Translation
from attendo.training.prepare import Prepared, open_prepared

FREE = {
    "model": {"p_drop", "p_drop_attention", "p_drop_inner"},
    "tokenizer": {"dropout"},
}
"""Settings of these sections that trained weights do not depend on."""


@dataclass(frozen=True, slots=True)
class Start:
    """A trained run that another one begins with."""

    folder: Path
    recipe: Recipe
    task: Translation

    def hand_over(self, recipe: Recipe) -> Recipe:
        """Fill in its model, vocabulary and search; what the weights depend on must not differ."""
        values = recipe.model_dump(exclude_unset=True, mode="json")
        for section, free in FREE.items():
            own = getattr(self.recipe, section).model_dump(exclude_none=True, mode="json")
            wanted = values.get(section, {})
            for key, value in wanted.items():
                if key not in free and value != own.get(key):
                    raise ConfigError(
                        f"{section}.{key} = {value!r} does not fit the weights of "
                        f"{str(self.folder)!r}, which have {own.get(key)!r}; "
                        "leave it out, or train without --from"
                    )
            values[section] = {**own, **wanted}
        values["start"] = str(self.folder)
        values["tokenizer"]["path"] = str(self.folder / TOKENIZER)
        if not self.recipe.tokenizer.shared:
            values["tokenizer"]["target_path"] = str(self.folder / TARGET_TOKENIZER)
        values["data"] = {"max_length": self.recipe.data.max_length, **values.get("data", {})}
        values["decoding"] = {**self.recipe.decoding.model_dump(), **values.get("decoding", {})}
        return make_recipe(values)

    def put_weights(self, model: Seq2Seq) -> None:
        """Fill a model with what the run has learned."""
        read_weights(model, self.folder / WEIGHTS)

    def prepared(self) -> Prepared | None:
        """Open its own data; none where only the bundle has been kept."""
        data = self.folder / "state" / "data"
        return open_prepared(data, self.task, self.recipe) if data.exists() else None

    def remember(self, texts: Texts, share: float) -> Texts:
        """Add some of its own training pairs to new ones, so that it does not forget them."""
        data = self.prepared()
        n = min(round(share * texts.n_train), data.train.size) if data else 0
        if not n or not data:
            return texts
        generator = np.random.default_rng(n)
        numbers = generator.choice(data.train.size, n, replace=False)

        def old() -> Iterator[Pair]:
            for some in np.array_split(numbers, n // CHUNK + 1):
                yield from self._texts(data.train, some)

        both = replace(texts, n_train=texts.n_train + n, n_remembered=n)
        return replace(both, train=lambda: chain(texts.train(), old()))

    def _texts(self, corpus: Corpus, numbers: Numbers) -> Iterator[Pair]:
        """Turn encoded pairs back into text."""
        generator = np.random.default_rng(
            0
        )  # chooses among ways to cut a word, which all read alike
        sources = corpus.source.take(numbers, generator)
        targets = corpus.target.take(numbers, generator)
        for source, target in zip(sources.sequences(), targets.sequences(), strict=True):
            yield Pair(self.task.source.decode(source), self.task.target.decode(target))


def open_start(folder: Path) -> Start:
    """Open a run to begin with."""
    recipe, task = load_task(folder)
    if not (folder / WEIGHTS).exists():
        raise BundleError(
            f"{str(folder)!r} is not trained to its end, so nothing can begin with it; "
            f"go on with it: attendo train --out {folder} --resume"
        )
    return Start(folder, recipe, task)
