"""Images: files, folders, IDX files (MNIST) and NumPy arrays, as squares of pixels."""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from attendo.config import ImageConfig
from attendo.data.media.drawn import draw_image
from attendo.data.media.items import Item, list_folder, read_item, shown
from attendo.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
"""As Pillow names them; others, some of them with a long history of flaws, are not read."""

MOST_PIXELS = 50_000_000

COMPANIONS = (("images", "labels"), ("idx3", "idx1"))
"""What differs between the name of a file of images and that of its labels."""

NAMES = {"images": "labels", "x": "y", "x_train": "y_train"}
"""Arrays of images in a .npz file, and those of their labels."""


class LabelledImage(NamedTuple):
    """An image and its label."""

    image: str
    label: str

    @classmethod
    def list_items(cls, path: str) -> Iterator["LabelledImage"] | None:
        """List what a folder or a file of many images holds; None for other files."""
        items = _list(Path(path))
        return None if items is None else (cls(*item) for item in items)


def _list(path: Path) -> Iterator[Item] | None:
    if path.is_dir():
        return list_folder(path, SUFFIXES)
    if path.suffix in (".npz", ".npy") or "idx3" in path.name:
        return _list_arrays(str(path.absolute()))
    return None


def _list_arrays(path: str) -> Iterator[Item]:
    images, labels = _images(path), _labels(path)
    if labels.shape != images.shape[:1]:
        raise DataError(f"{path}: {len(images):,} images, but labels of shape {[*labels.shape]}")
    for number, label in enumerate(labels.tolist()):
        yield f"{path}#{number}", str(label)


def read_image(reference: str, config: ImageConfig) -> UInt8[np.ndarray, "H W C"]:
    """Read an image as a square of pixels.

    Raises:
        DataError: There is no such image, or its file is damaged or of another kind.
    """
    if reference.startswith("drawn:"):
        drawn = draw_image(reference.removeprefix("drawn:"), config.size)
        return drawn[..., None].repeat(config.channels, axis=-1)
    path, number = _number_of(reference)
    if number is None:
        return _decode(read_item(reference), shown(reference), config)
    images = _images(path)
    if number >= len(images):
        raise DataError(f"{path} has {len(images):,} images, so {reference} is none of them")
    pixels: NDArray[np.uint8] = images[number]
    is_fit = pixels.shape[:2] == (config.size,) * 2
    if is_fit and (pixels.shape[2:] or (1,)) == (config.channels,):
        return pixels.reshape(config.size, config.size, config.channels)
    return _square(_from_pixels(pixels), config)


def _number_of(reference: str) -> tuple[str, int | None]:
    """Split `images.npz#17`; a reference without a number is the name of a file."""
    path, _, number = reference.rpartition("#")
    is_numbered = path and re.fullmatch("[0-9]{1,18}", number) and not Path(reference).exists()
    return (path, int(number)) if is_numbered else (reference, None)


# -- files with one image --------------------------------------------------------------------------


def _decode(content: bytes, name: str, config: ImageConfig) -> UInt8[np.ndarray, "H W C"]:
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"{image.width} by {image.height} pixels are too many")
            upright = ImageOps.exif_transpose(image)
            return _square(upright, config)
    except Exception as error:  # a damaged file fails in many ways
        reason = "" if "cannot identify" in str(error) else f" ({error})"
        raise DataError(
            f"{name} is not an image that can be read{reason}; expected one of: "
            f"{', '.join(suffix[1:] for suffix in SUFFIXES)}"
        ) from None


def _square(image: Any, config: ImageConfig) -> UInt8[np.ndarray, "H W C"]:
    """Scale an image to a square, with black beside it if it is not one; transparent is white."""
    from PIL import Image, ImageOps

    if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off instead of scaling
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    image = image.convert("L" if config.channels == 1 else "RGB")
    if image.size != (config.size, config.size):
        image = ImageOps.pad(image, (config.size, config.size), Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(config.size, config.size, config.channels)


def _from_pixels(pixels: UInt8[np.ndarray, "..."]) -> Any:
    from PIL import Image

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels))


# -- files with many images ------------------------------------------------------------------------


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, zlib.error, BadZipFile) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


@lru_cache(maxsize=4)
def _images(path: str) -> NDArray[np.uint8]:
    with _explained(path):
        images = _read_npz(path)[0] if path.endswith(".npz") else _read_array(path)
        if images.ndim not in (3, 4) or images.dtype != np.uint8:
            raise ValueError(
                f"it holds {images.dtype} of shape {list(images.shape)}; expected uint8, "
                "(images, height, width) or (images, height, width, channels)"
            )
        if images.ndim == 4 and images.shape[3] not in (1, 3):
            raise ValueError(f"{images.shape[3]} channels; expected 1 or 3, in the last axis")
        return images


def _labels(path: str) -> NDArray[Any]:
    """Read the labels of images, from the same file or one beside it."""
    with _explained(path):
        if not path.endswith(".npz"):
            return _read_array(_companion(path))
        labels = _read_npz(path)[1]
        if labels is None:
            raise ValueError(f"it has no labels; expected an array {' or '.join(NAMES.values())}")
        return labels.reshape(-1)


def _companion(path: str) -> str:
    name = Path(path).name
    for images, labels in COMPANIONS:
        name = name.replace(images, labels)
    if name == Path(path).name:
        raise ValueError('its name does not contain "images", so its labels cannot be found')
    return str(Path(path).with_name(name))


def _read_npz(path: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return images, and labels if there are any."""
    with open(path, "rb") as content:  # which NumPy leaves open if the file is damaged
        file = _load(content)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array; the name of such a file ends in .npy")
        for images, labels in NAMES.items():
            if images in file:
                return file[images], file.get(labels)
        raise ValueError(f"it holds {', '.join(file)}; expected arrays images and labels")


def _load(file: Any, **how: Any) -> Any:
    try:
        return np.load(file, allow_pickle=False, **how)
    except ValueError as error:
        if "allow_pickle" in str(error):  # which is what NumPy takes any other file for
            raise ValueError("NumPy has not written it") from None
        raise


def _read_array(path: str) -> NDArray[Any]:
    if path.endswith(".npy"):
        array: NDArray[Any] = _load(path, mmap_mode="r")
        return array
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        return parse_idx(file.read())


def parse_idx(content: bytes) -> UInt8[np.ndarray, "..."]:
    """Return the array of bytes of an IDX file (MNIST): magic number, sizes, values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an IDX file of bytes")
    n_axes = content[3]
    sizes = np.frombuffer(content, ">u4", n_axes, offset=4).astype(int)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * n_axes)
    if len(values) != sizes.prod():
        raise ValueError(f"{len(values):,} values; expected {' × '.join(map(str, sizes))}")
    return values.reshape(sizes)
