"""Starting from another run: its vocabulary, its model settings and its parameters.

A run of the same task continues it, with all parameters. A run of another task, or with other
labels, takes over the body of its model and begins with a new head. Where the body is an encoder
and the task needs an encoder with a decoder, the decoder is new.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
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
    load_task,
    parameters_file,
    parameters_of,
    put_tensors,
    read_parameters,
    shapes_of,
)
from attendo.config import Recipe, TransformerConfig, choose, make_recipe
from attendo.data.corpus import CHUNK, Corpus, Numbers
from attendo.data.readers import Record
from attendo.data.texts import Texts
from attendo.errors import BundleError, ConfigError, DataError, command_line
from attendo.models import CausalLM, Encoder, Model, Seq2Seq
from attendo.models.outline import shapes_only
from attendo.models.transformer import fold_token_types
from attendo.tasks import TASKS, Task
from attendo.training.finetuning import taken_over
from attendo.training.prepare import Prepared, name_reasons, open_prepared

FREE = {
    "model": {"p_drop", "p_drop_attention", "p_drop_inner", "p_drop_embedding", "pooling"},
    "tokenizer": {"dropout"},
    "image": set(),
    "audio": set(),
}
"""Settings of these sections that trained parameters do not depend on."""

HEAD = {"pooling"}
"""Settings of [model] that only the head needs: a new one has those of its recipe."""

DECODER = {"decoder_layers", "output_bias", "logit_cap"}
"""The same of a new decoder."""

PACE = (
    "steps", "batch_tokens", "optimizer", "learning_rate", "schedule", "warmup_steps",
    "validate_every", "save_every",
)  # fmt: skip
"""Settings of [training] that a preset has for new parameters, and that a start needs others of."""

BODIES: dict[type[Model], str] = {
    Encoder: "an encoder",
    CausalLM: "a decoder",
    Seq2Seq: "an encoder with a decoder",
}

SAMPLE = 1000
"""Number of pairs that are encoded to estimate their mean length."""

TESTED = "validation or test pairs of the run that this one starts from"


@dataclass(frozen=True, slots=True)
class Start:
    """A trained run that another one starts from."""

    folder: Path
    recipe: Recipe
    task: Task

    def hand_over(self, recipe: Recipe, given: Mapping[str, Any] | None = None) -> Recipe:
        """Return a recipe with the settings of the run; some of them must not differ.

        Args:
            recipe: The recipe of the new run.
            given: The tree of settings that are the user's wish. Others are of a preset and give
                way to those of the run. Without it, all of the recipe's are.

        Raises:
            ConfigError: The task needs another kind of model, or a setting does not fit.
        """
        values = recipe.model_dump(exclude_unset=True, mode="json")
        given = values if given is None else given
        self._check_task(values.setdefault("task", self.recipe.task))
        values["start"] = str(self.folder)
        is_encoder = self.is_encoder_of(TASKS[values["task"]])
        new = HEAD | (DECODER if is_encoder else set())
        head = {key: value for key, value in values.get("model", {}).items() if key in new}
        for section, free in FREE.items():
            if is_encoder and section == "tokenizer" and not (self.folder / TOKENIZER).exists():
                continue  # an encoder of images or recordings has none
            wanted = _given(values, given, section)
            values[section] = self._fitting(section, wanted, free | new)
        paced = set(PACE) - _given(values, given, "training").keys()
        values["training"] = {
            key: value for key, value in values.get("training", {}).items() if key not in paced
        }
        data = _given(values, given, "data")
        values["data"] = {"max_length": self.recipe.data.max_length, **values.get("data", {})}
        self._limit_length(values["data"], data)
        if values["task"] != self.recipe.task:
            values["model"] |= head
            if is_encoder:  # whose token types become part of the embedding
                values["model"] |= {"token_types": 0, "separator": -1}
                values["finetuning"] = {**values.get("finetuning", {}), "encoder_only": True}
            return make_recipe(values)
        values["data"]["layout"] = data.get("layout", self.recipe.data.layout)
        for section in ("decoding", "masking", "noise", "parsing"):
            before = getattr(self.recipe, section).model_dump(mode="json")
            values[section] = before | values.get(section, {})
        return make_recipe(values)

    def _fitting(self, section: str, wanted: Mapping[str, Any], free: set[str]) -> dict[str, Any]:
        """Return the settings of a section of the run, with some others that must fit them."""
        own = self._own(section)
        for key, value in wanted.items():
            if key not in free and value != own.get(key):
                raise ConfigError(
                    f"{section}.{key} = {value!r} does not fit the parameters of "
                    f"{str(self.folder)!r}, which were trained with {own.get(key)!r}; "
                    "leave it out, or train without --from"
                )
        return {**own, **wanted}

    def _check_task(self, name: str) -> None:
        """Raise an error if models of a task have another kind of body than those of this run."""
        own, wanted = self.task.promise, choose(TASKS, name, "task").promise
        if name == self.recipe.task or own is wanted or Model in (own, wanted):
            return
        if self.is_encoder_of(TASKS[name]):
            return
        fitting = [one for one, task in TASKS.items() if task.promise is wanted]
        raise ConfigError(
            f"{str(self.folder)!r} is {BODIES[own]} (task {self.recipe.task!r}), but the task "
            f"{name!r} needs {BODIES[wanted]}; start from a run of one of these tasks: "
            f"{', '.join(fitting)}"
        )

    def _limit_length(self, data: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Keep texts within the positions that the run has learned."""
        limit, length = self.recipe.model.n_positions, data["max_length"]
        if limit is None or length <= max(limit, self.recipe.data.max_length):
            return
        if "max_length" in given:
            raise ConfigError(
                f"data.max_length = {length}, but {str(self.folder)!r} has learned "
                f"{limit} positions; set data.max_length to at most {limit}"
            )
        data["max_length"] = limit

    def _own(self, section: str) -> dict[str, Any]:
        """Return the settings of a section, with the tokenizer files of the run folder."""
        own: dict[str, Any] = getattr(self.recipe, section).model_dump(
            exclude_none=True, mode="json"
        )
        if section == "tokenizer" and (self.folder / TOKENIZER).exists():
            own["path"] = str(self.folder / TOKENIZER)
            if own["shared"] is not True:
                own["target_path"] = str(self.folder / TARGET_TOKENIZER)
        return own

    def check(self) -> None:
        """Raise an error if parameters are damaged or do not match the recipe."""
        read_parameters(self.folder, self.recipe, self.task)

    def covers(self, task: str, texts: Texts) -> bool:
        """Return whether training on these texts continues the run: same task, no new labels."""
        return task == self.recipe.task and self.task.covers(texts.train())

    def is_encoder_of(self, task: Task | type[Task]) -> bool:
        """Return whether this run is an encoder that can be that of a task with a decoder."""
        is_half = self.task.promise is Encoder and task.promise is Seq2Seq
        is_fitting = self.task.reads_files == task.reads_files
        return is_half and is_fitting and isinstance(self.recipe.model, TransformerConfig)

    def is_continued_by(self, task: Task) -> bool:
        """Return whether a new run has the same task, vocabulary and labels."""
        return task.name == self.task.name and task.files() == self.task.files()

    def load_parameters(self, model: nn.Module, task: Task) -> None:
        """Load the parameters of the run into a model: all, or those of the body of another task's.

        Raises:
            BundleError: The run does not have all parameters of the body.
        """
        tensors = read_parameters(self.folder, self.recipe, self.task)
        if self.is_continued_by(task):
            put_tensors(parameters_of(model), tensors, self.folder)
            return
        names = self.check_body(task, model)
        body = {name: tensors[own] for name, own in names.items()}
        part = parameters_of(self._part(task, model))
        if self.is_encoder_of(task):
            body = fold_token_types(body, self.recipe.model)
        put_tensors(part, {name: body[name] for name in part}, self.folder)

    def check_body(self, task: Task, model: nn.Module) -> dict[str, str]:
        """Raise an error unless the run has the body of a model; return the names it has there."""
        with shapes_only():
            own = self.task.build(self.recipe.model)
        full = {parameter: name for name, parameter in own.named_parameters()}
        names = {
            name: full[parameter] for name, parameter in self.task.body(own).named_parameters()
        }
        parts = self.task.body(own), self._part(task, model)
        has, needs = (shapes_of(parameters_of(part)) for part in parts)
        lacking = [name for name, shape in needs.items() if has.get(name) != shape]
        if lacking:
            name = lacking[0]
            shape = list(has[name]) if name in has else "missing"
            raise BundleError(
                f"the model of {str(self.folder)!r} does not fit the task {task.name!r}: "
                f"{len(lacking)} parameters of the body differ, the first is {name!r} ({shape}, "
                f"expected {list(needs[name])}); start from another run, or train without --from"
            )
        return names

    def _part(self, task: Task, model: nn.Module) -> nn.Module:
        """Return the part of another model that begins with parameters of this run."""
        return taken_over(task.body(model), encoder_only=self.is_encoder_of(task))

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


