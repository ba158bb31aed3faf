"""Records out of text files, one at a time, whatever state the files are in.

A record has a text for each of its columns: source and target, text and label, or text alone. Files
have all columns (.tsv, .jsonl; .txt, .py and others for text alone), or one column each, aligned
line by line; each also as .gz, .xz or .zst. Lines that cannot be used are dropped and counted;
files that cannot be used are a DataError. Memory is bounded, even for a file that is one endless
line.

Records of images and recordings name files. They come from such text files too, or from a folder or
a file of many items, which their type lists (`list_items`).
"""

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from attendo.data.lines import MAX_BYTES, UNPACKERS, FileReport, name_of, raw_lines, text_blocks
from attendo.data.media.items import located
from attendo.errors import DataError

MAX_CHARACTERS = 20_000
"""A longer text is no sentence; its record is dropped."""

BLOCK = 2000
"""Characters of a plain text that make a record, or a little more, up to the next empty line."""

_EXAMPLES = 3  # kept for each reason


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Document(NamedTuple):
    """A text alone, or a part of a longer one: then it ends with a line end."""

    text: str

    @property
    def goes_on(self) -> bool:
        """Return whether the next document continues this one."""
        return self.text.endswith("\n")


Record = Any
"""A named tuple of strings; its fields are the columns of the files."""


def list_items(path: str, record: type[Record]) -> Iterator[Record] | None:
    """List the items of a folder, or of a file of many; None if records are lines of a file."""
    lister = getattr(record, "list_items", None)
    return lister(path) if lister else None


@dataclass(frozen=True)
class RecordFiles:
    """The files of one corpus, read one after the other."""

    source: tuple[str, ...] = ()
    """Text files with the first column, one record a line."""
    target: tuple[str, ...] = ()
    """Text files with the second column, line by line."""
    files: tuple[str, ...] = ()
    """Files that hold all columns."""
    record: type[Record] = Pair
    """What is read."""

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(
                f"{len(self.source)} source files and {len(self.target)} target files: "
                "give one target file for each source file, in the same order"
            )
        for path in self.files:
            if list_items(path, self.record) is None:
                _format_of(path, self.record)
        for path in self:
            if path.encode(errors="ignore").decode() != path:
                raise DataError(f"the file name {path!r} is not UTF-8; rename the file")

    def __bool__(self) -> bool:
        return bool(self.source or self.files)

    def __str__(self) -> str:
        """Return the first paths, for messages; a folder may have thousands."""
        first, n_more = list(self)[:3], len(list(self)) - 3
        return ", ".join(first) + (f" and {n_more:,} more" if n_more > 0 else "")

    def __iter__(self) -> Iterator[str]:
        """Iterate over all paths."""
        return iter(self.source + self.target + self.files)


class Example(NamedTuple):
    """A line that was dropped."""

    reason: str
    place: str
    text: str


@dataclass
class ReadReport(FileReport):
    """How many lines were used or dropped, and why; filled in while records are read."""

    lines: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Lines left out, by reason."""
    examples: list[Example] = field(default_factory=list)
    """The first few dropped lines for each reason."""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """Return the current file and line."""
        return f"{self.file}:{self.line}"

    def drop(self, reason: str, raw: bytes) -> None:
        """Count a line that cannot be used."""
        self.dropped[reason] += 1
        if self.dropped[reason] <= _EXAMPLES:
            text = shorten(raw[:400].decode(errors="replace"))
            self.examples.append(Example(reason, self.place, text))


class UnusableError(Exception):
    """The reason why a line is not a usable record."""


def read_records(files: RecordFiles, report: ReadReport) -> Iterator[Record]:
    """Read every usable record, counting the others in the report.

    Raises:
        DataError: a file is missing, damaged, not UTF-8 text, has no usable record at all, or two
            aligned files differ in their number of lines (found when the shorter one ends; call
            `check_alignment` to know before).
    """
    if not files:
        raise DataError(
            "no data files were given: name source and target files, or one file with both"
        )
    refuse_streams(files)
    for source, target in zip(files.source, files.target, strict=True):
        wanted = "a source sentence, with its translation on the same line of the other file"
        rows = _aligned_rows(source, target, report)
        parse = partial(_parse_aligned, files.record)
        yield from _usable((source, target), wanted, rows, parse, report)
    for path in files.files:
        items = list_items(path, files.record)
        if items is None:
            yield from _read_lines(path, files.record, report)
        else:
            yield from _counted(path, items, report)


def _read_lines(path: str, record: type[Record], report: ReadReport) -> Iterator[Record]:
    form = _format_of(path, record)
    lines = form.split(raw_lines(path, report))
    found = _usable(
        (path,), form.wanted(record), zip(lines), partial(form.parse, record, report.notes), report
    )
    if not hasattr(record, "list_items"):
        yield from found
        return
    for one in found:
        yield record(located(one[0], Path(path).parent), *one[1:])


def _counted(path: str, items: Iterator[Record], report: ReadReport) -> Iterator[Record]:
    kept, report.file = report.kept, path
    for report.line, item in enumerate(items, 1):
        report.lines += 1
        try:
            "".join(item).encode()
        except UnicodeEncodeError:
            report.drop("file name that is not UTF-8", os.fsencode(item[0]))
        else:
            report.kept += 1
            yield item
    if report.kept == kept:
        raise DataError(
            f"{path}: no file in it that can be used; expected a folder for each label, with its "
            "files"
        )


def check_alignment(files: RecordFiles) -> int:
    """Count the lines of all records, fast; refuse aligned files that differ in length."""
    refuse_streams(files)
    total = sum(_count_records(path, files.record) for path in files.files)
    for source, target in zip(files.source, files.target, strict=True):
        counts = count_lines(source), count_lines(target)
        if counts[0] != counts[1]:
            raise _different_lengths((source, target), counts)
        total += counts[0]
    return total


def _count_records(path: str, record: type[Record]) -> int:
    items = list_items(path, record)
    return count_lines(path) if items is None else sum(1 for _ in items)


def is_stream(path: str) -> bool:
    """Return whether a path is a pipe or a device, which can be read only once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def refuse_streams(files: Iterable[str]) -> None:
    """Raise an error for files that cannot be read more than once."""
    for path in filter(is_stream, files):
        raise DataError(
            f"{path} is not a regular file; the data is read more than once: "
            "write it to a file first"
        )


