"""Texts in many files: a folder, or a pattern such as src/**/*.py, stands for the files in it."""

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path

from attendo.data.lines import FileReport, text_blocks
from attendo.data.readers import PLAIN_SUFFIXES, suffix_of
from attendo.errors import DataError


def find_texts(paths: Iterable[str]) -> tuple[str, ...]:
    """Replace folders and patterns by the files with text in them, in the order of their names.

    Files that are empty or not UTF-8 are left out, and hidden ones.

    Raises:
        DataError: A file is missing, or a folder or pattern has no text.
    """
    return tuple(file for path in paths for file in _expand(path))


def _expand(path: str) -> Iterator[str]:
    if Path(path).is_dir():
        found = (str(file) for file in sorted(Path(path).rglob("*")) if not _is_hidden(file, path))
        files = [file for file in found if suffix_of(file) in PLAIN_SUFFIXES and _has_text(file)]
        what = f"a folder without any text; expected files such as {', '.join(PLAIN_SUFFIXES[:3])}"
    elif any(sign in path for sign in "*?[") and not Path(path).exists():
        files = [file for file in sorted(glob(path, recursive=True)) if _has_text(file)]
        what = "a pattern that fits no file with text"
    elif not Path(path).exists():
        raise DataError(f"{path} does not exist")
    else:
        yield path
        return
    if not files:
        raise DataError(f"{path}: {what}")
    yield from files


def _is_hidden(file: Path, folder: str) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _has_text(file: str) -> bool:
    """Return whether a file is UTF-8 and not blank."""
    if not Path(file).is_file():
        return False
    decoder = getincrementaldecoder("utf-8")()
    is_blank = True
    try:
        for block in text_blocks(file, FileReport()):
            is_blank &= not decoder.decode(block).strip()
        decoder.decode(b"", final=True)
    except (DataError, UnicodeDecodeError):
        return False
    return not is_blank
