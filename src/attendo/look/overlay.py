"""Attention over an image, drawn on it, and over the frames of a spectrogram, drawn below it."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attendo.look.heatmap import TICKS, save_figure
from attendo.models.maps import shown_tokens, weight_colours
from attendo.tasks.inspection import Picture

MOST_TIMES = 12
"""Labels of the time axis."""

MOST_HEADS = 8
"""Heads of a layer that are drawn beside their mean."""


def picture_json(picture: Picture | None) -> dict[str, Any] | None:
    """Return a picture for the page: a PNG file as a data URL, and where its positions are."""
    if picture is None:
        return None
    from PIL import Image

    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(picture.pixels)).save(file, "PNG")
    return {
        "data": f"data:image/png;base64,{b64encode(file.getvalue()).decode()}",
        "rows": picture.rows,
        "columns": picture.columns,
        "n_before": picture.n_before,
    }


def draw_on_image(
    layer: Float[Tensor, "H T T"], picture: Picture, head: int | None, title: str, path: Path
) -> None:
    """Draw how much each patch is attended to: by the class token, or by all patches on average."""
    from matplotlib.figure import Figure

    means = {"mean of heads": layer.mean(dim=0)} if len(layer) > 1 else {}
    heads = {f"head {n + 1}": weights for n, weights in enumerate(layer[:MOST_HEADS])}
    shown = means | heads if head is None else {f"head {head + 1}": layer[head]}
    columns = min(1 + len(shown), 6)
    rows = -(-(1 + len(shown)) // columns)
    figure = Figure(figsize=(2.1 * columns, 2.3 * rows + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes = [figure.add_subplot(rows, columns, n + 1) for n in range(1 + len(shown))]
    _draw_pixels(axes[0], picture)
    axes[0].set_title("image", fontsize=9)
    for one, (name, weights) in zip(axes[1:], shown.items(), strict=True):
        _draw_pixels(one, picture)
        over = patch_weights(weights, picture).numpy()
        height, width = picture.pixels.shape[:2]
        one.imshow(over, cmap="inferno", alpha=0.65, vmin=0, extent=(0, width, height, 0))
        one.set_title(name, fontsize=9)
    save_figure(figure, path)


def patch_weights(weights: Float[Tensor, "T S"], picture: Picture) -> Float[Tensor, "rows columns"]:
    """Return the weights of patches: of the class token if there is one, or the mean of all."""
    of = weights[0] if picture.n_before else weights.mean(dim=0)
    found: Tensor = of[picture.n_before :].unflatten(0, (picture.rows, picture.columns))
    return found.float()


def _draw_pixels(axes: Any, picture: Picture) -> None:
    height, width = picture.pixels.shape[:2]
    axes.imshow(picture.pixels, cmap="gray", extent=(0, width, height, 0), vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_below_spectrogram(
    weights: Float[Tensor, "T S"],
    picture: Picture,
    rows: list[str],
    times: list[str],
    title: str,
    path: Path,
) -> None:
    """Draw a spectrogram, and below it how much each row attends to each of its positions."""
    from matplotlib.colors import ListedColormap, PowerNorm
    from matplotlib.figure import Figure

    height = min(1.2 + 0.24 * len(rows), 6.0)
    figure = Figure(figsize=(8.5, 2.0 + height), layout="constrained")
    sound, map_ = figure.subplots(2, 1, height_ratios=[1.6, height], sharex=True)
    n = picture.columns
    sound.imshow(picture.pixels, cmap="magma", aspect="auto", extent=(-0.5, n - 0.5, 0, 1))
    sound.set_yticks([])
    sound.set_ylabel("mel bands", style="italic")
    sound.set_title(title, fontsize=11)
    image = map_.imshow(
        weights[:, picture.n_before :].cpu().numpy(),
        cmap=ListedColormap(weight_colours()),
        norm=PowerNorm(0.5, vmin=0, vmax=1),  # square root, as on the page
        aspect="auto",
        interpolation="nearest",
    )
    few = range(0, n, max(1, -(-n // MOST_TIMES)))
    map_.set_xticks(list(few), [times[picture.n_before + place] for place in few])
    if len(rows) <= 2 * MOST_TIMES:
        map_.set_yticks(range(len(rows)), shown_tokens(rows), parse_math=False)
    map_.tick_params(length=0)
    map_.set_ylabel("queries", style="italic")
    bar = figure.colorbar(image, ax=map_, label="attention weight", ticks=TICKS)
    bar.ax.set_yticklabels([str(tick) for tick in TICKS])
    save_figure(figure, path)