def mean_tokens(task: Task, recipe: Recipe, texts: Texts) -> float:
    """Measure the mean length of training records, in tokens of the longest column."""
    every = math.ceil(texts.n_train / SAMPLE)
    sample = list(islice(texts.train(), 0, None, every))
    data = recipe.data.model_copy(update={"max_length": 1_000_000, "max_ratio": 0.0})
    dropped: Counter[str] = Counter()
    examples = [example for _, example in task.encode(sample, data, dropped)]
    if not examples:
        raise DataError(f"no training record can be used: {name_reasons(dropped)}")
    columns = zip(task.columns, zip(*examples, strict=True), strict=True)
    totals = [sum(map(len, column)) for name, column in columns if name in task.pads]
    mean = 1 + max(totals) / len(examples)
    return min(mean, recipe.data.max_length)  # longer ones are cut or left out


def _given(values: Mapping[str, Any], given: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the settings of a section that the user has given, as they were checked."""
    wanted = given.get(section, {})
    return {key: value for key, value in values.get(section, {}).items() if key in wanted}


def start_of(recipe: Recipe) -> Start | None:
    """Open the run that a recipe starts from, if there is one."""
    return None if recipe.start is None else open_start(Path(recipe.start))


def open_start(folder: Path) -> Start:
    """Open a run to start from."""
    recipe, task = load_task(folder)
    if parameters_file(folder) is None:
        raise BundleError(
            f"{str(folder)!r} has no {PARAMETERS}: its training has not ended; "
            f"continue it with: {command_line('train', '--out', folder, '--resume')}"
        )
    return Start(folder.resolve(), recipe, task)
