"""Every module imports only from lower layers, never sideways, never up."""

import ast
import graphlib
from pathlib import Path

import attendo

LAYERS = [
    ["errors"],
    ["specials", "files", "reporter"],
    ["config"],
    ["hypotheses"],
    ["text", "nn", "reference"],
    ["data", "models"],
    ["losses", "metrics", "decoding", "runs"],
    ["tasks"],
    ["conversions", "converted"],
    ["bundle"],
    ["interop"],
    ["training", "engines"],
    ["look", "api", "synthesis", "translators"],
    ["lab", "serve", "demo"],
    ["cli"],
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
ROOT = Path(attendo.__file__).parent


def imported_folders(path: Path) -> set[str]:
    folders = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "attendo":
            parts = node.module.split(".")
            folders |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            folders |= {
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("attendo.")
            }
    return folders


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] not in ("__init__", "__main__"):
            found.append((parts[0], path))
    return found


def test_every_module_has_a_layer():
    assert {folder for folder, _ in modules()} <= LEVEL.keys()


def test_imports_go_down_only():
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for folder, path in modules()
        for other in imported_folders(path)
        if other != folder and LEVEL[other] >= LEVEL[folder]
    ]
    assert wrong == []


def imported_modules(path: Path, known: set[str]) -> set[str]:
    """Return the modules of ours that a module imports, at its top or in its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def test_no_module_imports_itself_through_others():
    paths = {
        ".".join(("attendo", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for _, path in modules()
    }
    imports = {name: imported_modules(path, set(paths)) for name, path in paths.items()}
    graphlib.TopologicalSorter(imports).prepare()  # raises an error that names the cycle


def test_config_and_command_line_need_no_torch():
    for name in ("config/__init__.py", "config/reading.py", "cli/__init__.py"):
        assert "torch" not in (ROOT / name).read_text(encoding="utf-8").split("import", 1)[1][:400]


def test_public_names_are_what_they_claim():
    assert attendo.__all__ == sorted(attendo.__all__)
    for name in attendo.__all__:
        assert getattr(attendo, name).__doc__, name
