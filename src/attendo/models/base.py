"""The interface of a model family, so that its users are independent of the family.

`Encoder` maps a sequence to hidden states, `CausalLM` predicts the next token of a sequence,
`Seq2Seq` predicts the next token of a target given a source.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.config import AnyModelConfig
from attendo.models.maps import map_html, shown_tokens
from attendo.nn.embedding import GridEmbedding
from attendo.nn.fixed import Size
from attendo.nn.grid import Grid
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.numerics import soft_cap
from attendo.nn.stack import Memory, Recorded

__all__ = ["CausalLM", "Encoder", "Memory", "Model", "Recording", "Seq2Seq", "State"]

State = Any
"""What a family needs to continue decoding: tuples and named tuples of batch-first tensors."""


class Recording(NamedTuple):
    """Everything a model computed for a source and a target, or one of them, for inspection.

    >>> recording, _ = attendo.load("runs/demo").record("The dog sleeps.", "Der Hund schläft.")
    >>> weights = recording.decoder.cross[-1].weights  # of the last layer
    >>> weights.ndim  # sentences, heads, target tokens, source tokens
    4
    """

    encoder: Recorded
    decoder: Recorded
    logits: Float[Tensor, "R T V"]
    """Scores of the next token at every position of the target, or of the classes."""
    source_tokens: tuple[str, ...] = ()
    target_tokens: tuple[str, ...] = ()
    """Of the first row, where the tokenizer is known."""

    def __repr__(self) -> str:
        """Return the shapes: the values would fill many screens."""
        return (
            f"Recording(encoder={self.encoder!r}, decoder={self.decoder!r}, "
            f"logits={list(self.logits.shape)})"
        )

    def _repr_html_(self) -> str | None:
        """Draw attention for notebooks, that of the decoder to the source if there is any."""
        source, target = self.source_tokens, self.target_tokens
        inputs = ("<s>", *target)[: len(target)]
        kinds = (
            ("Encoder-decoder attention", self.decoder.cross, target, source),
            ("Decoder self-attention", self.decoder.attention, inputs, inputs),
            ("Encoder self-attention", self.encoder.attention, source, source),
        )
        for name, records, queries, keys in kinds:
            if records:
                weights = records[-1].weights[0].float().mean(dim=0).cpu()
                rows = shown_tokens(queries) or list(map(str, range(weights.shape[0])))
                columns = shown_tokens(keys) or list(map(str, range(weights.shape[1])))
                caption = f"{name}, last layer, mean of heads; rows: queries, columns: keys"
                return map_html(weights, rows, columns, caption)
        return None


class Model(nn.Module):
    """What all models have in common."""

    logit_cap = 0.0
    """Bound of the logits that the output layer makes; 0: none."""

    def parts(self) -> list[nn.Module]:
        """Return the modules to compile one by one, besides stacks; none: nothing is compiled."""
        return []

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return the attentions whose heads can be ablated, by kind, first layer first."""
        return {"encoder": [], "decoder": [], "cross": []}


class Encoder(Model):
    """Maps sequences to hidden states, each with both sides of its context."""

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        raise NotImplementedError

    def record(self, source: Grid) -> tuple[Memory, Recorded]:
        """Encode the source, and return also what was computed on the way."""
        raise NotImplementedError


class HeadedEncoder(Encoder):
    """An encoder, `body`, with an output layer on its hidden states.

    All kinds name the parameters of the same body alike, so that one can be handed to another.
    """

    output: nn.Linear
    """The last layer; the loss applies it in parts."""

    def __init__(self, body: Encoder) -> None:
        super().__init__()
        self.body = body

    def logits(self, hidden: Float[Tensor, "*R D"]) -> Float[Tensor, "*R C"]:
        """Return the scores of all classes, given the hidden states of the body."""
        scores: Tensor = self.output(hidden)
        return scores

    def parts(self) -> list[nn.Module]:
        """Return those of the body."""
        return self.body.parts()

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        return self.body.encode(source)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return those of the body."""
        return self.body.attentions()

    def record(self, source: Grid) -> tuple[Memory, Recorded]:
        """Encode the source, and return also what was computed on the way."""
        return self.body.record(source)


def layer_counts(config: AnyModelConfig, promise: type[Model]) -> tuple[int, ...]:
    """Return how many layers the stacks of a model have: an encoder, a decoder or both."""
    if issubclass(promise, Encoder):
        return (config.encoder_layers,)
    if issubclass(promise, CausalLM):
        return (config.decoder_layers,)
    return (config.encoder_layers, config.decoder_layers)


def embedding_of(
    source: int | GridEmbedding, make: Callable[[int], GridEmbedding]
) -> GridEmbedding:
    """Return an embedding as it is, or make one for the tokens of a vocabulary."""
    return source if isinstance(source, GridEmbedding) else make(source)


class Predictor(Model):
    """Predicts the next token.

    `step` repeated gives the same logits as `decode` over the whole sequence. A state is a value:
    `step` returns a new one, and search may reorder, drop and repeat its rows. Fields that
    hypotheses of one source share are named by the state (`decoding/rows.py`).
    """

    output: nn.Linear
    """The last layer, from hidden states to logits; the loss applies it in parts."""
    pools: Any = None
    """Where searches run in slots (`decoding/pool.py`), if parameters do not change any more."""

    @property
    def can_be_fixed(self) -> bool:
        """Return whether there is a decoder with caches of a fixed size."""
        return False

    def fixed(self, size: Size, state: State) -> Any:
        """Return a decoder with caches of a fixed size, for states like the given one."""
        raise NotImplementedError

    def logits(self, hidden: Float[Tensor, "*R D"]) -> Float[Tensor, "*R V"]:
        """Return the scores of the whole vocabulary as the next token."""
        return soft_cap(self.output(hidden), self.logit_cap)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Add one token to every row; returns the logits of the next one, and the new state."""
        raise NotImplementedError


class CausalLM(Predictor):
    """Predicts the next token of a sequence from those before it."""

    def decode(self, target: Grid) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows."""
        raise NotImplementedError

    def start(self, rows: int) -> State:
        """Return the state before the first token, one sequence a row."""
        raise NotImplementedError

    def record(self, target: Grid) -> tuple[Float[Tensor, "R T V"], Recorded]:
        """Return the logits, and what was computed on the way."""
        raise NotImplementedError


class Seq2Seq(Predictor):
    """Predicts the next token of a target from its source and the tokens before it."""

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        raise NotImplementedError

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows of the target."""
        raise NotImplementedError

    def start(self, memory: Memory) -> State:
        """Return the state before the first token, one sequence a row."""
        raise NotImplementedError

    def record(self, source: Grid, target: Grid) -> Recording:
        """Run source and target, and return what was computed on the way."""
        raise NotImplementedError
