"""The generated references are current, complete, and their examples run."""

import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attendo
from attendo.cli.manual import EXAMPLE_RECIPE, REFERENCES
from attendo.cli.settings import find_settings
from attendo.config import FAMILIES, Recipe, load_recipe
from attendo.training.kinds import FAMILY_KINDS, KINDS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-m", "attendo.cli.manual", str(folder)], check=True)
    return folder


@pytest.mark.parametrize("name", REFERENCES)
def test_the_references_are_current(name, generated):
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == (generated / name).read_text(encoding="utf-8"), "run 'make docs'"


def test_every_setting_has_type_default_and_meaning():
    sections = find_settings()
    shown = {title: [one.name for one in settings] for title, settings in sections.items()}
    for family, config in FAMILIES.items():
        assert shown[f'[model], kind = "{family}"'] == list(config.model_fields)
    for name in ("data", "tokenizer", "training", "decoding"):
        assert shown[f"[{name}]"] == list(Recipe.model_fields[name].annotation.model_fields)
    for settings in sections.values():
        assert all(one.type and one.default and one.meaning for one in settings)


def kinds() -> dict[tuple[str, str], set[str]]:
    """Return the names in every table of kinds, by the title of the section and the key."""
    found = {}
    for name, table in KINDS.items():
        section, _, key = name.rpartition(".")
        found[f"[{section}]" if section else "Top level", key] = set(table)
    for family, tables in FAMILY_KINDS.items():
        for name, table in tables.items():
            found[f'[model], kind = "{family}"', name.removeprefix("model.")] = set(table)
    return found


def test_the_meaning_of_a_kind_lists_exactly_those_that_exist():
    shown = {
        (title, one.name): one
        for title, settings in find_settings().items()
        for one in settings
        if one.type == "kind"
    }
    assert shown.keys() == kinds().keys()
    for key, names in kinds().items():
        listed = shown[key].meaning.split(": ")[-1]
        explained = re.sub(r"\(.*?\)", "", listed)  # the description of each
        assert set(re.findall(r"[\w-]+", explained)) - {"or", "for", "long", "texts"} == names


def test_the_example_of_a_recipe_can_be_read(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(EXAMPLE_RECIPE, encoding="utf-8")
    recipe = load_recipe(str(path))
    assert recipe.training.steps == tomllib.loads(EXAMPLE_RECIPE)["training"]["steps"]
    assert recipe.model.d_model == load_recipe("small").model.d_model


@pytest.fixture
def workplace(trained, tmp_path, monkeypatch) -> Path:
    """Make the folder that the examples of the reference are run in."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(trained)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", attendo.__all__)
def test_every_public_name_has_an_example_that_runs(name, workplace):
    thing = inspect.unwrap(getattr(attendo, name))
    text = inspect.getdoc(thing) or ""
    examples = doctest.DocTestParser().get_doctest(text, {"attendo": attendo}, name, None, 0)
    assert examples.examples
    assert not any(one.options.get(doctest.SKIP) for one in examples.examples)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(examples, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
