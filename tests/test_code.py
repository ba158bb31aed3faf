"""Programs: folders of files as texts, tokens that keep indentation, where generated code ends."""

import sys
from pathlib import Path

import pytest

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
    with pytest.raises(DataError, match="part0: a folder without any text|fits no file"):
        find_texts([f"{folder}/part0/*.js"])
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
        ("function", "def f():\n", '    """\nDoc.\n    """\n    h()\nend', None),
        ("function", "def f():\n", "x", ""),
        ("function", "def f():\n", "    return 1\n\n  ", None),
        ("block", "x = 1\n", "y = 2\nz = 3\n", None),
    ],
)
def test_code_ends_with_its_block(unit, prompt, text, expected):
    tokenizer = train_tokenizer("code-bpe", [PROGRAM] * 2, 300, lossless=True)
    parts: list[str] = []
    written = Continuation(
        tokenizer, tokenizer.encode(prompt), [STOPS[unit](prompt)], parts.append
    )
    for token in tokenizer.encode(text):
        if written.add(token):
            break
    whole = written.finish()
    if expected is None and text.endswith("end"):
        expected = text.removesuffix("\nend")
    assert whole == (text if expected is None else expected)
    assert "".join(parts) == whole


# -- the command line


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
