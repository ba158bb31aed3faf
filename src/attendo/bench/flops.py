"""The arithmetic that a model needs, whatever a program makes of it."""

from attendo.config import TransformerConfig


def training_flops(
    config: TransformerConfig, vocabulary: int, n_source: int, n_target: int
) -> float:
    """Estimate the floating-point operations of learning from so many tokens.

    Every weight of a matrix costs each token that passes it two operations forward and four
    backward. Padding does not count, and neither do the products of queries with keys and of
    weights with values, which for sentences are about a hundredth of the whole.
    """
    square = config.d_model**2
    feed_forward = config.d_model * config.d_ff * (3 if config.feed_forward == "gated" else 2)
    keys_values = 2 * square  # of the source, in every decoder layer
    on_source = config.encoder_layers * (4 * square + feed_forward)
    on_source += config.decoder_layers * keys_values
    on_target = config.decoder_layers * (6 * square + feed_forward)
    on_target += config.d_model * vocabulary
    return 6.0 * (on_source * n_source + on_target * n_target)
