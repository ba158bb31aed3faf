"""Files that are never half written: beside their place, synced, then renamed."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attendo.errors import AttendoError


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say which file could not be written, and why, when the system refuses to write one."""
    try:
        yield
    except OSError as error:
        raise AttendoError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; the file takes its real name when all went well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text in one piece."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON in one piece."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a new folder with all that `fill` puts into it, or none of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            temporary.mkdir(parents=True)
            fill(temporary)
            for file in temporary.iterdir():
                _sync(file)
            _sync(temporary)
            temporary.rename(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the lock ends with the process, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AttendoError(
            f"another process is at work in {str(folder)!r}; wait until it is done, or stop it"
        ) from None
    except OSError:
        pass  # some network drives have no locks


def clear_leftovers(folder: Path) -> None:
    """Remove what killed writers have left half done: .NAME.PID.tmp, and nothing else."""
    for path in folder.glob(".*.*.tmp"):
        if not path.name.split(".")[-2].isdigit():
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
