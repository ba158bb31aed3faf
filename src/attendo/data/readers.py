"""Reading sentence pairs from text files, one at a time.

Two files aligned line by line, or one file with both sides (.tsv, .jsonl), each also as .gz, .xz or
.zst. Lines that cannot be used are dropped as pairs and counted; files that cannot be used are a
DataError. Memory is bounded, even for a file that is one endless line.
"""

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from attendo.data.lines import MAX_BYTES, UNPACKERS, FileReport, name_of, raw_lines, text_blocks
from attendo.errors import DataError

MAX_CHARACTERS = 20_000
"""Most characters of a side; a pair with a longer one is dropped."""

_EXAMPLES = 3  # kept for each reason


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class PairFiles:
    """The files of one corpus, read one after the other."""

    source: tuple[str, ...] = ()
    """Text files with one source sentence a line."""
    target: tuple[str, ...] = ()
    """Text files with the translations, line by line."""
    pairs: tuple[str, ...] = ()
    """Files that hold both sides, .tsv or .jsonl."""

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(
                f"{len(self.source)} source files and {len(self.target)} target files: "
                "give one target file for each source file, in the same order"
            )
        for path in self.pairs:
            _format_of(path)
        for path in self:
            if path.encode(errors="ignore").decode() != path:
                raise DataError(f"the file name {path!r} is not UTF-8; rename the file")

    def __bool__(self) -> bool:
        return bool(self.source or self.pairs)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all paths."""
        return iter(self.source + self.target + self.pairs)


class Example(NamedTuple):
    """A line that was dropped."""

    reason: str
    place: str
    text: str


@dataclass
class ReadReport(FileReport):
    """How many lines were used or dropped, and why; filled in while pairs are read."""

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
        """The current file and line."""
        return f"{self.file}:{self.line}"

    def drop(self, reason: str, raw: bytes) -> None:
        """Count a line that cannot be used."""
        self.dropped[reason] += 1
        if self.dropped[reason] <= _EXAMPLES:
            text = shorten(raw[:400].decode(errors="replace"))
            self.examples.append(Example(reason, self.place, text))


class _UnusableError(Exception):
    """The reason why a line gives no pair."""


def read_pairs(files: PairFiles, report: ReadReport) -> Iterator[Pair]:
    """Read every usable pair, counting the others in the report.

    Raises:
        DataError: a file is missing, damaged, not UTF-8 text, has no usable pair at all, or two
            aligned files differ in their number of lines (found when the shorter one ends; call
            `check_alignment` to know before).
    """
    if not files:
        raise DataError("no data files were given: name source and target files, or a pairs file")
    _refuse_streams(files)
    for source, target in zip(files.source, files.target, strict=True):
        wanted = "a source sentence, with its translation on the same line of the other file"
        rows = _aligned_rows(source, target, report)
        yield from _usable_pairs((source, target), wanted, rows, _parse_sides, report)
    for path in files.pairs:
        wanted, parse = _format_of(path)
        yield from _usable_pairs((path,), wanted, zip(raw_lines(path, report)), parse, report)


def check_alignment(files: PairFiles) -> int:
    """Count the lines of all pairs, fast; refuse aligned files that differ in length."""
    _refuse_streams(files)
    total = sum(count_lines(path) for path in files.pairs)
    for source, target in zip(files.source, files.target, strict=True):
        counts = count_lines(source), count_lines(target)
        if counts[0] != counts[1]:
            raise _different_lengths((source, target), counts)
        total += counts[0]
    return total


def is_stream(path: str) -> bool:
    """Tell whether a path is a pipe or a device, which can be read only once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _refuse_streams(files: PairFiles) -> None:
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


def _usable_pairs(
    paths: tuple[str, ...],
    wanted: str,
    rows: Iterable[tuple[bytes, ...]],
    parse: Callable[..., Pair],
    report: ReadReport,
) -> Iterator[Pair]:
    kept, dropped, first = report.kept, Counter(report.dropped), len(report.examples)
    for number, row in enumerate(rows, 1):
        report.file, report.line = paths[0], number
        report.lines += 1
        if row[0].endswith(b"\r") or row[-1].endswith(b"\r"):
            report.notes["CRLF line ends"] += 1
        try:
            pair = parse(*row)
        except _UnusableError as reason:
            report.drop(str(reason), b"\t".join(row))
        else:
            report.kept += 1
            yield pair
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
    return DataError(f"{name}: no line gives a pair ({reasons}); a line should be {wanted}{shown}")


def _parse_sides(source: bytes, target: bytes) -> Pair:
    return _clean(_decode(source), _decode(target))


def _parse_tsv(raw: bytes) -> Pair:
    match _decode_filled(raw).split("\t"):
        case [source, target]:
            return _clean(source, target)
    raise _UnusableError("malformed TSV line")


def _parse_json(raw: bytes) -> Pair:
    try:
        match json.loads(_decode_filled(raw)):
            case {"source": str(source), "target": str(target)}:
                (source + target).encode()  # half of a surrogate pair is no character
                return _clean(source, target)
    except (ValueError, RecursionError):
        pass
    raise _UnusableError("malformed JSON line")


def _decode(raw: bytes) -> str:
    if len(raw) >= MAX_BYTES:
        raise _UnusableError("over-long line")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _UnusableError("invalid UTF-8") from None


def _decode_filled(raw: bytes) -> str:
    text = _decode(raw)
    if not text.strip():
        raise _UnusableError("empty line")
    return text


def _clean(source: str, target: str) -> Pair:
    pair = Pair(source.strip(), target.strip())
    for side, text in zip(Pair._fields, pair, strict=True):
        if not text:
            raise _UnusableError(f"empty {side}")
        if "\0" in text:
            raise _UnusableError("NUL byte")
        if len(text) > MAX_CHARACTERS:
            raise _UnusableError("over-long line")
    return pair


def _format_of(path: str) -> tuple[str, Callable[[bytes], Pair]]:
    bare = Path(path)
    bare = bare.with_suffix("") if bare.suffix in UNPACKERS else bare
    if bare.suffix not in FORMATS:
        raise DataError(
            f"{path}: a file with both sides ends in {' or '.join(FORMATS)} "
            f"(then {', '.join(UNPACKERS)} where compressed)"
        )
    return FORMATS[bare.suffix]


FORMATS: dict[str, tuple[str, Callable[[bytes], Pair]]] = {
    ".tsv": ("source TAB target", _parse_tsv),
    ".jsonl": ('{"source": "...", "target": "..."}', _parse_json),
}
"""The format of a line of a file with both sides and the function that parses it, by suffix."""
