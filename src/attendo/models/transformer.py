"""The Transformer, figure 1 of the paper: encoder, decoder, and the embeddings around them."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.config import TransformerConfig
from attendo.models.base import AttentionMaps, Memory, Seq2Seq
from attendo.nn.embedding import Embedding
from attendo.nn.grid import Grid
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

    def attention_maps(self, source: Grid, target: Grid) -> AttentionMaps:
        """Compute all attention weights of reading this source and this target."""
        embedded = self.source_embedding(source.ids)
        hidden, encoder = self.encoder(embedded, source, want_weights=True)
        embedded = self.target_embedding(target.ids)
        _, decoded = self.decoder(embedded, target, hidden, source.segments, want_weights=True)
        return AttentionMaps(
            encoder=encoder,
            decoder=[layer.self_weights for layer in decoded],
            cross=[layer.cross_weights for layer in decoded],
        )


def _initialise(module: nn.Module) -> None:
    """Start all projections as Glorot and Bengio 2010, biases at zero."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
