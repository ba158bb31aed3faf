"""The generated references are current, complete, and their examples run."""

import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

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


def plain_keys(section: type[BaseModel]) -> list[str]:
    """List the keys of a section that are not sections."""
    return [
        name
        for name, field in section.model_fields.items()
        if not isinstance(field.default, BaseModel)
    ]


def test_every_setting_has_type_default_and_meaning():
    sections = find_settings()
    assert {"[model.window]", "[model.chunks]", "[model.lsh]", "[model.favor]"} < sections.keys()
    shown = {title: [one.name for one in settings] for title, settings in sections.items()}
    for family, config in FAMILIES.items():
        assert shown[f'[model], kind = "{family}"'] == plain_keys(config)
    for name in ("data", "tokenizer", "training", "decoding"):
        assert shown[f"[{name}]"] == plain_keys(Recipe.model_fields[name].annotation)
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


@pytest.mark.usefixtures("unchecked")
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


DOCS = Path(__file__).parents[1] / "docs"
PAGES = [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")]
FOLDERS = ("src", "tests", "benchmarks")
WRITTEN = [page for page in PAGES if page.name not in REFERENCES]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_the_lines_of_a_page_are_short(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, start=1) if len(line) >= 120] == []


@pytest.mark.parametrize("name", ["tour.md", "paper.md", "extend.md", "long.md", "performance.md"])
def test_every_file_that_a_page_names_exists(name):
    """A name may leave out the folder that the page is about."""
    text = re.sub(r"^```.*?^```", "", (DOCS / name).read_text(encoding="utf-8"), flags=re.M | re.S)
    root = DOCS.parent
    files = [path.as_posix() for part in FOLDERS for path in root.glob(f"{part}/**/*.py")]
    named = set(re.findall(r"`([\w/]+\.py)[`:]", text))
    assert named
    assert {one for one in named if not any(file.endswith(f"/{one}") for file in files)} == set()
