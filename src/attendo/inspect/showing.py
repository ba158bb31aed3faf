"""A look as a file: a page, a picture or a moving picture, by its name."""

from pathlib import Path

from attendo.engines import Translator
from attendo.errors import ConfigError, did_you_mean
from attendo.files import write_text
from attendo.inspect.animation import draw_decoding
from attendo.inspect.answers import N_CANDIDATES, everything_json
from attendo.inspect.heads import KINDS
from attendo.inspect.heatmap import draw_look
from attendo.inspect.looking import Looked, candidates
from attendo.inspect.page import whole_page

PICTURES = (".png", ".svg")
MOVING = ".gif"
PAGES = (".html", ".htm")


def show(
    translator: Translator,
    looked: Looked,
    path: Path,
    kind: str = "cross",
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write what was seen."""
    if kind not in KINDS:
        raise ConfigError(f"--what {kind} does not exist; {did_you_mean(kind, KINDS)}")
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        draw_look(looked, path, kind, layer, head)
    elif suffix == MOVING:
        draw_decoding(looked, candidates(translator, looked, N_CANDIDATES), path)
    elif suffix in PAGES:
        write_text(path, whole_page(everything_json(translator, looked)))
    else:
        raise ConfigError(f"{str(path)!r}: give a name that ends in .html, .png, .svg or .gif")
