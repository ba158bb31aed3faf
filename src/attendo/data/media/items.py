"""Items: where an image or a recording is, with its label; and the bytes of a file."""

import binascii
import os
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

from attendo.errors import DataError

MOST_BYTES = 64 << 20
"""Of a file with one image or one recording."""

Item = tuple[str, str]
"""Where it is, and its label."""


def read_item(reference: str) -> bytes:
    """Return the content of a file, or of a data URL.

    Raises:
        DataError: There is no such file, it is too large, or the URL is malformed.
    """
    if reference.startswith("data:"):
        return _read_url(reference)
    path = Path(reference)
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{reference} is not a regular file; expected one image or recording")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{reference} is larger than {MOST_BYTES >> 20} MiB; expected less")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{reference} cannot be read: {str(reason).lower()}") from None


def _read_url(url: str) -> bytes:
    about, comma, text = url.partition(",")
    try:
        if not comma or not about.endswith(";base64"):
            raise ValueError("expected data:TYPE;base64,...")
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{url[:40]!r} is not a data URL: {error}") from None


def shown(reference: str) -> str:
    """Return a reference for messages: the name of a file, and not the content of a URL."""
    return reference[:30] + "…" if reference.startswith("data:") else reference


def list_folder(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Item]:
    """List the files of a folder: the label of a file is the name of the folder that it is in.

    Files right in the folder itself have a label in their name, before the first "_", as in
    `7_jackson_32.wav`.
    """
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and path.is_file():
            is_here = path.parent == folder
            label = path.stem.partition("_")[0] if is_here else path.parent.name
            yield os.path.abspath(path), label


def located(reference: str, folder: Path) -> str:
    """Return where an item is that a list in a folder names."""
    if reference.startswith(("data:", "drawn:")):
        return reference
    return os.path.abspath(folder / reference)
