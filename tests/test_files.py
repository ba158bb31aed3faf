"""Files are written atomically, whatever happens meanwhile."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from attendo.bundle import read_score_card, read_tensors, update_score_card, write_tensors
from attendo.errors import AttendoError
from attendo.files import clear_leftovers, replacing, write_folder, write_json, write_text
from attendo.training.log import Log
from forked import Forked
from small_runs import small_run


@pytest.fixture
def full_disk(monkeypatch):
    """Let nothing reach the disk any more."""

    def fsync(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_can_be_read_and_nothing_else_is_left(tmp_path):
    write_text(tmp_path / "a.txt", "größer\n")
    write_json(tmp_path / "b.json", {"schön": [1, 2]})
    write_folder(tmp_path / "c", lambda folder: write_text(folder / "d.txt", "inside"))
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größer\n"
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8")) == {"schön": [1, 2]}
    assert (tmp_path / "c" / "d.txt").read_text() == "inside"
    assert names(tmp_path) == ["a.txt", "b.json", "c"]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent  # so that renaming is one step
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt(), SystemExit(3)])
def test_a_block_that_fails_leaves_the_old_file_and_raises_its_own_error(tmp_path, error):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("ha")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_leaves_the_old_file_and_is_told_in_one_line(tmp_path, full_disk):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(AttendoError) as caught:
        write_text(path, "new")
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_leaves_no_part_of_a_new_folder(tmp_path, full_disk):
    with pytest.raises(AttendoError, match=r"cannot write .*c: No space left on device"):
        write_folder(tmp_path / "c", lambda folder: (folder / "d").write_bytes(b"x" * 1000))
    assert names(tmp_path) == []


def test_weights_can_be_read_by_those_who_can_read_the_rest(tmp_path):
    write_tensors(tmp_path / "weights", {"a": torch.ones(3)})
    write_text(tmp_path / "text", "a")
    assert (tmp_path / "weights").stat().st_mode == (tmp_path / "text").stat().st_mode
    assert read_tensors(tmp_path / "weights")["a"].tolist() == [1, 1, 1]


def test_a_folder_whose_filling_fails_is_not_there(tmp_path):
    def fill(folder: Path) -> None:
        (folder / "first").write_text("whole")
        raise AttendoError("no second one")

    with pytest.raises(AttendoError, match=r"^no second one$"):
        write_folder(tmp_path / "c", fill)
    assert names(tmp_path) == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file" / "a.txt", tmp_path / "missing" / "a.txt"):
        with pytest.raises(AttendoError, match=r"^cannot write .*a.txt: No"):
            write_text(path, "text")


def test_a_log_that_cannot_grow_is_named(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    log.file.close()
    log.file = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 -- takes nothing, by nature
    with pytest.raises(AttendoError, match=r"^cannot write .*log.jsonl: No space left on device$"):
        log.add({"step": 1})
    with pytest.raises(AttendoError, match=r"^cannot write .*log.jsonl: No space left on device$"):
        log.close()


LIMITED = """
    import resource, sys
    from pathlib import Path
    import torch
    from attendo.bundle import write_tensors
    from attendo.errors import AttendoError
    from attendo.files import write_text

    limit = 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    folder = Path(sys.argv[1])
    for write in (
        lambda: write_text(folder / "a.txt", "n" * 2 * limit),
        lambda: write_tensors(folder / "a.safetensors", {"a": torch.ones(limit)}),
    ):
        try:
            write()
        except AttendoError as error:
            print(error)
"""


def test_files_that_outgrow_the_disk_leave_the_old_ones(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    write_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(3)})
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout
    assert lines[0] == f"cannot write {tmp_path / 'a.txt'}: File too large"
    assert lines[1].startswith(f"cannot write {tmp_path / 'a.safetensors'}: ")
    assert "File too large" in lines[1]
    assert (tmp_path / "a.txt").read_text() == "old"
    assert torch.equal(read_tensors(tmp_path / "a.safetensors")["a"], torch.zeros(3))
    assert names(tmp_path) == ["a.safetensors", "a.txt"]


def test_what_a_killed_writer_has_left_is_cleared_and_nothing_else(tmp_path):
    (tmp_path / ".a.txt.123.tmp").write_text("hal")
    (tmp_path / ".data.123.tmp").mkdir()
    (tmp_path / ".data.123.tmp" / "b.npy").write_text("half")
    (tmp_path / ".hidden").write_text("a person's own")
    (tmp_path / "a.tmp").write_text("a person's own")
    clear_leftovers(tmp_path)
    assert names(tmp_path) == [".hidden", "a.tmp"]


def test_every_file_is_synced_before_it_gets_its_name(tmp_path, monkeypatch):
    """A rename that reaches the disk before the contents would leave an empty file."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noting_fsync(handle: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def noting_replace(self: Path, target: Path) -> Path:
        events.append(f"rename {self.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "replace", noting_replace)
    write_text(tmp_path / "a.txt", "text")
    temporary = f".a.txt.{os.getpid()}.tmp"
    assert events == [f"sync {temporary}", f"rename {temporary}", f"sync {tmp_path.name}"]


# -- the score card ------------------------------------------------------------------------------


def test_updates_of_a_score_card_at_the_same_time_are_all_kept(tmp_path):
    def add(number: int) -> None:
        def change(card: dict[str, Any]) -> dict[str, Any]:
            time.sleep(0.01)  # time for others to read what is about to be replaced
            return {**card, str(number): number}

        update_score_card(tmp_path, change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert read_score_card(tmp_path) == {str(number): number for number in range(16)}
    assert names(tmp_path) == ["scorecard.json"]


def test_two_evaluations_at_the_same_time_are_both_kept(tmp_path):
    small_run(tmp_path / "run")
    for name, text in (("a.en", "The dog sleeps."), ("a.de", "Der Hund schläft.")):
        (tmp_path / name).write_text(f"{text}\n" * 20)
    files = ("--source", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de"))
    words = ["evaluate", str(tmp_path / "run"), *files]
    processes = [
        Forked([*words, "--beam", str(beam)], tmp_path / f"{beam}.txt") for beam in (1, 2, 3)
    ]
    for process in processes:
        _, messages = process.communicate(timeout=300)
        assert process.returncode == 0, messages
    evaluations = read_score_card(tmp_path / "run")["evaluations"]
    assert sorted(one["decoding"]["beam"] for one in evaluations) == [1, 2, 3]
