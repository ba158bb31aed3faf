"""A language model of Python programs beside compressors and n-grams, and what it completes.

PYTHONPATH=src python3 benchmarks/programs.py --help
"""

import ast
import lzma
import sysconfig
import textwrap
from collections.abc import Iterator
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from ngrams import Integers, KneserNey, bits_per_symbol
from numpy.typing import NDArray
from rich.progress import track
from script import run

from attendo.data.folders import find_texts
from attendo.engines import load_generator
from attendo.errors import DataError
from attendo.files import explained, replacing, write_json, write_text
from attendo.text import load_tokenizer, train_tokenizer

TESTS = {"test", "tests", "idle_test"}
"""Folders of tests: more than half of all bytes, mostly lists of cases."""

LEFT_OUT = {"site-packages", "lib2to3", "pydoc_data"}
"""What others installed; Python 2 for the tests of a converter; documentation in a dictionary."""

PARTS = {"test": range(26), "valid": range(26, 34), "train": range(34, 256)}
"""First byte of the hash of a name: 10 % for testing, 3 % for validation."""

N_HASHES = 64
SIMILAR = 0.4
"""Share of lines in common from which on two files are in the same part."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `prepare` has written.")]


@app.command()
def prepare(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the files to.")],
    source: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Programs; else the standard library.")
    ] = None,
    tests: Annotated[
        bool, typer.Option("--tests", help="Also train on the library's own tests.")
    ] = False,
) -> None:
    """Divide Python files into DIR/train, DIR/valid and DIR/test.

    A file belongs to a part by a hash of its name, and files that have many
    lines in common belong to the same part. Files of tests are for training
    or left out.
    """
    root = source or Path(sysconfig.get_paths()["stdlib"])
    files = {path: path.relative_to(root) for path in map(Path, find_texts([f"{root}/**/*.py"]))}
    programs = {
        path: path.read_text(encoding="utf-8")
        for path, name in files.items()
        if not LEFT_OUT & {*name.parts} and not TESTS & {*name.parts[:-1]}
    }
    if not programs:
        raise DataError(f"{root}: no Python files in this folder")
    sizes = dict.fromkeys(PARTS, 0)
    with explained(out):
        for path, part in divided(programs, root).items():
            sizes[part] += len(programs[path].encode())
            put(out / part / files[path], programs[path])
        for path, name in files.items():
            if tests and TESTS & {*name.parts[:-1]} and not LEFT_OUT & {*name.parts}:
                text = path.read_text(encoding="utf-8")
                sizes["train"] += len(text.encode())
                put(out / "train" / name, text)
    print(", ".join(f"{part}: {size:,} bytes" for part, size in sizes.items()))


def put(path: Path, text: str) -> None:
    """Write a file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def divided(programs: dict[Path, str], root: Path) -> dict[Path, str]:
    """Return the part of each file; similar ones have that of the first of them."""
    paths = sorted(programs)
    signatures = np.stack([signature(programs[path]) for path in paths])
    parts: dict[Path, str] = {}
    for place, path in enumerate(paths):
        alike = (signatures[:place] == signatures[place]).mean(axis=1) >= SIMILAR
        if alike.any():
            parts[path] = parts[paths[int(alike.argmax())]]
        else:
            name = path.relative_to(root).as_posix()
            first = sha256(name.encode()).digest()[0]
            parts[path] = next(part for part, bytes_ in PARTS.items() if first in bytes_)
    return parts


def signature(text: str) -> NDArray[np.uint64]:
    """Return numbers of which two texts have a share in common, as of their lines (Broder 1997)."""
    lines = {line.strip() for line in text.splitlines()} - {""}
    hashed = [blake2b(line.encode(), digest_size=8).digest() for line in lines]
    values = np.frombuffer(b"".join(hashed), dtype=np.uint64)
    chance = np.random.default_rng(0)
    factors = chance.integers(1, 2**63, N_HASHES, dtype=np.uint64) | np.uint64(1)
    least: NDArray[np.uint64] = (values[:, None] * factors + (values[:, None] >> 7)).min(axis=0)
    return least


# Compressors and n-grams.


