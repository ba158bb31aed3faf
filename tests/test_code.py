"""Programs: folders of files as texts, tokens that keep indentation, where generated code ends."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from ngrams import KneserNey
from programs import divided, functions, parses

from attendo.cli import main
from attendo.data.folders import find_texts
from attendo.data.readers import Document, ReadReport, RecordFiles, read_records
from attendo.errors import DataError
from attendo.text import STOPS, Continuation, train_tokenizer

PROGRAM = '''\
class Stack:
    """A stack."""

    def __init__(self, items=()):
        self.items = list(items)

    def push(self, item):
        if item is not None:
            self.items.append(item)
        return len(self.items)
'''

# -- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder as programs have them, with files that hold no text."""
    for number in range(12):
        path = tmp_path / "project" / f"part{number % 3}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" + PROGRAM * (1 + 3 * number), encoding="utf-8")
    (tmp_path / "project" / "part0" / "__init__.py").write_text(" \n", encoding="utf-8")
    (tmp_path / "project" / "latin.py").write_bytes("# caf\xe9\n".encode("latin-1") * 9)
    (tmp_path / "project" / "image.png").write_bytes(bytes(range(256)))
    (tmp_path / "project" / ".git").mkdir()
    (tmp_path / "project" / ".git" / "hook.py").write_text(PROGRAM, encoding="utf-8")
    return tmp_path / "project"


def test_a_folder_stands_for_the_texts_in_it(folder):
    files = [f"{folder}/part{part}/file{n}.py" for part in range(3) for n in range(part, 12, 3)]
    assert sorted(find_texts([str(folder)])) == sorted(files)
    assert sorted(find_texts([f"{folder}/**/*.py"])) == sorted(files)
    one = f"{folder}/part0/file0.py"
    assert find_texts([one]) == (one,)
    with pytest.raises(DataError, match="a pattern that fits no file with text"):
        find_texts([f"{folder}/part0/*.js"])
    with pytest.raises(DataError, match=r"srx does not exist"):
        find_texts([f"{folder}/srx"])
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"a folder without any text; expected files such as \.txt"):
        find_texts([str(empty)])


def test_every_file_is_a_text_of_its_own_exactly_as_it_is(folder):
    files = find_texts([str(folder)])
    records = list(read_records(RecordFiles(files=files, record=Document), ReadReport()))
    texts = "".join(one.text if one.goes_on else f"{one.text}\0" for one in records).split("\0")
    assert texts[:-1] == [Path(file).read_text(encoding="utf-8").rstrip("\n") for file in files]


