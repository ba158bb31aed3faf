"""Readers: alignment never shifts, every bad file is an error, memory is bounded."""

import gzip
import io
import json
import lzma
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attendo.data.readers import (
    MAX_CHARACTERS,
    Pair,
    ReadReport,
    RecordFiles,
    check_alignment,
    count_lines,
    read_aligned,
    read_lines,
    read_records,
    shorten,
)
from attendo.errors import DataError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}

# Everything that some line splitter takes for a line end, and what editors leave behind.
AWKWARD = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\ufeff\u200b\t a"
LINES = st.lists(
    st.text(st.sampled_from(AWKWARD) | st.characters(codec="utf-8", exclude_characters="\n")),
    min_size=1,
    max_size=20,
).filter(lambda lines: not is_binary("".join(lines)))


def is_binary(text: str) -> bool:
    """Return whether there are so many control characters that it is not read as text."""
    return sum(character < " " for character in text) > 0.1 * len(text)


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def aligned(tmp_path: Path, source: bytes, target: bytes) -> RecordFiles:
    return RecordFiles((write(tmp_path / "a.en", source),), (write(tmp_path / "a.de", target),))


def combined(tmp_path: Path, name: str, content: bytes) -> RecordFiles:
    return RecordFiles(files=(write(tmp_path / name, content),))


def read(files: RecordFiles) -> tuple[list[Pair], ReadReport]:
    report = ReadReport()
    return list(read_records(files, report)), report


