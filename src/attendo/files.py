"""Reading small files safely, and writing files that are never half written.

A file is written under a temporary name beside its place, synced, then renamed.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attendo.errors import AttendoError


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file of at most `limit` bytes.

    Raises:
        ValueError: It is too large, not UTF-8, or not a regular file (a pipe might never end).
        OSError: It cannot be read.
    """
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"larger than {limit:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error})") from None


def read_json(path: Path, limit: int) -> Any:
    """Read a JSON file of at most `limit` bytes; raises what `read_text` raises."""
    try:
        return json.loads(read_text(path, limit))
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert an OSError to an error that names the file and the cause."""
    try:
        yield
    except OSError as error:
        raise AttendoError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to; the file gets its real name if there was no error."""
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
    """Write UTF-8 text atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Create a folder with everything that `fill` puts into it, or nothing at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            temporary.mkdir(parents=True)
            fill(temporary)
            for file in temporary.rglob("*"):
                _sync(file)
            _sync(temporary)
            temporary.rename(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise an error at once; it is released with the process."""
    with _opened(folder) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AttendoError(
                f"another process is writing to {str(folder)!r}; wait until it ends, or stop it"
            ) from None
        except OSError:
            pass  # some network drives have no locks
        yield


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder and hold it, for short updates."""
    with _opened(folder) as handle:
        with suppress(OSError):  # some network drives have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def clear_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes: .NAME.PID.tmp, and nothing else."""
    for path in folder.glob(".*.*.tmp"):
        if not path.name.split(".")[-2].isdigit():
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _sync(path: Path) -> None:
    with _opened(path) as handle:
        os.fsync(handle)
