"""The reference manual, generated from the code: settings, commands, Python API, HTTP.

`make docs` (`python -m attendo.cli.manual docs`) writes it to docs/. A test compares docs/ with
what is generated.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attendo
from attendo.cli.settings import find_settings

NOTE = "<!-- Generated from the code by `make docs`; edit the code instead. -->\n\n"
WIDTH = 80
"""Columns of the help texts."""


EXAMPLE_RECIPE = """\
like = "small"                  # everything else as in this recipe
description = "My translator."

[data]
source = "train.en"
target = "train.de"

[model]
positions = "rotary"

[training]
steps = 20_000
"""


def settings_reference() -> str:
    """Return docs/settings.md."""
    parts = [
        "# Settings\n\nA recipe is a TOML file. This one changes four settings of the recipe "
        f"`small`:\n\n```toml\n{EXAMPLE_RECIPE}```\n\n"
        "`attendo recipes` lists the recipes that are included, `attendo recipes small` prints one "
        "in full.\nOn the command line, `--set model.d_model=256` changes one setting; in Python, "
        '`settings={"model.d_model": 256}`.\n'
        "`attendo recipes --settings` prints this page.\n\n"
        "A *kind* is a name; those that exist are listed under its meaning. "
        "[How to add one](extend.md).\n"
    ]
    for title, settings in find_settings().items():
        items = [
            textwrap.fill(
                f"- `{one.name}` ({one.type}; default `{one.default}`): {one.meaning}",
                118,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for one in settings
        ]
        parts.append(f"\n## {title}\n\n" + "\n".join(items) + "\n")
    return "".join(parts)


def cli_reference() -> str:
    """Return docs/cli.md: the help texts of all commands."""
    import typer

    from attendo.cli import app

    def sections(command: Any, name: str, parent: Any) -> Iterator[str]:
        context = type(command).context_class(
            command,
            parent=parent,
            info_name=name.split()[-1],
            terminal_width=WIDTH,
            help_option_names=["-h", "--help"],
        )
        yield f"\n## {name}\n\n```text\n{command.get_help(context)}\n```\n"
        for word, inner in getattr(command, "commands", {}).items():
            yield from sections(inner, f"{name} {word}", context)

    return "# Commands\n\nThe help texts of all commands.\n" + "".join(
        sections(typer.main.get_command(app), "attendo", None)
    )


def api_reference() -> str:
    """Return docs/api.md: every public name of the package."""
    intro = (
        "# Python\n\nEvery public name of the package `attendo`. The examples are run by the "
        "tests, in a folder with a\ntrained run `runs/demo` and two aligned files `a.en` and "
        "`a.de`.\n"
    )
    return intro + "".join(f"\n## {name}\n\n{_describe(name)}" for name in attendo.__all__)


def _describe(name: str) -> str:
    """Return signature, docstring, attributes and methods of a public name."""
    thing = getattr(attendo, name)
    node = _parse(thing)
    if isinstance(node, ast.FunctionDef):
        return _signature(node, f"attendo.{name}") + _docstring(node)
    bodies = [node.body, *(_parse(base).body for base in thing.__mro__[1:] if _is_ours(base))]
    methods = [one for body in bodies for one in body if isinstance(one, ast.FunctionDef)]
    methods = [one for one in methods if _is_public(one)]
    title = f"```python\nclass attendo.{name}\n```\n\n"
    parts = [title, _docstring(node), _attributes(node)]
    for method in methods:
        parts.append(f"\n### {name}.{method.name}\n\n{_signature(method, method.name)}")
        parts.append(_docstring(method))
    return "".join(parts)


def _parse(thing: Any) -> ast.FunctionDef | ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    return node


def _is_ours(thing: type) -> bool:
    return thing.__module__.startswith("attendo.")


def _is_public(function: ast.FunctionDef) -> bool:
    return not function.name.startswith("_")


def _signature(node: ast.FunctionDef, name: str) -> str:
    """Return a signature, on several lines if it is long; `self` and `cls` are left out."""
    node.args.args = [one for one in node.args.args if one.arg not in ("self", "cls")]
    arguments = _split_arguments(ast.unparse(node.args))
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    text = f"{name}({', '.join(arguments)}){returned}"
    if len(text) > WIDTH:
        lines = "".join(f"    {argument},\n" for argument in arguments)
        text = f"{name}(\n{lines}){returned}"
    return f"```python\n{text}\n```\n\n"


def _split_arguments(text: str) -> list[str]:
    """Split at the commas that are not inside brackets, with spaces around each default."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip().replace("=", " = ") for part in parts if part]


def _attributes(node: ast.ClassDef) -> str:
    """Return the fields of a class as a list, each with the text below it."""
    lines = []
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            line = f"- `{ast.unparse(field.target)}: {ast.unparse(field.annotation)}`"
            match after:
                case ast.Expr(ast.Constant(str(meaning))):
                    line += f": {inspect.cleandoc(meaning)}"
            lines.append(f"{line}\n")
    return "".join(["\n", *lines]) if lines else ""


def _docstring(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a docstring as Markdown: sections become lists, examples become code."""
    lines: list[str] = []
    for block in (ast.get_docstring(node) or "").split("\n\n"):
        title, _, rest = block.partition("\n")
        if block.lstrip().startswith(">>>"):
            lines.append(f"```python\n{textwrap.dedent(block)}\n```")
        elif title in ("Args:", "Attributes:", "Raises:", "Returns:"):
            lines.append(f"{title.removesuffix(':')}:\n\n{_items(rest)}")
        else:
            lines.append(block)
    return "\n\n".join(lines) + "\n"


def _items(text: str) -> str:
    """Return the entries of a section of a docstring as a list."""
    items: list[str] = []
    for line in textwrap.dedent(text).splitlines():
        name, colon, meaning = line.partition(": ")
        if line.startswith(" ") or not colon:
            items[-1] += f" {line.strip()}"
        else:
            items.append(f"- `{name}`: {meaning}")
    return "\n".join(items)


def http_reference() -> str:
    """Return docs/http.md: the interface of `attendo serve` for programs."""
    from attendo.serve.app import make_api
    from attendo.serve.guard import Limits
    from attendo.serve.library import Library
    from attendo.serve.reference import read_openapi, to_markdown

    return to_markdown(read_openapi(make_api(Library((), "cpu"), Limits()).openapi()))


REFERENCES: dict[str, Callable[[], str]] = {
    "settings.md": settings_reference,
    "cli.md": cli_reference,
    "api.md": api_reference,
    "http.md": http_reference,
}
"""The generated pages of docs/."""


def write_references(folder: Path) -> None:
    """Write every generated page into a folder."""
    for name, make in REFERENCES.items():
        (folder / name).write_text(NOTE + make(), encoding="utf-8")


if __name__ == "__main__":
    write_references(Path(sys.argv[1]))
