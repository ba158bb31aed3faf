"""What a model family promises, so that nobody who uses a model asks which family it is."""

from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.models.maps import map_html, shown_tokens
from attendo.nn.grid import Grid
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.stacks import Recorded

State = Any
"""What a family needs to go on decoding: tuples and named tuples of batch-first tensors."""


class Memory(NamedTuple):
    """A source that has been read."""

    hidden: Float[Tensor, "R S D"]
    segments: Int[Tensor, "R S"]
    """Whose tokens these are, as in the source grid."""


class Recording(NamedTuple):
    """Everything a model computed for a source and a target, for inspection."""

    encoder: Recorded
    decoder: Recorded
    logits: Float[Tensor, "R T V"]
    """Scores of the next token at every position of the target."""
    source_tokens: tuple[str, ...] = ()
    target_tokens: tuple[str, ...] = ()
    """Of the first row, where the tokenizer is known."""

    def __repr__(self) -> str:
        """Name the shapes: the values would fill many screens."""
        return (
            f"Recording(encoder={self.encoder!r}, decoder={self.decoder!r}, "
            f"logits={list(self.logits.shape)})"
        )

    def _repr_html_(self) -> str | None:
        """Draw encoder-decoder attention for notebooks; None where there is none."""
        if not self.decoder.cross:
            return None
        weights = self.decoder.cross[-1].weights[0].float().mean(dim=0).cpu()
        rows = shown_tokens(self.target_tokens) or list(map(str, range(weights.shape[0])))
        columns = shown_tokens(self.source_tokens) or list(map(str, range(weights.shape[1])))
        caption = (
            "Encoder-decoder attention, last layer, mean of heads; rows: target, columns: source"
        )
        return map_html(weights, rows, columns, caption)


class Seq2Seq(nn.Module):
    """Reads a source, then says for every target token what comes next.

    `step` repeated gives the same logits as `decode` over the whole target. A state is a value:
    `step` returns a new one, and search may reorder, drop and repeat its rows. What beams need not
    have each for itself, a state may name (`decoding/state.py`).
    """

    output: nn.Linear
    """The last layer, from hidden vectors to logits; the loss goes through it in parts."""

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling, each on its own; like ones compile once."""
        raise NotImplementedError

    def encode(self, source: Grid) -> Memory:
        """Read the source."""
        raise NotImplementedError

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Read the target, every token with sight of the source and of what came before it."""
        raise NotImplementedError

    def logits(self, hidden: Float[Tensor, "*R D"]) -> Float[Tensor, "*R V"]:
        """Score the whole vocabulary as the next token."""
        scores: Tensor = self.output(hidden)
        return scores

    def start(self, memory: Memory) -> State:
        """Begin to decode, one sentence a row."""
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Add one token to every row and score what comes next."""
        raise NotImplementedError

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """List the attentions of each kind (encoder, decoder, cross), first layer first."""
        raise NotImplementedError

    def record(self, source: Grid, target: Grid) -> Recording:
        """Read a source and a target and keep all that happens on the way."""
        raise NotImplementedError
