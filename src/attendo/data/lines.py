"""Reading lines of bytes from files, compressed or not, in bounded memory.

A line ends at a line feed and nowhere else, so that no other character can shift an alignment. What
is not UTF-8 text, is damaged or cannot be opened is a DataError that names the file.
"""

import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import zstandard

from attendo.errors import DataError

MAX_BYTES = 1 << 20
"""A longer line is cut while it is read.

Leaves room for two sides of `readers.MAX_CHARACTERS` in JSON with every character escaped (12 bytes
each).
"""

MOST_BYTES = 64 << 20
"""A longer line is refused where nothing may be cut."""

_BLOCK = 1 << 20  # bytes
# Zstandard packs up to 128 KiB into 4 bytes: a small piece at a time bounds what comes out.
_ZSTD_PIECE = 128  # bytes


@dataclass
class FileReport:
    """What was found in the files; filled in while they are read."""

    notes: Counter[str] = field(default_factory=Counter)
    """What was corrected while reading."""
    bytes_read: int = 0
    """Number of bytes read from the disk, before they are decompressed."""


def raw_lines(
    file: str | io.BufferedIOBase, report: FileReport, *, strict: bool = False
) -> Iterator[bytes]:
    """Split at line feeds only; a line that is too long is cut, or refused where strict.

    Raises:
        DataError: a line has more than `MOST_BYTES`, where strict.
    """
    rest, number = bytearray(), 1
    for block in text_blocks(file, report):
        first, *others = block.split(b"\n")
        rest += first
        if not strict:
            del rest[MAX_BYTES:]
        elif len(rest) > MOST_BYTES:
            raise DataError(
                f"{name_of(file)}, line {number} is longer than {MOST_BYTES >> 20} MiB; "
                "break the text into lines"
            )
        if others:
            yield bytes(rest)
            yield from others[:-1]
            rest = bytearray(others[-1])
            number += len(others)
    if rest:
        yield bytes(rest)


def name_of(file: str | io.BufferedIOBase) -> str:
    """Return what a file is called in messages."""
    return file if isinstance(file, str) else "standard input"


def text_blocks(file: str | io.BufferedIOBase, report: FileReport) -> Iterator[bytes]:
    """Read text in blocks, decompressed and without a byte order mark."""
    blocks = _file_blocks(file, report) if isinstance(file, str) else _read_blocks(file)
    first = next(blocks, b"")
    _refuse_what_is_not_text(name_of(file), first)
    text = first.removeprefix(b"\xef\xbb\xbf")
    if text != first:
        report.notes["byte order mark removed"] += 1
    if text:
        yield text
    yield from blocks


def _file_blocks(path: str, report: FileReport) -> Iterator[bytes]:
    """Read a file, counting its bytes; every failure is a DataError that names the file."""
    try:
        with open(path, "rb") as raw:
            before = 0
            for block in UNPACKERS.get(Path(path).suffix, _read_blocks)(raw):
                if raw.seekable():
                    report.bytes_read += raw.tell() - before
                    before = raw.tell()
                yield block
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; give the files in it one by one") from None
    except EOFError:
        raise DataError(f"{path} is cut off in the middle; copy or make it again") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise DataError(
            f"{path} is damaged, or is not the compressed file that its suffix indicates: {error}"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_blocks(file: io.BufferedIOBase) -> Iterator[bytes]:
    # read1 returns what a terminal or pipe has now instead of waiting for a full block.
    return iter(partial(file.read1, _BLOCK), b"")


def _unpack_gzip(raw: io.BufferedReader) -> Iterator[bytes]:
    return _read_blocks(gzip.GzipFile(fileobj=raw))


def _unpack_xz(raw: io.BufferedReader) -> Iterator[bytes]:
    return _read_blocks(lzma.LZMAFile(raw))


def _unpack_zstd(raw: io.BufferedReader) -> Iterator[bytes]:
    """Decompress frame by frame; the package's stream reader does not notice truncated files."""
    decoder = None
    for piece in iter(partial(raw.read, _ZSTD_PIECE), b""):
        while piece:
            decoder = decoder or zstandard.ZstdDecompressor().decompressobj()
            if block := decoder.decompress(piece):
                yield block
            piece = decoder.unused_data
            decoder = None if decoder.eof else decoder
    if decoder is not None:
        raise EOFError


def _refuse_what_is_not_text(name: str, block: bytes) -> None:
    for start, what in _FOREIGN_STARTS.items():
        if block.startswith(start):
            raise DataError(f"{name} {what}")
    text = block[:4096].decode(errors="replace")
    controls = sum(map(text.count, _CONTROLS))
    # Share of damage that no text in UTF-8 has. A few bad lines are left to be dropped one by one.
    if len(block) < 64 or controls + text.count("\ufffd") < 0.3 * len(text):
        return
    what = "a binary file" if controls > 0.02 * len(text) else "in another encoding than UTF-8"
    raise DataError(f"{name} is {what}; give plain text in UTF-8 (iconv converts encodings)")


_CONTROLS = [chr(code) for code in (*range(9), *range(14, 27))]

_FOREIGN_STARTS = {
    b"\x1f\x8b": "is compressed: its name should end in .gz",
    b"\xfd7zXZ\0": "is compressed: its name should end in .xz",
    b"\x28\xb5\x2f\xfd": "is compressed: its name should end in .zst",
    b"\xff\xfe\0\0": "is UTF-32 text; convert it to UTF-8: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": "is UTF-16 text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16 text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8",
}

UNPACKERS: dict[str, Callable[[io.BufferedReader], Iterator[bytes]]] = {
    ".gz": _unpack_gzip,
    ".xz": _unpack_xz,
    ".zst": _unpack_zstd,
}
"""Functions that decompress a file, by suffix."""
