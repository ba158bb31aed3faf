"""A constituency tree as an image: the words in one row, with their constituents above them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attendo.errors import ConfigError
from attendo.look.heatmap import save_figure
from attendo.look.write import PICTURES
from attendo.text.trees import Tree, unescape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_WORDS = 120
"""More could not be read."""

INK, LINES, TAGS = "#0c2a52", "#8aa3b4", "#1f6f98"


class Placed(NamedTuple):
    """A node with its place: columns are characters wide, words are at height 0."""

    tree: Tree
    x: float
    height: float
    children: list["Placed"]


def check_picture(path: Path) -> None:
    """Refuse names of files that are no images."""
    if path.suffix.lower() not in PICTURES:
        raise ConfigError(f"{str(path)!r} has an unknown ending; use {' or '.join(PICTURES)}")


def draw_parse(tree: Tree, path: Path) -> None:
    """Draw a tree as PNG or SVG."""
    from matplotlib.figure import Figure

    words = tree.words()
    if not any(words) or len(words) > MOST_WORDS:
        raise ConfigError(
            f"a tree of {len(words) if any(words) else 0} words cannot be drawn; "
            f"expected 1 to {MOST_WORDS}"
        )
    root, width = place(tree)
    figure = Figure(figsize=(0.4 + 0.095 * width, 0.5 + 0.42 * root.height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-2, width + 2)
    axes.set_ylim(-0.6, root.height + 0.6)
    _draw(axes, root)
    save_figure(figure, path)


def place(tree: Tree) -> tuple[Placed, float]:
    """Return where each node is drawn, and the width of the drawing in characters."""
    return _place(tree, 0.0)


def _place(tree: Tree, left: float) -> tuple[Placed, float]:
    """Place a node to the right of `left`; return it and its right side."""
    if not tree.children:
        width = 2.0 + max(len(unescape(tree.word)), len(tree.label))
        return Placed(tree, left + width / 2, 0.0, []), left + width
    children = []
    right = left
    for child in tree.children:
        placed, right = _place(child, right)
        children.append(placed)
    height = 1 + max(child.height + (0.6 if not child.children else 0) for child in children)
    x = (children[0].x + children[-1].x) / 2
    return Placed(tree, x, height, children), max(right, left + 2.0 + len(tree.label))


def _draw(axes: "Axes", node: Placed) -> None:
    plain: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    if not node.children:
        axes.text(node.x, 0, unescape(node.tree.word), color=INK, size=11, **plain)
        axes.text(node.x, 0.6, node.tree.label, color=TAGS, size=8, **plain)
        return
    axes.text(node.x, node.height, node.tree.label, color=INK, size=10, weight="bold", **plain)
    # Upright lines below one bar: they never cross, since no two constituents overlap.
    bar = node.height - 0.42
    axes.plot([node.x, node.x], [node.height - 0.25, bar], color=LINES, linewidth=0.9)
    for child in node.children:
        top = child.height + 0.25 if child.children else 0.82
        axes.plot([node.x, child.x, child.x], [bar, bar, top], color=LINES, linewidth=0.9)
        _draw(axes, child)
