"""Write an inspection as a page, an image or an animation, by the name of the file."""

from pathlib import Path
from typing import Any

from attendo.config import choose
from attendo.engines import Translator
from attendo.errors import ConfigError
from attendo.files import write_text
from attendo.look.animation import draw_decoding
from attendo.look.answers import N_CANDIDATES, everything_json
from attendo.look.heads import NAMES
from attendo.look.heatmap import draw_look
from attendo.look.page import whole_page
from attendo.look.record import RecordedPair, candidates

PICTURES = (".png", ".svg")
ANIMATION = ".gif"
PAGES = (".html", ".htm")


def show(
    translator: Translator,
    recorded: RecordedPair,
    path: Path,
    kind: str = "cross",
    layer: int | None = None,
    head: int | None = None,
    card: dict[str, Any] | None = None,
) -> None:
    """Write a recorded pair to a file; a page also describes the model by its score card."""
    choose(NAMES, kind, "--what")
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        draw_look(recorded, path, kind, layer, head)
    elif suffix == ANIMATION:
        draw_decoding(recorded, candidates(translator, recorded, N_CANDIDATES), path)
    elif suffix in PAGES:
        write_text(path, whole_page(everything_json(translator, recorded, card or {})))
    else:
        raise ConfigError(f"{str(path)!r} has an unknown ending; use .html, .png, .svg or .gif")
