"""Starting from another run: its vocabulary, its model settings and its parameters."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from attendo.bundle import (
    PARAMETERS,
    TARGET_TOKENIZER,
    TOKENIZER,
    check_finite,
    check_parameters,
    load_parameters,
    load_task,
    read_tensors,
)
from attendo.config import Recipe, make_recipe
from attendo.data.corpus import CHUNK, Corpus, Numbers
from attendo.data.readers import Record
from attendo.data.texts import Texts
from attendo.errors import BundleError, ConfigError, DataError, command_line
from attendo.tasks import Task
from attendo.training.prepare import Prepared, open_prepared

FREE = {
    "model": {"p_drop", "p_drop_attention", "p_drop_inner"},
    "tokenizer": {"dropout"},
}
"""Settings of these sections that trained parameters do not depend on."""

SAMPLE = 1000
"""Number of pairs that are encoded to estimate their mean length."""

TESTED = "validation or test pairs of the run that this one starts from"


@dataclass(frozen=True, slots=True)
class Start:
    """A trained run that another one starts from."""

    folder: Path
    recipe: Recipe
    task: Task

    def hand_over(self, recipe: Recipe) -> Recipe:
        """Return a recipe with the settings of the run; some of them must not differ."""
        values = recipe.model_dump(exclude_unset=True, mode="json")
        if values.setdefault("task", self.recipe.task) != self.recipe.task:
            raise ConfigError(
                f"task = {recipe.task!r}, but {str(self.folder)!r} was trained for the task "
                f"{self.recipe.task!r}; leave the task out, or train without --from"
            )
        for section, free in FREE.items():
            own, wanted = self._own(section), values.get(section, {})
            for key, value in wanted.items():
                if key not in free and value != own.get(key):
                    raise ConfigError(
                        f"{section}.{key} = {value!r} does not fit the parameters of "
                        f"{str(self.folder)!r}, which were trained with {own.get(key)!r}; "
                        "leave it out, or train without --from"
                    )
            values[section] = {**own, **wanted}
        values["start"] = str(self.folder)
        values["data"] = {"max_length": self.recipe.data.max_length, **values.get("data", {})}
        values["decoding"] = {**self.recipe.decoding.model_dump(), **values.get("decoding", {})}
        return make_recipe(values)

    def _own(self, section: str) -> dict[str, Any]:
        """Return the settings of a section, with the tokenizer files of the run folder."""
        own: dict[str, Any] = getattr(self.recipe, section).model_dump(
            exclude_none=True, mode="json"
        )
        if section == "tokenizer":
            own["path"] = str(self.folder / TOKENIZER)
            if own["shared"] is not True:
                own["target_path"] = str(self.folder / TARGET_TOKENIZER)
        return own

    def check(self) -> None:
        """Raise an error if parameters are damaged or do not match the recipe."""
        path = self.folder / PARAMETERS
        check_parameters(path, self.recipe, self.task)
        check_finite(read_tensors(path), path)

    def load_parameters(self, model: nn.Module) -> None:
        """Load the parameters of the run into a model."""
        load_parameters(model, self.folder / PARAMETERS)

    def prepared(self) -> Prepared | None:
        """Open its own data; None if the run folder has no state/ any more."""
        data = self.folder / "state" / "data"
        return open_prepared(data, self.task, self.recipe) if data.exists() else None

    def mix(self, texts: Texts, share: float) -> Texts:
        """Add some of its own training pairs to new ones, against forgetting.

        Validation and test pairs of either run are left out.
        """
        data = self.prepared()
        if data is None:
            return texts
        own = {pair[0] for pair in data.valid_texts + data.test_texts}
        new = {pair[0] for pair in texts.valid + texts.test}
        n_tested = sum(pair[0] in own for pair in texts.train())
        n_new = texts.n_train - n_tested
        if not n_new:
            raise DataError(
                f"all of these pairs are validation or test pairs of {self.folder}; give others"
            )
        numbers = self._choose(data.train, int(min(share * n_new, data.train.size)), new)

        def train() -> Iterator[Record]:
            yield from (pair for pair in texts.train() if pair[0] not in own)
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
        """Choose pairs at random, without these sources."""
        numbers = np.random.default_rng(n).choice(corpus.size, n, replace=False)
        kept = [n for n, pair in self._texts(corpus, numbers) if pair[0] not in tested]
        return np.array(kept, dtype=np.int64)

    def _texts(self, corpus: Corpus, numbers: Numbers) -> Iterator[tuple[int, Record]]:
        """Decode encoded pairs."""
        generator = np.random.default_rng(0)  # for segmentations, which all decode to the same text
        for some in np.array_split(numbers, len(numbers) // CHUNK + 1):
            columns = [
                column.take(some, generator).sequences() for column in corpus.columns.values()
            ]
            for number, *example in zip(some.tolist(), *columns, strict=True):
                yield number, self.task.decode(tuple(example))

    def mean_tokens(self, texts: Texts) -> float:
        """Measure the mean length of training pairs, in tokens of the longer side."""
        every = math.ceil(texts.n_train / SAMPLE)
        sample = list(islice(texts.train(), 0, None, every))
        data = self.recipe.data.model_copy(update={"max_length": 1_000_000, "max_ratio": 0.0})
        examples = [example for _, example in self.task.encode(sample, data, Counter())]
        columns = zip(*examples, strict=True)
        return 1 + max(sum(map(len, column)) for column in columns) / len(sample)


def start_of(recipe: Recipe) -> Start | None:
    """Open the run that a recipe starts from, if there is one."""
    return None if recipe.start is None else open_start(Path(recipe.start))


def open_start(folder: Path) -> Start:
    """Open a run to start from."""
    recipe, task = load_task(folder)
    if not (folder / PARAMETERS).exists():
        raise BundleError(
            f"{str(folder)!r} has no {PARAMETERS}: its training has not ended; "
            f"continue it with: {command_line('train', '--out', folder, '--resume')}"
        )
    return Start(folder.resolve(), recipe, task)
