"""The examples of docs/extend.md run as they are there, and keep the promises of their tables."""

import importlib.util
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import attendo
import test_families
import test_models
import test_nn
import test_tasks
from attendo.config import FAMILIES, parse_overrides
from attendo.data.packing import pad_grid
from attendo.engines import Engine
from attendo.look import answers
from attendo.look.record import look
from attendo.models import MODELS, build_model
from attendo.nn.attention import ATTENTIONS
from attendo.nn.positions import POSITIONS
from attendo.tasks import TASKS
from conftest import small_config
from small_runs import CPU, SETTINGS

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"
TABLES: tuple[dict[str, Any], ...] = (ATTENTIONS, POSITIONS, FAMILIES, MODELS, TASKS)
EXAMPLES = {
    "An attention kind": "cosine",
    "A position kind": "relative",
    "A model family": "bag",
    "A task": "truecasing",
}
"""The kind that each section adds."""


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section(title), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def examples(tmp_path_factory) -> Iterator[dict[str, ModuleType]]:
    """Run the code of every section, which adds to the real tables, and undo that at the end."""
    before = [dict(table) for table in TABLES]
    folder = tmp_path_factory.mktemp("examples")
    modules = {}
    for title, kind in EXAMPLES.items():
        (code,) = blocks(title, "python")
        (folder / f"{kind}.py").write_text(code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"example_{kind}", folder / f"{kind}.py")
        modules[kind] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[kind])
    yield modules
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)
    for module in modules.values():
        del sys.modules[module.__name__]


def train(title: str, folder: Path) -> Any:
    """Train as the section says, but smaller."""
    command = next(line for line in blocks(title, "sh")[0].splitlines() if " train " in line)
    words = shlex.split(command)
    assert words[:4] == ["attendo", "train", "demo", "--out"]
    given = parse_overrides(words[words.index("--set") + 1 :: 2])
    own = {key: value for key, value in SETTINGS.items() if key.split(".")[0] not in given}
    settings = {**own, **test_tasks.SHORT, **given}
    return attendo.train("demo", out=folder, settings=settings, device="cpu")


def promises(module: ModuleType, **given: Any) -> dict[str, Callable[[], None]]:
    """Return the tests of a module whose arguments are all given, at least the first of them."""
    found = {}
    for name, test in vars(module).items():
        if name.startswith("test_"):
            wanted = inspect.signature(test).parameters
            if next(iter(given)) in wanted and wanted.keys() <= given.keys():
                found[name] = lambda test=test, wanted=wanted: test(
                    **{key: given[key] for key in wanted}
                )
    assert len(found) > 4
    return found


def check_layers(key: str, kind: str) -> None:
    """Check a kind of a Transformer by the tests of tables and of models."""
    packed = test_nn.lay_grid(
        test_nn.ragged(test_nn.sentences(3, 5, 7)), test_nn.ragged([[0, 1], [2], []]), 11, 0
    )
    tests = promises(test_nn, key=key, kind=kind, packed=packed)
    del tests["test_the_recipe_documents_it"]  # which the page asks for
    config = small_config(max_positions=test_models.MAX_POSITIONS, **{key: kind})
    source, target = (
        pad_grid(test_models.sentences(lengths), test_models.SPECIALS.pad)
        for lengths in (test_models.SOURCE_LENGTHS, test_models.TARGET_LENGTHS)
    )
    tests |= promises(
        test_models,
        model=test_models.build(config),
        source=source,
        target=target,
        place=1,
        change=test_models.widened,
    )
    for test in tests.values():
        test()


def test_every_example_is_in_its_table() -> None:
    assert "cosine" in ATTENTIONS
    assert "relative" in POSITIONS
    assert "bag" in FAMILIES
    assert "bag" in MODELS
    assert "truecasing" in TASKS


@pytest.mark.parametrize(("key", "kind"), [("attention", "cosine"), ("positions", "relative")])
def test_the_layer_kinds_keep_the_promises_of_their_tables(key: str, kind: str) -> None:
    check_layers(key, kind)


def test_the_attention_kind_is_masked_and_its_heads_are_separate() -> None:
    test_nn.test_attention_weights_sum_to_one_and_masked_places_are_exactly_zero("cosine")
    test_nn.test_the_heads_of_attention_do_not_meet("cosine")
    test_nn.test_a_bias_of_minus_infinity_is_a_mask("cosine")


def test_the_position_kind_follows_the_grid_and_tells_the_order() -> None:
    test_nn.test_positions_follow_the_grid_and_not_the_column("relative")
    test_models.test_only_positions_tell_the_encoder_the_order_of_its_source("relative")


def test_a_bias_is_refused_where_not_all_scores_are_computed() -> None:
    with pytest.raises(attendo.AttendoError, match="'relative' adds to the scores of all pairs"):
        build_model(small_config(positions="relative", attention="window"), 40, 40)


@pytest.mark.parametrize("title", ["An attention kind", "A position kind", "A model family"])
def test_a_translator_is_trained_as_the_page_says_used_and_looked_at(title, tmp_path) -> None:
    translator = train(title, tmp_path)
    model = translator.bundle.model
    names = {type(part).__name__ for part in model.modules()}
    assert names & {"Cosine", "Relative", "Bag"}
    assert len(translator.translate(["The dog sleeps.", "A cat."], beam=2)) == 2
    looked = look(translator, "The dog sleeps.", "Der Hund schläft.")
    shown = answers.recording_json(translator, looked)["maps"]
    assert bool(shown["cross"]) == (title != "A model family")


def test_the_family_keeps_the_promises_of_the_table() -> None:
    config = FAMILIES["bag"](d_model=16)
    sizes = test_families.VOCABULARY, test_families.VOCABULARY
    for test in promises(test_families, model=build_model(config, *sizes).eval()).values():
        test()
    test_nn.test_every_family_builds_from_defaults("bag")


def test_the_task_keeps_the_promises_of_the_table(tmp_path) -> None:
    for test in promises(test_tasks, name="truecasing", tmp_path=tmp_path).values():
        test()


def test_the_task_is_trained_as_the_page_says_and_used(tmp_path, capsys) -> None:
    run = tmp_path / "trained"
    engine = train("A task", run)
    assert isinstance(engine, Engine)
    bundle = engine.bundle
    text = "der hund schläft nicht ."
    assert bundle.task.predict(bundle.model, text, CPU).lower() == text
    for test in promises(
        test_tasks, runs=lambda name: run, name="truecasing", tmp_path=tmp_path, capsys=capsys
    ).values():
        test()
    for command in test_tasks.COMMANDS:
        test_tasks.test_a_command_for_another_task_refuses_the_run(
            "truecasing", command, lambda name: run
        )