def count_lines(path: str) -> int:
    """Count lines as `read_lines` does; the last line need not end in a line feed."""
    lines, last = 0, b"\n"
    for block in text_blocks(path, FileReport()):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def read_lines(file: str | io.BufferedIOBase) -> Iterator[str]:
    """Read every line of one side, empty ones too, from a path or an open stream such as stdin.

    Only the line end is removed; a line is returned as soon as it can be read.

    Raises:
        DataError: the file is missing or damaged, or a line is not UTF-8 text or is endless.
    """
    for number, raw in enumerate(raw_lines(file, FileReport(), strict=True), 1):
        try:
            yield raw.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name_of(file)}, line {number}: byte {error.start + 1} is not valid UTF-8; "
                "convert the text to UTF-8, for example with iconv"
            ) from None


def read_aligned(source_path: str, target_path: str) -> tuple[list[str], list[str]]:
    """Read two aligned files completely; no line is left out."""
    source, target = list(read_lines(source_path)), list(read_lines(target_path))
    if len(source) != len(target):
        raise _different_lengths((source_path, target_path), (len(source), len(target)))
    return source, target


def shorten(text: str, width: int = 60) -> str:
    """Return text short and safe enough to be shown in a terminal."""
    text = "".join(character if character.isprintable() else "·" for character in text[: width + 1])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _aligned_rows(source: str, target: str, report: ReadReport) -> Iterator[tuple[bytes, bytes]]:
    rows = zip_longest(raw_lines(source, report), raw_lines(target, report))
    for count, (left, right) in enumerate(rows):
        if left is None or right is None:
            longer = count + 1 + sum(1 for _ in rows)
            counts = (count, longer) if left is None else (longer, count)
            raise _different_lengths((source, target), counts)
        yield left, right


def _different_lengths(paths: tuple[str, str], counts: tuple[int, int]) -> DataError:
    return DataError(
        f"{paths[0]} has {counts[0]:,} lines and {paths[1]} has {counts[1]:,}: line k of one must "
        "be the translation of line k of the other; create them again from the same source"
    )


def _usable(
    paths: tuple[str, ...],
    wanted: str,
    rows: Iterable[tuple[bytes, ...]],
    parse: Callable[..., Record],
    report: ReadReport,
) -> Iterator[Record]:
    kept, dropped, first = report.kept, Counter(report.dropped), len(report.examples)
    for number, row in enumerate(rows, 1):
        report.file, report.line = paths[0], number
        report.lines += 1
        if row[0].endswith(b"\r") or row[-1].endswith(b"\r"):
            report.notes["CRLF line ends"] += 1
        try:
            record = parse(*row)
        except UnusableError as reason:
            report.drop(str(reason), b"\t".join(row))
        else:
            report.kept += 1
            yield record
    if report.kept == kept:
        raise _nothing_usable(paths, wanted, report.dropped - dropped, report.examples[first:])


def _nothing_usable(
    paths: tuple[str, ...], wanted: str, dropped: Counter[str], examples: list[Example]
) -> DataError:
    name = " with ".join(paths)
    if not dropped:
        return DataError(f"{name}: empty; a line should be {wanted}")
    reasons = ", ".join(f"{count:,} × {reason}" for reason, count in dropped.most_common())
    shown = f"; {examples[0].place} is {examples[0].text!r}" if examples else ""
    return DataError(f"{name}: no line can be used ({reasons}); a line should be {wanted}{shown}")


