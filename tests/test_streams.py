"""Terminals, pipes, files and closed streams around real processes of the command line."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import attendo
from attendo.engines.files import Evaluation, evaluate_files
from attendo.reporter import Reporter
from terminals import start_in_terminal

ATTENDO = f"{sys.executable} -m attendo"
TEXT = "The dog sleeps.\nThe old dog sleeps. The cat saw the big dog.\n"


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of bash in a folder."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )


class Session:
    """A process with a terminal of its own."""

    def __init__(self, words: list[str]) -> None:
        self.process, self.terminal = start_in_terminal(
            [sys.executable, "-m", "attendo", *words], {**os.environ, "TERM": "dumb"}
        )

    def read_until(self, expected: str) -> str:
        """Return what is shown up to some text, or up to the end if it never comes."""
        raw = b""
        deadline = time.monotonic() + 120
        while not (shown := raw.decode(errors="replace").replace("\r\n", "\n")).endswith(expected):
            assert time.monotonic() < deadline, shown
            if not select.select([self.terminal], [], [], 1)[0]:
                continue
            try:
                raw += os.read(self.terminal, 4096)
            except OSError:  # the process has ended
                break
        return shown

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.terminal)
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["ctrl-d", "ctrl-c"])
def test_a_session_has_a_prompt_and_a_translation_after_each_line(trained, key):
    with Session(["translate", str(trained), "--beam", "1"]) as session:
        shown = session.read_until("> ")
        assert re.fullmatch(r"Enter a text .*Ctrl-D ends the session\.\n> ", shown)
        session.type("The dog sleeps. The dog sleeps.\n")
        echo, translation, _ = session.read_until("\n> ").split("\n")
        assert echo == "The dog sleeps. The dog sleeps."
        sentence = translation[: len(translation) // 2]
        assert translation == f"{sentence} {sentence}"
        session.type("how?\n")
        assert "not in the training data: how (" in session.read_until(")\n> ")
        session.type("\n")
        assert session.read_until("> ") == "\n> "
        time.sleep(0.5)  # readline does not notice a signal between the prompt and its first wait
        session.type(key)
        assert "Traceback" not in session.read_until("the end")
        assert session.process.wait(timeout=60) == 0


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "in.en").write_text(TEXT, encoding="utf-8")
    (tmp_path / "out.de").write_text("an older translation\n", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "cat in.en | {translate} --input /dev/stdin",
        "{translate} --input <(cat in.en)",
        "(cat in.en > pipe &) ; {translate} --input pipe --output out.de ; cat out.de",
    ],
)
def test_what_can_be_read_only_once_is_translated(trained, folder, command):
    expected = attendo.load(trained, "cpu").translate(TEXT.splitlines(), beam=1)
    done = shell(command.format(translate=f"{ATTENDO} translate {trained} --beam 1"), folder)
    assert (done.returncode, done.stdout.decode().splitlines()) == (0, expected)


def test_nothing_to_read_leaves_an_older_output(trained, folder):
    done = shell(f"true | {ATTENDO} translate {trained} --output out.de", folder)
    assert done.returncode == 0
    assert (folder / "out.de").read_text() == "an older translation\n"
    assert "standard input is empty: out.de is left as it was" in done.stderr.decode()


def test_an_empty_file_is_named_and_has_an_empty_translation(trained, folder):
    (folder / "empty.en").touch()
    done = shell(f"{ATTENDO} translate {trained} --input empty.en --output out.de", folder)
    assert done.returncode == 0
    assert "empty.en is empty: there is nothing to translate" in done.stderr.decode()
    assert (folder / "out.de").read_text() == ""


@pytest.mark.parametrize(
    "command",
    [
        "check --source <(cat in.en) --target in.en",
        "check --source in.en --target in.en --test-source pipe --test-target in.en",
        "train small --out run --source in.en --target pipe",
        "augment back-translate run --text pipe --out pairs.tsv",
    ],
)
def test_data_that_must_be_read_twice_cannot_be_a_pipe(folder, command):
    done = shell(f"{ATTENDO} {command}", folder)
    assert done.returncode == 2
    assert re.fullmatch(
        rb"error: \S+ is not a regular file; the data is read more than once: .*\n", done.stderr
    )


@pytest.mark.parametrize(
    "command", ["--input in.en --output link", "--output link < in.en", "--input in.en >> link"]
)
def test_a_file_is_not_translated_into_itself(folder, command):
    os.link(folder / "in.en", folder / "link")
    (folder / "run").mkdir(exist_ok=True)
    done = shell(f"{ATTENDO} translate run {command}", folder)
    assert done.returncode == 2
    assert b"are the same file" in done.stderr
    assert (folder / "in.en").read_text() == TEXT


def test_ctrl_c_in_a_long_translation_keeps_the_finished_lines(trained, tmp_path):
    (tmp_path / "in.en").write_text("The dog sleeps.\n" * 100_000, encoding="utf-8")
    output = tmp_path / "out.de"
    words = ["--input", str(tmp_path / "in.en"), "--output", str(output), "--batch-size", "4"]
    with subprocess.Popen(
        [sys.executable, "-m", "attendo", "translate", str(trained), *words],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not (output.exists() and output.stat().st_size):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    n_lines = output.read_text().count("\n")
    assert 0 < n_lines < 100_000
    assert said == f"stopped; lines that have been translated: {n_lines:,}\n"


def test_unknown_words_are_reported_in_one_line(trained, folder):
    words = "one\nuno dos tres\nquattro cinque sei sette\n"
    (folder / "in.en").write_text(words, encoding="utf-8")
    done = shell(f"{ATTENDO} translate {trained} --input in.en --json", folder)
    unknown = [json.loads(line)["unknown"] for line in done.stdout.splitlines()]
    assert unknown[1:] == [["uno", "dos", "tres"], ["quattro", "cinque", "sei", "sette"]]
    n_others = sum(map(len, unknown)) - 5
    assert re.fullmatch(
        rf"not in the training data: (\w+, ){{4}}\w+ and {n_others} more "
        r"\(the translation may be wrong\)\n",
        done.stderr.decode(),
    )


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        ("recipes >&-", "output"),
        ("--help >&-", "output"),
        ("check --source in.en --target in.en >&-", "output"),
        ("translate {run} <&-", "input"),
    ],
)
def test_a_closed_stream_is_reported(trained, folder, command, stream):
    done = shell(f"{ATTENDO} {command.format(run=trained)}", folder)
    assert done.returncode == 2
    assert done.stderr.decode() == f"error: standard {stream} is closed\n"


def test_a_closed_standard_error_does_not_redirect_messages(folder):
    done = shell(f"{ATTENDO} recipes nothing 2>&-", folder)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "latin-1"}, {"COLUMNS": "0"}])
def test_results_are_utf8_and_complete_in_any_environment(folder, environment):
    (folder / "a.en").write_text("".join(f"猫が{i}匹好き。\n" for i in range(20)), encoding="utf-8")
    command = f"{ATTENDO} check --source a.en --target a.en"
    done = shell(command, folder, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == shell(command, folder).stdout.decode()
    assert "匹好き" in done.stdout.decode()


def test_file_names_that_are_not_utf8(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("state"))
    names = [os.fsdecode(bytes(tmp_path) + b"/\xff." + side) for side in (b"en", b"de")]
    for name in names:
        Path(name).write_text("The dog sleeps.\n", encoding="utf-8")
    card = evaluate_files(run, names, Evaluation({"beam": 1}, "cpu"), Reporter())
    (saved,) = json.loads((run / "scorecard.json").read_text())["evaluations"]
    assert saved["test"] == card["test"] == [f"{tmp_path}/\\udcff.en", f"{tmp_path}/\\udcff.de"]
    done = shell(
        f"{ATTENDO} train small --out x --source $'\\xff.en' --target $'\\xff.de'", tmp_path
    )
    assert done.returncode == 2
    assert re.fullmatch(rb"error: the file name .*udcff.* is not UTF-8; rename .*\n", done.stderr)
