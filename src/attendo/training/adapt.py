"""Beginning with what another run has learned: its vocabulary, its model and its weights."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attendo.bundle import TARGET_TOKENIZER, TOKENIZER, WEIGHTS, load_task, read_weights
from attendo.config import Recipe, make_recipe
from attendo.data.corpus import CHUNK, Corpus, Numbers
from attendo.data.readers import Pair
from attendo.data.texts import Texts
from attendo.errors import BundleError, ConfigError, DataError, command_line
from attendo.models import Seq2Seq
from attendo.tasks import Translation
from attendo.training.prepare import Prepared, open_prepared

FREE = {
    "model": {"p_drop", "p_drop_attention", "p_drop_inner"},
    "tokenizer": {"dropout"},
}
"""Settings of these sections that trained weights do not depend on."""

SAMPLE = 1000
"""Pairs that are encoded to find out how long they are."""

TESTED = "the run that is begun with is validated or tested with them"


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
            own, wanted = self._own(section), values.get(section, {})
            for key, value in wanted.items():
                if key not in free and value != own.get(key):
                    raise ConfigError(
                        f"{section}.{key} = {value!r} does not fit the weights of "
                        f"{str(self.folder)!r}, which have {own.get(key)!r}; "
                        "leave it out, or train without --from"
                    )
            values[section] = {**own, **wanted}
        values["start"] = str(self.folder)
        values["data"] = {"max_length": self.recipe.data.max_length, **values.get("data", {})}
        values["decoding"] = {**self.recipe.decoding.model_dump(), **values.get("decoding", {})}
        return make_recipe(values)

    def _own(self, section: str) -> dict[str, Any]:
        """List the settings of a section, with the files of the vocabulary as it is now."""
        own: dict[str, Any] = getattr(self.recipe, section).model_dump(
            exclude_none=True, mode="json"
        )
        if section == "tokenizer":
            own["path"] = str(self.folder / TOKENIZER)
            if not own["shared"]:
                own["target_path"] = str(self.folder / TARGET_TOKENIZER)
        return own

    def put_weights(self, model: Seq2Seq) -> None:
        """Fill a model with what the run has learned."""
        read_weights(model, self.folder / WEIGHTS)

    def prepared(self) -> Prepared | None:
        """Open its own data; none where only the bundle has been kept."""
        data = self.folder / "state" / "data"
        return open_prepared(data, self.task, self.recipe) if data.exists() else None

    def mix(self, texts: Texts, share: float) -> Texts:
        """Add some of its own training pairs to new ones, so that it does not forget them.

        Nothing that either run is validated or tested with is trained on.
        """
        data = self.prepared()
        if data is None:
            return texts
        own = {pair.source for pair in data.valid_texts + data.test_texts}
        new = {pair.source for pair in texts.valid + texts.test}
        n_tested = sum(pair.source in own for pair in texts.train())
        n_new = texts.n_train - n_tested
        if not n_new:
            raise DataError(f"{self.folder} is validated or tested with all of these pairs")
        numbers = self._choose(data.train, int(min(share * n_new, data.train.size)), new)

        def train() -> Iterator[Pair]:
            yield from (pair for pair in texts.train() if pair.source not in own)
            yield from (pair for _, pair in self._texts(data.train, numbers))

        dropped = texts.report.dropped + Counter({TESTED: n_tested})
        return replace(
            texts,
            train=train,
            n_train=n_new + len(numbers),
            n_remembered=len(numbers),
            report=replace(texts.report, dropped=dropped),
        )

    def _choose(self, corpus: Corpus, n: int, tested: set[str]) -> Numbers:
        """Choose pairs at random, but none with these sources."""
        numbers = np.random.default_rng(n).choice(corpus.size, n, replace=False)
        kept = [n for n, pair in self._texts(corpus, numbers) if pair.source not in tested]
        return np.array(kept, dtype=np.int64)

    def _texts(self, corpus: Corpus, numbers: Numbers) -> Iterator[tuple[int, Pair]]:
        """Turn encoded pairs back into text."""
        generator = np.random.default_rng(0)  # for ways to cut a word, which all read alike
        for some in np.array_split(numbers, len(numbers) // CHUNK + 1):
            sources = corpus.source.take(some, generator).sequences()
            targets = corpus.target.take(some, generator).sequences()
            for number, source, target in zip(some.tolist(), sources, targets, strict=True):
                yield (
                    number,
                    Pair(self.task.source.decode(source), self.task.target.decode(target)),
                )

    def mean_tokens(self, texts: Texts) -> float:
        """Measure the mean length of training pairs, in places of the longer side."""
        every = math.ceil(texts.n_train / SAMPLE)
        sample = list(islice(texts.train(), 0, None, every))
        sources = self.task.source.encode_batch([pair.source for pair in sample])
        targets = self.task.target.encode_batch([pair.target for pair in sample])
        return 1 + max(sum(map(len, side)) for side in (sources, targets)) / len(sample)


def start_of(recipe: Recipe) -> Start | None:
    """Open the run that a recipe begins with, if it does."""
    return None if recipe.start is None else open_start(Path(recipe.start))


def open_start(folder: Path) -> Start:
    """Open a run to begin with."""
    recipe, task = load_task(folder)
    if not (folder / WEIGHTS).exists():
        raise BundleError(
            f"{str(folder)!r} has not finished training, so nothing can start from it; "
            f"continue it with: {command_line('train', '--out', folder, '--resume')}"
        )
    return Start(folder.resolve(), recipe, task)