def test_blank_lines_at_the_end_do_not_join_two_files(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("x = 1\n" * 400 + "\n\n\n", encoding="utf-8")
    *_, last = read_records(RecordFiles(files=(str(path),), record=Document), ReadReport())
    assert last.text.strip()


# -- tokens


def test_indentation_is_one_token_and_lines_begin_alike():
    tokenizer = train_tokenizer("code-bpe", [PROGRAM] * 20, 600, lossless=True)
    tokens = tokenizer.tokens(tokenizer.encode("    def push(self, item):\n        return item\n"))
    assert tokens[-5:] == ["):⏎", "▁▁▁▁▁▁▁▁", "return", "▁item", "⏎"]
    before = tokenizer.encode("def push(self):\n")
    whole = tokenizer.encode("def push(self):\n        return item")
    assert whole[: len(before)] == before  # a prompt may end there


# -- where code ends


@pytest.mark.parametrize(
    ("unit", "prompt", "text", "expected"),
    [
        ("function", "def f(x):\n", "    return x\n\n\ndef g():\n", "    return x"),
        ("function", "def f(x):", "\n    return x\nprint(f(1))", "\n    return x"),
        ("function", "def f(x):\n    if x:\n", "        a()\n    b()\nc()", "        a()\n    b()"),
        ("block", "def f(x):\n    if x:\n", "        a()\n    b()\nc()", "        a()"),
        ("block", "def f(x):\n    a()\n", "    b()\n\n    c()\nd()", "    b()\n\n    c()"),
        ("function", "class A:\n  def f(s):\n", "    p\n  def g(s):", "    p"),
        ("function", "class A:\n  def f(s):\n    p\n  x = 1\n", "  y = 2\nz", "  y = 2"),
        # Lines within brackets and strings may be indented in any way.
        ("function", "def f():\n", "    g(\n1,\n)\n    h()\nend", "    g(\n1,\n)\n    h()"),
        (
            "function",
            "def f():\n",
            '    """\nA\n    """\n    h()\ni',
            '    """\nA\n    """\n    h()',
        ),
        ("function", "def f():\n", "x", ""),
        ("function", "def f():\n", "    return 1\n\n  ", None),
        ("block", "x = 1\n", "y = 2\nz = 3\n", None),
    ],
)
def test_code_ends_with_its_block(unit, prompt, text, expected):
    tokenizer = train_tokenizer("code-bpe", [PROGRAM] * 2, 300, lossless=True)
    parts: list[str] = []
    written = Continuation(tokenizer, tokenizer.encode(prompt), [STOPS[unit](prompt)], parts.append)
    for token in tokenizer.encode(text):
        if written.add(token):
            break
    whole = written.finish()
    assert whole == (text if expected is None else expected)
    assert "".join(parts) == whole


# -- what it is compared with


@pytest.mark.parametrize("n", [1, 2, 4])
def test_ngrams_share_out_all_probability(n):
    chance = np.random.default_rng(n)
    text = chance.integers(0, 5, 400) * chance.integers(0, 2, 400)
    model = KneserNey(text, n, vocabulary=7)  # 5 and 6 are never seen
    for context in (text[7:13], np.array([6, 0, 0, 0, 0]), np.array([0, 5, 1, 0, 2])):
        options = [np.append(context, symbol) for symbol in range(7)]
        last = [model.probabilities(option)[-1] for option in options]
        assert sum(last) == pytest.approx(1)
        assert min(last) > 0


def test_lower_orders_count_what_stands_before_a_symbol():
    """As in the example of Chen and Goodman: 1 is frequent, but only after 0."""
    text = np.array([0, 1] * 50 + [2, 3, 4, 3, 5, 3, 2, 5, 4, 2])
    model = KneserNey(text, 2, vocabulary=7)
    after_new = {symbol: model.probabilities(np.array([6, symbol]))[1] for symbol in (1, 3)}
    assert after_new[3] > 2 * after_new[1]
    assert model.probabilities(np.array([0, 1]))[1] > 0.9


def test_programs_that_are_alike_are_in_one_part(tmp_path):
    programs = {}
    for number in range(60):
        lines = [f"x{number}_{place} = {place}" for place in range(30)]
        programs[tmp_path / f"a{number}.py"] = "\n".join(lines)
        programs[tmp_path / f"b{number}.py"] = "\n".join([*lines[:27], "y = 1"])
    parts = divided(programs, tmp_path)
    assert {*parts.values()} == {"train", "valid", "test"}
    for number in range(60):
        assert parts[tmp_path / f"a{number}.py"] == parts[tmp_path / f"b{number}.py"]


def test_heads_of_functions_are_found_and_bodies_are_judged():
    found = list(functions(PROGRAM))
    assert [one.head.split("(")[0].strip() for one in found] == ["def push"]
    (push,) = found
    assert push.context + push.head + "        if item" in PROGRAM
    assert parses(push.head + "        return 1")
    assert not parses(push.head)
    assert not parses(push.head + "        return (1")


# -- the command line


@pytest.mark.usefixtures("unchecked")
def test_code_is_learned_from_a_folder_scored_and_completed(folder, tmp_path, monkeypatch, capfd):
    def call(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        shown = capfd.readouterr()
        assert not stopped.value.code, shown.err
        return shown.out

    small = {
        "data.max_length": 32,
        "tokenizer.vocabulary": 400,
        "model.d_model": 16,
        "model.d_ff": 32,
        "model.n_heads": 2,
        "model.decoder_layers": 2,
        "model.attention_pattern": '["window","dot"]',
        "model.logit_cap": 15,
        "training.steps": 6,
        "training.batch_tokens": 256,
        "training.warmup_steps": 2,
    }
    changes = [f"--set={key}={value}" for key, value in small.items()]
    run = tmp_path / "run"
    data = ["--data", f"{folder}/part0", "--valid-data", f"{folder}/part1/*.py"]
    call("train", "code", *data, "--test-data", f"{folder}/part2", "--out", run, *changes)
    assert "bits/byte" in call("evaluate", run, "--data", f"{folder}/part2")
    shown = call("generate", run, "def f(x):\n", "--until", "function", "--tokens", 9, "--seed", 1)
    assert shown.startswith("def f(x):\n")