@app.command()
def baselines(
    folder: Folder,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="tokenizer.json of a run, for n-grams of its tokens."),
    ] = None,
    n: Annotated[int, typer.Option(min=1, max=9, help="Length of the n-grams.")] = 5,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Measure bits per byte of DIR/test by xz -9 and by n-gram models."""
    train, test = (read(folder / part) for part in ("train", "test"))
    before = "".join(train).encode()
    content = "".join(test).encode()
    figures = {
        "xz -9": bits(content) / len(content),
        "xz -9 that has read the training files": (bits(before + content) - bits(before))
        / len(content),
        f"{n}-grams of bytes": of_bytes(before, content, n),
    }
    if tokenizer is not None:
        figures[f"{n}-grams of tokens"] = of_tokens(tokenizer, train, test, n) / len(content)
    for name, figure in figures.items():
        print(f"{name}: {figure:.3f} bits per byte")
    if json:
        write_json(json, figures)


def read(folder: Path) -> list[str]:
    """Read all files of a part."""
    return [Path(file).read_text(encoding="utf-8") for file in find_texts([str(folder)])]


def bits(content: bytes) -> int:
    """Return the size after xz -9, whose window of 64 MiB holds everything here."""
    return 8 * len(lzma.compress(content, preset=9))


def of_bytes(before: bytes, content: bytes, n: int) -> float:
    """Return the bits per byte of an n-gram model of bytes."""
    symbols = [np.frombuffer(text, dtype=np.uint8).astype(np.int64) for text in (before, content)]
    return bits_per_symbol(KneserNey(symbols[0], n, 256), symbols[1])


def of_tokens(path: Path, train: list[str], test: list[str], n: int) -> float:
    """Return the bits of all test files by an n-gram model of tokens; a file ends with </s>."""
    tokenizer = load_tokenizer(str(path))

    def symbols(texts: list[str]) -> Integers:
        ids = tokenizer.encode_batch(texts)
        ended = [[*one, tokenizer.specials.eos] for one in ids]
        return np.array([token for one in ended for token in one], dtype=np.int64)

    tested = symbols(test)
    return bits_per_symbol(KneserNey(symbols(train), n, tokenizer.size), tested) * len(tested)


# Completions.


class Beginning(NamedTuple):
    """The head of a function of a held-out file, with what stands before it."""

    context: str
    head: str
    """From its first line to its docstring."""


@app.command()
def completions(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A trained language model.")],
    folder: Folder,
    number: Annotated[int, typer.Option(min=1, help="How many functions to complete.")] = 200,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a completion.")] = 256,
    temperature: Annotated[float, typer.Option(help="Of sampling; 0: always the likeliest.")] = 0.5,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Also write JSON, with all texts.")] = None,
) -> None:
    """Complete functions of DIR/test; print the share that `ast.parse` accepts.

    The model is given a file up to the docstring of a function, or to its
    head, and continues until the function ends. An empty completion is not
    accepted.
    """
    generator = load_generator(str(run_folder), device)
    options: dict[str, Any] = {"temperature": temperature} if temperature else {}
    options["strategy"] = "sample" if temperature else "greedy"
    results = []
    for seed, one in enumerate(track(choose_functions(folder, number), description="completing")):
        text = generator.generate(
            one.context + one.head, tokens=tokens, until="function", seed=seed, **options
        )
        is_accepted = parses(one.head + text)
        results.append({"head": one.head, "completion": text, "accepted": is_accepted})
    share = sum(result["accepted"] for result in results) / max(1, len(results))
    print(f"{share:.1%} of {len(results)} completions are accepted by ast.parse")
    if json:
        write_json(json, {"share": share, "completions": results})


def choose_functions(folder: Path, number: int) -> list[Beginning]:
    """Choose functions with a body of at least two lines, by a hash of their files and names."""
    found = [
        (sha256(f"{path}:{one.head}".encode()).digest(), one)
        for path in find_texts([str(folder / "test")])
        for one in functions(Path(path).read_text(encoding="utf-8"))
    ]
    return [one for _, one in sorted(found)[:number]]


def functions(program: str) -> Iterator[Beginning]:
    """Find the functions of a program."""
    lines = program.splitlines(keepends=True)
    for node in ast.walk(ast.parse(program)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) else node.body
        if body and (node.end_lineno or 0) > body[0].lineno > node.lineno:
            first = node.lineno - 1
            head = lines[first : body[0].lineno - 1]
            yield Beginning("".join(lines[:first]), "".join(head).rstrip() + "\n")


def parses(function: str) -> bool:
    """Return whether Python accepts a function; a head without a body is none."""
    try:
        ast.parse(textwrap.dedent(function))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


# A picture of tokens.

EXAMPLE = """\
class Stack:
    def push(self, item):
        if item is not None:
            self.items.append(item)
        return len(self.items)
"""

COLOURS = ("#cfe3f7", "#f9dcc4", "#d5ecd4", "#e6d9f2")


@app.command()
def picture(
    folder: Folder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Image to write.")],
    vocabulary: Annotated[int, typer.Option(min=300, help="Size of the vocabularies.")] = 8000,
) -> None:
    """Draw how an example is divided by byte-bpe and code-bpe, learned from DIR/train.

    Prints how many bytes of DIR/test a token has on average.
    """
    texts, held_out = read(folder / "train"), read(folder / "test")
    figure = Figure(figsize=(11, 2.4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("byte-bpe", "code-bpe"), strict=True):
        tokenizer = train_tokenizer(kind, texts, vocabulary, lossless=True)
        ids = tokenizer.encode(EXAMPLE)
        draw_tokens(axes, [tokenizer.decode([one]) for one in ids])
        axes.set_title(f"{kind}: {len(ids)} tokens", fontsize=12)
        n_bytes = sum(len(text.encode()) for text in held_out)
        n_tokens = sum(map(len, tokenizer.encode_batch(held_out)))
        print(f"{kind}: {n_bytes / n_tokens:.2f} bytes per token of {folder / 'test'}")
    with replacing(out) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


def draw_tokens(axes: Any, tokens: list[str]) -> None:
    """Draw text in a grid of characters; neighbouring tokens have different colours."""
    row = column = widest = 0
    for number, token in enumerate(tokens):
        for character in token:
            axes.add_patch(
                Rectangle((column, row), 1, 1, color=COLOURS[number % len(COLOURS)], linewidth=0)
            )
            shown = {" ": "·", "\n": "⏎"}.get(character, character)
            grey = "#999999" if character.isspace() else "#222222"
            axes.text(column + 0.5, row + 0.5, shown, color=grey, **TEXT)
            row, column = (row + 1, 0) if character == "\n" else (row, column + 1)
            widest = max(widest, column + 1)
    axes.set(xlim=(0, widest), ylim=(row + 0.5, -0.5))
    axes.set_axis_off()


TEXT = {"family": "DejaVu Sans Mono", "fontsize": 9, "ha": "center", "va": "center"}


if __name__ == "__main__":
    run(app)
