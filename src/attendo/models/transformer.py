"""The Transformer, figure 1 of the paper: encoder, decoder, and the embeddings around them."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.config import TransformerConfig
from attendo.models.base import Memory, Recording, Seq2Seq
from attendo.nn.embedding import Embedding
from attendo.nn.grid import Grid
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.stacks import Decoder, DecoderState, Encoder


class Transformer(Seq2Seq):
    """Encoder-decoder with attention only."""

    def __init__(self, config: TransformerConfig, n_source: int, n_target: int) -> None:
        super().__init__()
        self.target_embedding = Embedding(n_target, config.d_model)
        self.source_embedding = (
            self.target_embedding if config.tied == "all" else Embedding(n_source, config.d_model)
        )
        self.encoder = Encoder(config, config.encoder_layers)
        self.decoder = Decoder(config, config.decoder_layers)
        self.output = nn.Linear(config.d_model, n_target, bias=False)
        self.apply(_initialise)
        if config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling: embeddings, entries and layers."""
        if self.encoder.is_reversible:  # what is computed again backwards is not compiled
            return []
        embeddings = (self.source_embedding, self.target_embedding)
        return [*embeddings, *self.encoder.parts(), *self.decoder.parts()]

    def encode(self, source: Grid) -> Memory:
        """Read the source."""
        hidden, _ = self.encoder(self.source_embedding(source.ids), source)
        return Memory(hidden, source.segments)

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Read the target, every token with sight of the source and of what came before it."""
        embedded = self.target_embedding(target.ids)
        hidden: Tensor
        hidden, _ = self.decoder(embedded, target, memory.hidden, memory.segments)
        return hidden

    def start(self, memory: Memory) -> DecoderState:
        """Begin to decode, one sentence a row."""
        return self.decoder.start(memory.hidden, memory.segments)

    def step(
        self, tokens: Int[Tensor, " R"], state: DecoderState
    ) -> tuple[Float[Tensor, "R V"], DecoderState]:
        """Add one token to every row and score what comes next."""
        hidden, state = self.decoder.step(self.target_embedding(tokens[:, None]), state)
        return self.logits(hidden[:, 0]), state

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """List the attentions of each kind, first layer first."""
        decoder = self.decoder.typed_layers()
        return {
            "encoder": [layer.self_attention for layer in self.encoder.typed_layers()],
            "decoder": [layer.self_attention for layer in decoder],
            "cross": [layer.cross_attention for layer in decoder],
        }

    def record(self, source: Grid, target: Grid) -> Recording:
        """Read a source and a target and keep all that happens on the way."""
        embedded = self.source_embedding(source.ids)
        memory, encoder = self.encoder(embedded, source, record=True)
        embedded = self.target_embedding(target.ids)
        hidden, decoder = self.decoder(embedded, target, memory, source.segments, record=True)
        return Recording(encoder, decoder, self.logits(hidden))


def _initialise(module: nn.Module) -> None:
    """Start all projections as Glorot and Bengio 2010, biases at zero."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
