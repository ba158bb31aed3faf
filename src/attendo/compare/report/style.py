"""How the page of a report looks: two themes from one list of colours, on any screen."""

from attendo.compare.report.drawing import INK, LINE, PAPER, QUIET, SERIES

DARK = (
    "#6fc3df", "#f0a566", "#8ccf8f", "#e39ac9", "#d8c35a", "#a9adf5", "#f28b90", "#83d0ce",
)  # fmt: skip
"""The colours of the systems on a dark page, in the order of those on a light one."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: light-dark(#faf9f6, #11151b);
  --card: light-dark(#ffffff, #171c23);
  --ink: light-dark(#1a2129, #e9ecef);
  --quiet: light-dark(#56606c, #a7b1bd);
  --line: light-dark(#d9d7cf, #38414d);
  --mark: light-dark(#fbe3cc, #523518);
SERIES
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 74rem; padding: 2rem clamp(1rem, 4vw, 3rem) 4rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1, h2 {
  font-family: "Iowan Old Style", Palatino, Georgia, "DejaVu Serif", serif; line-height: 1.2;
}
h1 { font-size: clamp(1.7rem, 1.2rem + 2.4vw, 2.6rem); margin: 0 0 0.6rem; }
h2 { font-size: 1.5rem; margin: 3rem 0 0.8rem; }
p, li { max-width: 46rem; }
h1, h2, p, li, dt, dd, figcaption { overflow-wrap: anywhere; }
.subtitle, figcaption { color: var(--quiet); }
ul { padding-left: 1.2rem; }
li { margin: 0.35rem 0; }
/* A table that is too wide scrolls by itself: a shadow and a line of text say so where it does. */
.scroll {
  overflow-x: auto;
  background:
    linear-gradient(to left, var(--paper) 1.5rem, transparent) right / 3rem 100% local no-repeat,
    linear-gradient(to left, var(--line), transparent) right / 0.9rem 100% scroll no-repeat;
  animation: wide linear; animation-timeline: scroll(self inline);
}
@keyframes wide { from, to { --hint: block; } }
.hint {
  display: var(--hint, none); position: sticky; left: 0; width: max-content;
  margin: 0; padding-top: 0.3rem; color: var(--quiet); font-size: 0.84rem;
}
table { border-collapse: collapse; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
th, td {
  padding: 0.4rem 0.45rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap;
}
thead th { color: var(--quiet); font-weight: 600; white-space: normal; vertical-align: bottom; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
td.best { font-weight: 700; }
figure { margin: 1.4rem 0; }
figcaption { max-width: 46rem; margin-top: 0.6rem; font-size: 0.9rem; }
.plots {
  display: grid; gap: 0.8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr));
}
.plots.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
.plots > div {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.6rem;
}
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
.example {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.9rem 1.1rem; margin: 0.8rem 0;
}
.example p { margin: 0 0 0.3rem; max-width: none; }
.example .source { font-weight: 600; }
.example dd:first-of-type { font-weight: 600; }
.example dl {
  display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 0.6rem 0 0;
  font-size: 0.94rem;
}
.example dt { color: var(--quiet); }
.example dd { margin: 0; }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 0.15em; }
pre {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.88rem;
}
@media (max-width: 40rem) {
  .example dl { grid-template-columns: 1fr; }
  .example dt { margin-top: 0.4rem; }
}
@media print { h2 { break-after: avoid; } .plots > div, .example { break-inside: avoid; } }
"""


def style_sheet() -> str:
    """Write the style sheet, with a colour for every system."""
    pairs = zip(SERIES, DARK, strict=True)
    series = [
        f"  --series-{number}: light-dark({light}, {dark});"
        for number, (light, dark) in enumerate(pairs)
    ]
    return STYLE.replace("SERIES", "\n".join(series))


def themed(svg: str) -> str:
    """Put the page's colours, which follow light and dark, in the place of a picture's own."""
    names = {INK: "ink", QUIET: "quiet", LINE: "line", PAPER: "card"}
    names |= {colour: f"series-{number}" for number, colour in enumerate(SERIES)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg
