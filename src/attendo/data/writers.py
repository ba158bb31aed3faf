"""Writing records to a file that `readers` reads: .jsonl or .tsv, also as .gz, .xz or .zst."""

import gzip
import json
import lzma
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any

import zstandard

from attendo.data.readers import Record
from attendo.errors import DataError
from attendo.files import replacing

LEVEL = 9
"""Of zstandard: half the size of its default level, and still faster than a model writes."""


def check_writable(path: Path) -> None:
    """Raise an error unless records can be written to a file of this name."""
    if _bare_suffix(path) not in LINES:
        raise DataError(
            f"{path}: expected a name that ends in {' or '.join(LINES)} "
            f"(then {', '.join(PACKERS)} to compress it)"
        )
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist")


def write_records(path: Path, records: Iterable[Record]) -> int:
    """Write records atomically, in the format of the suffix; return how many."""
    check_writable(path)
    line, n_written = LINES[_bare_suffix(path)], 0
    with replacing(path) as temporary, PACKERS.get(path.suffix, _open)(temporary) as file:
        for record in records:
            file.write(line(record).encode())
            n_written += 1
    return n_written


def _bare_suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in PACKERS else path).suffix


def _json_line(record: Record) -> str:
    return json.dumps(record._asdict(), ensure_ascii=False) + "\n"


def _tsv_line(record: Record) -> str:
    return "\t".join(" ".join(text.split()) for text in record) + "\n"


LINES: dict[str, Callable[[Record], str]] = {".jsonl": _json_line, ".tsv": _tsv_line}
"""A record as a line, by suffix."""


def _open(path: Path) -> IO[bytes]:
    return path.open("wb")


def _open_zstd(path: Path) -> Any:
    return zstandard.open(path, "wb", cctx=zstandard.ZstdCompressor(level=LEVEL))


PACKERS: dict[str, Callable[[Path], Any]] = {
    ".gz": partial(gzip.open, mode="wb"),
    ".xz": partial(lzma.open, mode="wb"),
    ".zst": _open_zstd,
}
"""Functions that open a compressed file, by suffix."""
