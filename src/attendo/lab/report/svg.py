"""Small plots as SVG: frames, names at the ends of lines, and text that is text."""

import io
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from xml.etree import ElementTree

INK, QUIET, LINE, PAPER = "#1a2129", "#56606c", "#d9d7cf", "#ffffff"
SERIES = (
    "#0e5a80", "#b4520a", "#2f7d32", "#8a2a6b", "#6b5b00", "#4b4fb3", "#a3232b", "#2a7473",
)  # fmt: skip
"""Dark enough to be read as text on white; a page may put others in their places."""

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": LINE,
    "axes.axisbelow": True,
    "axes.labelsize": 8.5,
    "axes.labelcolor": QUIET,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "font.size": 9,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
}


class Plot(NamedTuple):
    """A picture, and its description for screen readers."""

    name: str
    svg: str
    alt: str


def new_axes(width: float, height: float) -> Any:
    """Create a figure of so many inches with one plain frame."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
        return figure.add_subplot()


def entitle(axes: Any, text: str, colour: str = INK) -> None:
    """Write a title above a picture."""
    axes.figure.suptitle(text, x=0.01, ha="left", color=colour, fontsize=10, fontweight="bold")


def finish(axes: Any, name: str, alt: str) -> Plot:
    """Write a picture down."""
    from matplotlib import rc_context

    written = io.BytesIO()
    with rc_context({**STYLE, "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        axes.figure.savefig(written, format="svg", metadata=nothing)
    return Plot(name, _tidy(written.getvalue().decode(), name, alt), alt)


def label_ends(axes: Any, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Write names (with colour, x and y) beside the ends of lines, a thread to each end."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    wanted = [(y - bottom) / (top - bottom) for _, _, _, y in ends]
    beside = right + 0.03 * (right - left)
    for (name, colour, x, y), place in zip(ends, apart(wanted, gap=0.085), strict=True):
        height = bottom + place * (top - bottom)
        axes.plot((x, beside), (y, height), color=colour, linewidth=0.6, clip_on=False)
        axes.text(beside, height, f" {name}", color=colour, va="center")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Move values in [0, 1] apart to a minimum gap, in the same order."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    # What was moved beyond the top is moved back, and moves the others down.
    ceiling = max(1.0, gap * (len(places) - 1))
    for place in reversed(order):
        moved[place] = min(moved[place], ceiling)
        ceiling = moved[place] - gap
    return moved


def _tidy(svg: str, name: str, alt: str) -> str:
    """Remove metadata and make all ids unique, so that a page can hold many pictures."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.attrib["id"] = f"{name}-{own}"
        for key in (f"{{{XLINK}}}href", "clip-path"):
            if key in element.attrib:
                element.attrib[key] = element.attrib[key].replace("#", f"#{name}-")
    root.attrib |= {"role": "img", "aria-label": alt}
    return ElementTree.tostring(root, encoding="unicode")
