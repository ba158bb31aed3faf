"""One layer or head of a recorded text as an image: a matrix, or drawn over what a model reads."""

from pathlib import Path

from attendo.errors import ConfigError
from attendo.look.aggregates import mean_of_heads
from attendo.look.heads import NAMES
from attendo.look.heatmap import draw_heatmap
from attendo.look.overlay import draw_below_spectrogram, draw_on_image
from attendo.look.record import RecordedText, layers_of, sharpest

SIDES = {
    "encoder": ("source (queries)", "source (keys)"),
    "decoder": ("target (queries)", "target (keys)"),
    "cross": ("target", "source"),
}
"""Labels of the rows and of the columns."""

ONE_SIDE = ("queries", "keys")
"""The same for a model with one text."""


def draw_look(
    recorded: RecordedText,
    path: Path,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Draw the attention weights of a layer, or of one of its heads, counted from 0.

    Without a kind, the first of encoder-decoder, decoder and encoder attention that the model has
    is drawn; without a layer, the one with the lowest entropy; without a head, the mean of all.
    """
    kind = recorded.kind if kind is None else kind
    layers = layers_of(recorded, kind)
    layer = sharpest(layers) if layer is None else layer
    _check("layer", layer, len(layers))
    weights = layers[layer]
    if head is not None:
        _check("head", head, len(weights))
        of, chosen = f", head {head + 1}", weights[head]
    else:
        of = f", mean of {len(weights)} heads" if len(weights) > 1 else ""
        chosen = mean_of_heads(weights)
    title = f"{NAMES[kind].capitalize()}, layer {layer + 1}"
    picture = recorded.picture
    if picture is not None and kind == "encoder" and picture.rows > 1:
        draw_on_image(weights, picture, head, title, path)
        return
    pair = recorded.tokenized
    queries = {"encoder": pair.source_tokens, "decoder": recorded.target_inputs}
    keys = {"decoder": recorded.target_inputs}
    rows, columns = queries.get(kind, pair.target_tokens), keys.get(kind, pair.source_tokens)
    if picture is not None and kind != "decoder":
        draw_below_spectrogram(chosen, picture, rows, columns, title + of, path)
        return
    draw_heatmap(
        chosen,
        columns,
        rows,
        title + of,
        path,
        *(SIDES[kind] if recorded.is_pair else ONE_SIDE),
    )


def _check(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ConfigError(f"there is no {what} {number + 1}; the model has {count}")
