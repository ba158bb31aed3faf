"""Every task of the table keeps the promises of `tasks/base.py`."""

import math
import re
import signal
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from attendo.bundle import load_bundle, load_task, save_task
from attendo.cli import app
from attendo.config import Recipe
from attendo.data.batches import Batch, Position, stream
from attendo.data.corpus import Corpus, MemorySide, Ragged, Vectors, ragged
from attendo.data.readers import Record
from attendo.data.texts import open_texts
from attendo.engines import Engine, Generator, Translator
from attendo.errors import ConfigError
from attendo.models import CausalLM, Encoder, Seq2Seq
from attendo.serve import schema
from attendo.serve.library import Library
from attendo.specials import IGNORE
from attendo.tasks import (
    TASKS,
    Classification,
    Example,
    LanguageModel,
    PredictingTask,
    Task,
    Translation,
)
from attendo.training.complete import Interrupted
from attendo.training.prepare import make_task
from small_runs import CPU, AfterSteps, assert_same_run, small_recipe, small_run

EVERY_TASK = pytest.mark.parametrize("name", TASKS)


class Setup(NamedTuple):
    """A task that has learned its vocabulary, and records with their ids."""

    recipe: Recipe
    task: Task
    records: list[Record]
    columns: dict[str, Ragged]

    def examples(self) -> list[Example]:
        """Return the ids record by record."""
        return list(zip(*(column.sequences() for column in self.columns.values()), strict=True))

    def model(self) -> Any:
        """Build a model; noise makes the loss depend on the input from the beginning."""
        model = self.task.build(self.recipe.model).eval()
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
        return model


@cache
def set_up(name: str) -> Setup:
    recipe = small_recipe({"task": name, "model.p_drop": 0.0})
    texts = open_texts(recipe.data, TASKS[name].record_type, TASKS[name].convert)
    task = make_task(recipe, texts)
    encoded = list(task.encode(list(texts.train())[:40], recipe.data, Counter()))
    columns = zip(task.columns, zip(*(ids for _, ids in encoded), strict=True), strict=True)
    return Setup(
        recipe,
        task,
        [record for record, _ in encoded],
        {column: ragged(list(sequences)) for column, sequences in columns},
    )


def batches(setup: Setup, layout: str) -> list[Batch]:
    """Lay every record out once."""
    data = setup.recipe.data.model_copy(update={"layout": layout})
    size = len(setup.records)
    corpus = Corpus({name: MemorySide(column) for name, column in setup.columns.items()}, size)
    found = []
    for position, batch in stream(corpus, setup.task.layout(data, 512), 0, Position()):
        if position.epoch:
            break
        found.append(batch)
    assert sorted(number for batch in found for number in batch.records) == list(range(size))
    return found


# Vocabulary and data


@EVERY_TASK
def test_the_table_and_the_class_agree_about_the_name(name: str) -> None:
    assert TASKS[name].name == name
    assert all(kind is str for kind in TASKS[name].record_type.__annotations__.values())


@EVERY_TASK
def test_the_body_keeps_the_promise_of_its_task(name: str) -> None:
    setup = set_up(name)
    assert setup.task.promise in (Encoder, CausalLM, Seq2Seq)
    assert isinstance(setup.task.body(setup.model()), setup.task.promise)


@EVERY_TASK
def test_ids_are_within_the_sizes_of_their_columns(name: str) -> None:
    setup = set_up(name)
    assert tuple(setup.task.sizes) == setup.task.columns == tuple(setup.columns)
    for column, size in setup.task.sizes.items():
        ids = setup.columns[column].ids
        assert len(ids)
        if isinstance(size, Vectors):
            assert (ids.shape[1], ids.dtype) == size
        else:
            assert 0 <= ids.min() <= ids.max() < size


