"""Write an inspection as a page, an image or an animation, by the name of the file."""

from pathlib import Path
from typing import Any

from attendo.config import choose
from attendo.engines import Engine
from attendo.errors import ConfigError
from attendo.files import write_text
from attendo.look.animation import draw_decoding
from attendo.look.answers import N_CANDIDATES, everything_json
from attendo.look.heads import NAMES
from attendo.look.maps import draw_look
from attendo.look.page import whole_page
from attendo.look.record import RecordedText, candidates

PICTURES = (".png", ".svg")
ANIMATION = ".gif"
PAGES = (".html", ".htm")


def show(
    engine: Engine,
    recorded: RecordedText,
    path: Path,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    card: dict[str, Any] | None = None,
) -> None:
    """Write a recorded text to a file; a page also has what the score card says of the model."""
    if kind is not None:
        choose(NAMES, kind, "--what")
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        draw_look(recorded, path, kind, layer, head)
    elif suffix == ANIMATION:
        draw_decoding(recorded, candidates(recorded, N_CANDIDATES), path)
    elif suffix in PAGES:
        write_text(path, whole_page(everything_json(engine, recorded, card or {})))
    else:
        raise ConfigError(f"{str(path)!r} has an unknown ending; use .html, .png, .svg or .gif")