@given(source=LINES, target=LINES, final=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_alignment_never_shifts(
    tmp_path: Path, source: list[str], target: list[str], final: bool
) -> None:
    lines = [
        (left, right)
        for left, right in zip(source, target, strict=False)
        if "\0" not in left + right
    ]
    lines = [("first", "erste"), *lines, ("last", "letzte")]
    end = "\n" * final
    files = aligned(
        tmp_path,
        ("\n".join(left for left, _ in lines) + end).encode(),
        ("\n".join(right for _, right in lines) + end).encode(),
    )
    report = ReadReport()
    got = [(report.line, pair) for pair in read_records(files, report)]
    assert got == [
        (number, Pair(left.strip(), right.strip()))
        for number, (left, right) in enumerate(lines, 1)
        if left.strip() and right.strip()
    ]
    assert report.lines == len(lines) == check_alignment(files)
    assert report.kept + report.dropped.total() == report.lines


@given(lines=LINES, final=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_single_files_lose_nothing_but_their_line_ends(
    tmp_path: Path, lines: list[str], final: bool
) -> None:
    lines = ["first", *lines, "last"]
    path = write(tmp_path / "lines.txt", ("\n".join(lines) + "\n" * final).encode())
    expected = [line.removesuffix("\r") for line in lines]
    assert list(read_lines(path)) == expected
    assert list(read_lines(io.BytesIO(Path(path).read_bytes()))) == expected
    assert count_lines(path) == len(lines)
    assert read_aligned(path, path) == (expected, expected)


@given(pairs=st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=10))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_json_lines_bring_back_any_text(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    pairs = [("a", "b"), *((left.replace("\0", ""), right) for left, right in pairs)]
    rows = [json.dumps({"id": 7, "source": left, "target": right}) for left, right in pairs]
    got, _ = read(combined(tmp_path, "p.jsonl", "\n".join(rows).encode()))
    assert got == [
        Pair(left.strip(), right.strip())
        for left, right in pairs
        if left.strip() and right.strip() and "\0" not in right
    ]


@pytest.mark.parametrize("suffix", PACKERS)
def test_each_compression_gives_the_same_pairs(tmp_path: Path, suffix: str) -> None:
    expected = [Pair(f"Satz {i}", f"sentence {i} ü") for i in range(20_000)]
    left = "\n".join(pair.source for pair in expected).encode()
    right = "\n".join(pair.target for pair in expected).encode()
    both = "\n".join("\t".join(pair) for pair in expected).encode()
    pack = PACKERS[suffix]
    files = RecordFiles(
        (write(tmp_path / f"a.de{suffix}", pack(left)),),
        (write(tmp_path / f"a.en{suffix}", pack(right)),),
        (write(tmp_path / f"a.tsv{suffix}", pack(both)),),
    )
    got, report = read(files)
    assert got == expected * 2
    assert report.bytes_read == sum(Path(path).stat().st_size for path in files)
    assert check_alignment(files) == 40_000


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_files_packed_in_several_parts_are_read_to_the_end(tmp_path: Path, suffix: str) -> None:
    pack = PACKERS[suffix]
    path = write(tmp_path / f"a{suffix}", pack(b"one\ntw") + pack(b"o\n") + pack(b"three"))
    assert list(read_lines(path)) == ["one", "two", "three"]


def test_skippable_zstandard_frames_are_skipped(tmp_path: Path) -> None:
    skip = struct.pack("<II", 0x184D2A50, 700) + bytes(700)
    path = write(tmp_path / "a.zst", skip + zstandard.compress(b"one\n") + skip)
    assert list(read_lines(path)) == ["one"]


def test_unusable_pairs_are_dropped_alone_and_counted(tmp_path: Path) -> None:
    long = b"x" * (MAX_CHARACTERS + 1)
    source = b"\xef\xbb\xbfone\r\n\r\nthree\nfo\0ur\nfi\xffve\n" + long + b"\nseven\n"
    target = b"eins\nzwei\n \t\nvier\nfuenf\nsechs\nsieben\n"
    pairs, report = read(aligned(tmp_path, source, target))
    assert pairs == [Pair("one", "eins"), Pair("seven", "sieben")]
    assert report.dropped == {
        "empty source": 1,
        "empty target": 1,
        "NUL byte": 1,
        "invalid UTF-8": 1,
        "over-long line": 1,
    }
    assert report.notes == {"byte order mark removed": 1, "CRLF line ends": 2}
    places = {example.reason: Path(example.place).name for example in report.examples}
    assert places["empty source"] == "a.en:2"
    assert places["over-long line"] == "a.en:6"
    assert max(len(example.text) for example in report.examples) <= 60


def test_malformed_lines_of_combined_files_are_dropped_and_counted(tmp_path: Path) -> None:
    tsv = b"a\tb\nno tab\n\nthree\tcolumns\there\nc\td\n"
    pairs, report = read(combined(tmp_path, "p.tsv", tsv))
    assert pairs == [Pair("a", "b"), Pair("c", "d")]
    assert report.dropped == {"malformed TSV line": 2, "empty line": 1}
    rows = [
        b'{"source": "a", "target": "b", "score": 1}',
        b'{"src": "a", "tgt": "b"}',
        b'{"source": "a", "target": 5}',
        b'["a", "b"]',
        b'{"source": "a", "target": "\\ud800"}',
        b"[" * 100_000,
        b"{",
        b'{"source": "a", "target": ""}',
    ]
    pairs, report = read(combined(tmp_path, "p.jsonl", b"\n".join(rows)))
    assert pairs == [Pair("a", "b")]
    assert report.dropped == {"malformed JSON line": 6, "empty target": 1}


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 4)])
def test_files_of_different_length_are_named_with_their_counts(
    tmp_path: Path, left: int, right: int
) -> None:
    files = aligned(tmp_path, b"a\n" * left, b"b\n" * right)
    message = rf"a\.en has {left} lines and .*a\.de has {right}:"
    with pytest.raises(DataError, match=message):
        read(files)
    with pytest.raises(DataError, match=message):
        check_alignment(files)
    with pytest.raises(DataError, match=message):
        read_aligned(*files)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.en does not exist"):
        list(read_lines(str(tmp_path / "nowhere.en")))
    with pytest.raises(DataError, match=r"is a folder; give the files"):
        list(read_lines(str(tmp_path)))
    with pytest.raises(DataError, match="no data files were given"):
        read(RecordFiles())


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_cut_off_files_are_not_taken_for_whole(tmp_path: Path, suffix: str) -> None:
    whole = PACKERS[suffix](b"".join(b"line %d\n" % i for i in range(50_000)))
    for share in (0.3, 0.9):
        path = write(tmp_path / f"a{suffix}", whole[: int(share * len(whole))])
        with pytest.raises(DataError, match=r"is cut off in the middle"):
            list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_files_that_are_not_what_their_suffix_says_are_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", b"plain text, long enough to be looked at\n" * 9)
    with pytest.raises(DataError, match="is damaged, or is not the compressed file"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_compressed_files_without_the_suffix_are_recognised(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / "a.en", PACKERS[suffix](b"text\n"))
    with pytest.raises(DataError, match=rf"its name should end in \{suffix}"):
        list(read_lines(path))


def picture() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data))

    pixels = bytes(i * i * 37 % 251 for i in range(3000))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 100, 30, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(pixels))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (picture(), "is a binary file"),
        ("Guten Tag\n".encode("utf-16"), "is UTF-16 text; convert it"),
        ("Guten Tag\n".encode("utf-32"), "is UTF-32 text; convert it"),
        ("Guten Tag\n".encode("utf-16-le") * 9, "is a binary file"),
        ("Добрый день\n".encode("cp1251") * 9, "in another encoding than UTF-8"),
    ],
)
def test_what_is_not_utf8_text_is_called_by_its_name(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(aligned(tmp_path, content, b"text\n"))


def test_a_file_without_a_usable_pair_says_what_was_dropped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 × empty target, 1 × empty source"):
        read(aligned(tmp_path, b"a\nb\n\n", b"\n\nc\n"))
    with pytest.raises(DataError, match=r"a\.en with .*a\.de: empty"):
        read(aligned(tmp_path, b"", b""))
    with pytest.raises(DataError, match=r"should be source TAB target; .*p\.tsv:1 is 'a,b'"):
        read(combined(tmp_path, "p.tsv", b"a,b\nc,d\n"))
    with pytest.raises(DataError, match=r'should be \{"source": .*"src"'):
        read(combined(tmp_path, "p.jsonl", b'{"src": "a", "tgt": "b"}\n'))


def test_one_useless_file_among_good_ones_is_found(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "1.tsv", b"a\tb\n"), write(tmp_path / "2.tsv", b"a b\n")
    with pytest.raises(DataError, match=r"2\.tsv: no line can be used"):
        read(RecordFiles(files=(good, bad)))


def test_file_lists_are_checked_before_anything_is_read() -> None:
    with pytest.raises(DataError, match="2 source files and 1 target files"):
        RecordFiles(("a", "b"), ("c",))
    with pytest.raises(DataError, match=r"p\.csv\.gz: a file with source and target ends in \.tsv"):
        RecordFiles(files=("p.csv.gz",))


def test_invalid_bytes_in_a_single_file_are_located(tmp_path: Path) -> None:
    path = write(tmp_path / "a.en", b"good\nb\xe4d\n")
    with pytest.raises(DataError, match=r"a\.en, line 2: byte 2 is not valid UTF-8"):
        read_aligned(path, path)
    with pytest.raises(DataError, match="standard input, line 2"):
        list(read_lines(io.BytesIO(b"good\nb\xe4d\n")))


def test_lines_of_a_stream_come_out_as_soon_as_they_are_there() -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return self.readline()

    stream = Slow(b"one\ntwo\n")
    lines = read_lines(stream)
    assert next(lines) == "one"
    assert stream.tell() == len(b"one\n")


@pytest.mark.parametrize("suffix", PACKERS)
def test_an_endless_line_needs_little_memory_and_keeps_the_alignment(
    tmp_path: Path, suffix: str
) -> None:
    source = b"one\n" + b"x" * 50_000_000 + b"\nthree\n"
    files = RecordFiles(
        (write(tmp_path / f"a.en{suffix}", PACKERS[suffix](source)),),
        (write(tmp_path / "a.de", b"eins\nzwei\ndrei\n"),),
    )
    del source
    tracemalloc.start()
    try:
        pairs, report = read(files)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pairs == [Pair("one", "eins"), Pair("three", "drei")]
    assert report.dropped == {"over-long line": 1}
    # Blocks of at most 4 MiB, their copies while they are split, and what the unpackers hold.
    assert peak < 20_000_000


def test_shortened_text_is_short_and_printable() -> None:
    assert shorten("a\x1b[31m\u2028b") == "a·[31m·b"
    assert len(shorten("x" * 1000, 20)) == 20


class Endless(io.BufferedIOBase):
    """A line without an end."""

    def read1(self, size: int = -1) -> bytes:
        return b"y" * (1 << 20)


def test_an_endless_line_is_refused_where_nothing_may_be_cut() -> None:
    lines = read_lines(Endless())
    with pytest.raises(DataError, match="standard input, line 1 is longer than 64 MiB"):
        next(lines)


def test_a_huge_line_is_read_whole_in_a_few_times_its_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.en", b"one\n" + b"x" * 50_000_000 + b"\nthree\n")
    tracemalloc.start()
    try:
        sizes = [len(line) for line in read_lines(path)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sizes == [3, 50_000_000, 5]
    assert peak < 5 * 50_000_000


def test_pipes_are_refused_before_they_are_opened(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe.tsv", write(tmp_path / "a.tsv", b"a\tb\n")
    os.mkfifo(pipe)
    files = RecordFiles(files=(file, str(pipe)))
    for function in (check_alignment, read):
        with pytest.raises(DataError, match=r"pipe\.tsv is not a regular file"):
            function(files)


def test_file_names_must_be_utf8() -> None:
    with pytest.raises(DataError, match=r"file name 'a\\udcff' is not UTF-8; rename"):
        RecordFiles(("a\udcff",), ("b",))