def _parse_aligned(record: type[Record], *columns: bytes) -> Record:
    return _clean(record, map(_decode, columns))


def _parse_tsv(record: type[Record], _notes: Counter[str], raw: bytes) -> Record:
    columns = decode_filled(raw).split("\t")
    if len(columns) != len(record._fields):
        raise UnusableError("malformed TSV line")
    return _clean(record, columns)


def _parse_json(record: type[Record], _notes: Counter[str], raw: bytes) -> Record:
    try:
        values = json.loads(decode_filled(raw))
        columns = [values[name] for name in record._fields]
        "".join(columns).encode()  # half of a surrogate pair is no character
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        raise UnusableError("malformed JSON line") from None
    return _clean(record, columns)


def _parse_block(record: type[Record], _notes: Counter[str], raw: bytes) -> Record:
    """Take a part of a text exactly as it is: white space belongs to it."""
    return checked(record(decode_filled(raw)))


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join the lines of a plain text into blocks; a paragraph is not torn apart if it is short.

    All but the last end with a line end: the text goes on. Empty lines at the end of the file are
    left out.
    """
    block: list[bytes] = []
    size = 0
    for line in lines:
        # Never before a blank line: a block of blank lines would be dropped, and with it the end.
        is_gap = size >= 2 * BLOCK or (size >= BLOCK and not block[-1].strip())
        if is_gap and line.strip():
            yield b"\n".join([*block, b""])
            block, size = [], 0
        block.append(line)
        size += len(line) + 1
    if block:
        yield b"\n".join(block).rstrip(b"\r\n")


def _decode(raw: bytes) -> str:
    if len(raw) >= MAX_BYTES:
        raise UnusableError("over-long line")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UnusableError("invalid UTF-8") from None


def decode_filled(raw: bytes) -> str:
    """Return a line as text; one that is empty, endless or not UTF-8 cannot be used."""
    text = _decode(raw)
    if not text.strip():
        raise UnusableError("empty line")
    return text


def _clean(record: type[Record], columns: Iterable[str]) -> Record:
    return checked(record(*(text.strip() for text in columns)))


def checked(found: Record) -> Record:
    """Return a record whose texts can be used."""
    for name, text in zip(found._fields, found, strict=True):
        if not text:
            raise UnusableError(f"empty {name}")
        if "\0" in text:
            raise UnusableError("NUL byte")
        if len(text) > MAX_CHARACTERS:
            raise UnusableError("over-long line")
    return found


class Format(NamedTuple):
    """A file format that has all columns of a record."""

    wanted: Callable[[type[Record]], str]
    """Describes a line."""
    parse: Callable[[type[Record], Counter[str], bytes], Record]
    """Returns a record, given its type, the notes of a report and a line; or an `UnusableError`."""
    split: Callable[[Iterator[bytes]], Iterator[bytes]] = lambda lines: lines
    """Makes records of lines."""


FORMATS: dict[str, Format] = {
    ".tsv": Format(lambda record: " TAB ".join(record._fields), _parse_tsv),
    ".jsonl": Format(lambda record: json.dumps(dict.fromkeys(record._fields, "...")), _parse_json),
}
"""By suffix. A type of records may have its own `formats`."""

PLAIN = Format(lambda record: "text", _parse_block, _blocks)
"""A text as it is, for records of one column."""

PLAIN_SUFFIXES = (
    *(".txt", ".py", ".md", ".rst", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".go"),
    *(".java", ".js", ".jsx", ".kt", ".lua", ".php", ".pl", ".r", ".rb", ".rs", ".scala"),
    *(".sh", ".sql", ".swift", ".tex", ".ts", ".tsx"),
)
"""Of texts and programs."""


def suffix_of(path: str) -> str:
    """Return the suffix of a file, without that of its compression."""
    bare = Path(path)
    return (bare.with_suffix("") if bare.suffix in UNPACKERS else bare).suffix


def _format_of(path: str, record: type[Record]) -> Format:
    suffix, own = suffix_of(path), getattr(record, "formats", None)
    formats: dict[str, Format] = own() if own else FORMATS
    is_text = not own and len(record._fields) == 1
    if is_text and suffix in PLAIN_SUFFIXES:
        return PLAIN
    if suffix not in formats:
        suffixes = [*formats, *([".txt", ".py and the like"] if is_text else [])]
        others = "; or give a folder" if hasattr(record, "list_items") else ""
        raise DataError(
            f"{path}: a file with {' and '.join(record._fields)} ends in {' or '.join(suffixes)} "
            f"(then {', '.join(UNPACKERS)} where compressed){others}"
        )
    return formats[suffix]
