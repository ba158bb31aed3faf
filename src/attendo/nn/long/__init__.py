"""Attention for long texts: kinds that never build a table of all pairs of tokens.

Each is for the tokens of one sequence among themselves, and says what it approximates. Who may
attend to whom follows from the grid.
"""

from attendo.nn.attention import ATTENTIONS, Attention
from attendo.nn.long.kinds import Chunks, Favor, Lsh, Window

LONG_ATTENTIONS: dict[str, type[Attention]] = {
    "window": Window,
    "chunks": Chunks,
    "lsh": Lsh,
    "favor": Favor,
}

SELF_ATTENTIONS: dict[str, type[Attention]] = {**ATTENTIONS, **LONG_ATTENTIONS}
"""All that a stack's tokens can use among themselves."""