@EVERY_TASK
def test_labels_are_as_long_as_the_input_that_they_label(name: str) -> None:
    setup = set_up(name)
    inputs, labels = setup.task.shape(setup.columns, np.random.default_rng(0))
    assert inputs.keys() == setup.task.pads.keys()
    assert any(np.array_equal(labels.offsets, column.offsets) for column in inputs.values())
    n_classes = len(setup.model().output.weight)
    is_label = labels.ids != IGNORE
    assert ((labels.ids[is_label] >= 0) & (labels.ids[is_label] < n_classes)).all()
    # Every record has something to learn from.
    assert np.add.reduceat(is_label, labels.offsets[:-1]).min() > 0
    hidden = setup.task.hidden(setup.model(), batches(setup, "padded")[0].inputs)
    assert hidden.shape[:2] == batches(setup, "padded")[0].labels.shape


@EVERY_TASK
def test_decoding_undoes_encoding(name: str) -> None:
    setup = set_up(name)
    assert [setup.task.decode(example) for example in setup.examples()] == setup.records


@EVERY_TASK
def test_a_record_without_a_place_in_a_row_is_cut_or_counted(name: str) -> None:
    setup = set_up(name)
    short = setup.recipe.data.model_copy(update={"max_length": 4})
    dropped: Counter[str] = Counter()
    encoded = list(setup.task.encode(setup.records, short, dropped))
    assert dropped.total() + len({id(record) for record, _ in encoded}) == len(setup.records)
    if encoded:
        columns = zip(
            setup.task.columns, zip(*(ids for _, ids in encoded), strict=True), strict=True
        )
        ragged_columns = {column: ragged(list(ids)) for column, ids in columns}
        shaped = setup.task.shape(ragged_columns, np.random.default_rng(0))
        assert all(column.lengths().max() <= 4 for column in shaped.inputs.values())


@EVERY_TASK
def test_what_is_saved_gives_the_same_vocabulary(name: str, tmp_path) -> None:
    setup = set_up(name)
    save_task(tmp_path, setup.recipe, setup.task)
    recipe, loaded = load_task(tmp_path)
    assert recipe == setup.recipe
    assert type(loaded) is type(setup.task)
    assert loaded.files() == setup.task.files()
    assert loaded.fingerprints() == setup.task.fingerprints()
    assert loaded.sizes == setup.task.sizes
    again = [example for _, example in loaded.encode(setup.records, recipe.data, Counter())]
    for one, other in zip(again, setup.examples(), strict=True):
        assert all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


# Model and loss


@EVERY_TASK
def test_packed_equals_padded_in_loss_and_gradients(name: str) -> None:
    setup = set_up(name)
    model = setup.model()
    results = []
    for layout in ("packed", "padded"):
        model.zero_grad()
        losses = [setup.task.loss(model, batch, 0.1) for batch in batches(setup, layout)]
        total = torch.stack([loss.total for loss in losses]).sum()
        total.backward()
        gradients = {key: weight.grad.clone() for key, weight in model.named_parameters()}
        results.append((total.detach(), sum(int(loss.n_labels) for loss in losses), gradients))
    if name != "image-classification":  # all images are as long as a row
        assert any(grid.segments.max() > 1 for grid in batches(setup, "packed")[0].inputs.values())
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-3)


@EVERY_TASK
def test_the_loss_without_gradients_is_the_loss_with_them(name: str) -> None:
    setup = set_up(name)
    model, batch = setup.model(), batches(setup, "padded")[0]
    loss = setup.task.loss(model, batch, 0.1)
    with torch.no_grad():
        torch.testing.assert_close(setup.task.loss(model, batch, 0.1).total, loss.total.detach())


# Training and use

SHORT = {
    # Of images and recordings; other tasks do not have them.
    **{f"augmentation.{key}": 0.2 for key in ("shift", "elastic", "mixup", "speed", "time_mask")},
    "augmentation.noise": 0.01,
    "augmentation.join": 2,
    "training.steps": 3,
    "training.batch_tokens": 256,
    "training.validate_every": 2,
    "training.save_every": 2,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train a run of a task when it is first needed."""
    folder = tmp_path_factory.mktemp("tasks")

    @cache
    def run(name: str):
        small_run(folder / name, {**SHORT, "task": name})
        return folder / name

    return run


@EVERY_TASK
def test_a_trained_run_is_loaded_and_scored_as_after_training(name: str, runs) -> None:
    bundle = load_bundle(runs(name), CPU)
    task, options = bundle.task, bundle.recipe.decoding
    done: list[int] = []
    records = set_up(name).records[:5]
    scores = task.evaluate(bundle.model, records, options, CPU, done=done.append).to_dict()
    assert sum(done) == len(records)
    assert math.isfinite(scores[task.metric.name])
    assert all(isinstance(text, str) for text in task.describe(scores).values())
    assert isinstance(task.validate(bundle.model, records, options, CPU), float)


@EVERY_TASK
def test_a_run_is_scored_by_the_command_line(name: str, runs, tmp_path, capsys) -> None:
    lines = ("\t".join(record) for record in set_up(name).records[:5])
    (tmp_path / "test.tsv").write_text("\n".join(lines) + "\n")
    arguments = ["evaluate", str(runs(name)), "--data", str(tmp_path / "test.tsv")]
    for _ in range(2):  # the second time there is a score card with evaluations
        app([*arguments, "--device", "cpu"], standalone_mode=False)
        assert capsys.readouterr().out.strip()


@EVERY_TASK
def test_a_resumed_run_is_one_that_was_never_interrupted(name: str, runs, tmp_path) -> None:
    stop = AfterSteps(2, lambda: signal.raise_signal(signal.SIGINT))
    settings = {**SHORT, "task": name}
    with pytest.raises(Interrupted):
        small_run(tmp_path / "run", settings, reporter=stop)
    small_run(tmp_path / "run", settings, resume=True)
    assert_same_run(runs(name), tmp_path / "run")


# Runs of other tasks

COMMANDS = {
    "translate": (Translation, ["translate", "RUN", "A dog."]),
    "evaluate": (Translation, ["evaluate", "RUN", "--source", "a.en", "--target", "a.de"]),
    "generate": (LanguageModel, ["generate", "RUN", "A dog"]),
    "predict": (Classification, ["predict", "RUN", "A dog."]),
    "bench translate": (Translation, ["bench", "translate", "RUN", "--input", "a.en"]),
}
REFUSED = [
    (name, command)
    for name, task in TASKS.items()
    for command, (wanted, _) in COMMANDS.items()
    if not issubclass(task, PredictingTask if command == "predict" else wanted)
]


@pytest.mark.parametrize(("name", "command"), REFUSED)
def test_a_command_for_another_task_refuses_the_run(name: str, command: str, runs) -> None:
    wanted, words = COMMANDS[command]
    with pytest.raises(ConfigError) as refused:
        app([str(runs(name)) if word == "RUN" else word for word in words], standalone_mode=False)
    assert f"the task {name!r}, not for {wanted.name!r}" in str(refused.value)
    assert re.search(rf"use: \S*attendo {TASKS[name].command[0]} RUN", str(refused.value))


@EVERY_TASK
def test_the_web_pages_take_every_task(name: str, runs) -> None:
    library = Library((str(runs(name)),), "cpu")
    (described,) = library.describe()
    assert schema.ModelInfo.model_validate(described).task == name
    assert library.engine("", Engine).bundle.task.name == name
    for kind in {Translator, Generator} - {type(library.engine("", Engine))}:
        with pytest.raises(ConfigError, match=f"was trained for the task '{name}'; choose one"):
            library.engine("", kind)


@EVERY_TASK
def test_a_training_does_not_start_from_another_kind_of_body(name: str, runs, tmp_path) -> None:
    other = "translation" if TASKS[name].promise is CausalLM else "language-model"
    with pytest.raises(ConfigError, match=rf"\(task '{name}'\), but the task '{other}' needs an? "):
        small_run(tmp_path / "adapted", {"task": other, "start": str(runs(name))})


def test_an_unknown_task_is_refused_with_the_nearest_name(tmp_path) -> None:
    with pytest.raises(ConfigError, match="task = 'translatio' is not known; did you mean 'tr"):
        small_run(tmp_path, {"task": "translatio"})
