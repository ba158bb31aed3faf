"""The reference against PyTorch, against the formulas written as loops, and against its claims."""

import doctest
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attendo.reference import paper

# Distinct sizes, primes where the model lets them be, so that a swapped axis cannot pass.
H, D_K, D_FF, T, S, V_SOURCE, V = 2, 7, 11, 5, 3, 13, 17
D_MODEL = H * D_K

# Both sides compute in float64; what is left is the order of the sums.
TOLERANCE = 1e-10


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def assert_same(actual: np.ndarray, expected: np.ndarray | Tensor) -> None:
    if isinstance(expected, Tensor):
        expected = expected.detach().numpy()
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def some_keys_mask(rng: np.random.Generator) -> np.ndarray:
    """Make a random mask (T, S) in which every query has a key: PyTorch's layers need one."""
    mask = rng.random((T, S)) < 0.5
    mask[:, 0] = True
    return mask


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """Fill all weights with noise: fresh biases are 0 and fresh gains 1, which hides mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        # Gains near 1, or the differences between tokens are lost after a few layers.
        mean = 1.0 if name.startswith("norm") and name.endswith("weight") else 0.0
        nn.init.normal_(parameter, mean, std=0.2, generator=generator)
    return module


def torch_attention() -> nn.Module:
    return randomised(nn.MultiheadAttention(D_MODEL, H, batch_first=True, dtype=torch.float64))


def torch_layer(kind: type[nn.Module], seed: int = 0) -> nn.Module:
    layer = kind(D_MODEL, H, D_FF, dropout=0.0, batch_first=True, dtype=torch.float64)
    return randomised(layer, seed)


def weight_and_bias(weight: Tensor, bias: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Turn PyTorch's (out, in) into the reference's (in, out)."""
    return weight.detach().numpy().T, bias.detach().numpy()


def linear_weights(*modules: nn.Module) -> list[np.ndarray]:
    return [part for module in modules for part in weight_and_bias(module.weight, module.bias)]


def attention_weights(module: nn.Module) -> paper.AttentionWeights:
    matrices, biases = module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3)
    inputs = [
        part for pair in zip(matrices, biases, strict=True) for part in weight_and_bias(*pair)
    ]
    return paper.AttentionWeights(*inputs, *linear_weights(module.out_proj))


def norm_weights(module: nn.Module) -> paper.NormWeights:
    return paper.NormWeights(*weight_and_bias(module.weight, module.bias))


def feed_forward_weights(layer: nn.Module) -> paper.FeedForwardWeights:
    return paper.FeedForwardWeights(*linear_weights(layer.linear1, layer.linear2))


def encoder_layer_weights(layer: nn.Module) -> paper.EncoderLayerWeights:
    return paper.EncoderLayerWeights(
        attention_weights(layer.self_attn),
        norm_weights(layer.norm1),
        feed_forward_weights(layer),
        norm_weights(layer.norm2),
    )


def decoder_layer_weights(layer: nn.Module) -> paper.DecoderLayerWeights:
    return paper.DecoderLayerWeights(
        attention_weights(layer.self_attn),
        norm_weights(layer.norm1),
        attention_weights(layer.multihead_attn),
        norm_weights(layer.norm2),
        feed_forward_weights(layer),
        norm_weights(layer.norm3),
    )


@pytest.fixture
def model(rng: np.random.Generator) -> paper.TransformerWeights:
    """A model of two layers a side."""
    encoder_layers = [torch_layer(nn.TransformerEncoderLayer, seed) for seed in (1, 2)]
    decoder_layers = [torch_layer(nn.TransformerDecoderLayer, seed) for seed in (3, 4)]
    return paper.TransformerWeights(
        source_embedding=rng.normal(size=(V_SOURCE, D_MODEL)),
        target_embedding=rng.normal(size=(V, D_MODEL)),
        encoder=tuple(encoder_layer_weights(layer) for layer in encoder_layers),
        decoder=tuple(decoder_layer_weights(layer) for layer in decoder_layers),
        w_output=rng.normal(size=(D_MODEL, V)),
    )


@pytest.fixture
def source(rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.arange(1, V_SOURCE), size=S, replace=False)


@pytest.fixture
def target(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(1, V, size=T)


def test_the_examples_in_the_docstrings_are_true() -> None:
    results = doctest.testmod(paper)
    assert results.attempted > 0
    assert results.failed == 0


def test_softmax_is_torchs(rng: np.random.Generator) -> None:
    scores = rng.normal(size=(H, T, S))
    assert_same(paper.softmax(scores), functional.softmax(torch.from_numpy(scores), dim=-1))


def test_softmax_depends_on_differences_only_and_bears_huge_scores(
    rng: np.random.Generator,
) -> None:
    scores = rng.integers(-9, 9, size=(T, S)).astype(np.float64)
    assert_same(paper.softmax(scores + 2.0**40), paper.softmax(scores))


@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_product_attention_is_torchs(rng: np.random.Generator, masked: bool) -> None:
    query, key = rng.normal(size=(H, T, D_K)), rng.normal(size=(H, S, D_K))
    value = rng.normal(size=(H, S, D_FF))  # d_v need not be d_k
    mask = some_keys_mask(rng) if masked else None
    output, weights = paper.scaled_dot_product_attention(query, key, value, mask)
    expected = functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (query, key, value)),
        attn_mask=torch.from_numpy(mask) if masked else None,
    )
    assert_same(output, expected)
    assert_same(weights.sum(axis=-1), np.ones((H, T)))
    assert mask is None or not weights[:, ~mask].any()


def additive_example(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    d_q, d_a, d_v = 2, 19, 23
    query, key, value = (rng.normal(size=size) for size in [(T, d_q), (S, D_K), (S, d_v)])
    weights = (rng.normal(size=size) for size in [(d_q, d_a), (D_K, d_a), (d_a,)])
    return query, key, value, paper.AdditiveAttentionWeights(*weights)


def test_additive_attention_is_the_formula_word_by_word(rng: np.random.Generator) -> None:
    query, key, value, (w, u, v) = additive_example(rng)
    mask = some_keys_mask(rng)
    output, _ = paper.additive_attention(
        query, key, value, paper.AdditiveAttentionWeights(w, u, v), mask
    )
    for t in range(T):
        allowed = [s for s in range(S) if mask[t, s]]
        scores = [math.exp(v @ np.tanh(w.T @ query[t] + u.T @ key[s])) for s in allowed]
        mixed = sum(score * value[s] for score, s in zip(scores, allowed, strict=True))
        assert_same(output[t], mixed / sum(scores))


def test_a_query_that_may_attend_to_nothing_gets_zeros(rng: np.random.Generator) -> None:
    mask = np.ones((T, S), dtype=bool)
    mask[1] = False
    query, key, value, weights = additive_example(rng)
    dot_query = rng.normal(size=(T, D_K))
    for output, attention in [
        paper.scaled_dot_product_attention(dot_query, key, value, mask),
        paper.additive_attention(query, key, value, weights, mask),
    ]:
        assert not output[1].any()
        assert not attention[1].any()
        assert output[[0, *range(2, T)]].all()


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_is_torchs(rng: np.random.Generator, masked: bool) -> None:
    module = torch_attention()
    query, key, value = (rng.normal(size=(n, D_MODEL)) for n in (T, S, S))
    mask = some_keys_mask(rng) if masked else None
    output, weights = paper.multi_head_attention(
        query, key, value, attention_weights(module), H, mask
    )
    expected, expected_weights = module(
        *(torch.from_numpy(x)[None] for x in (query, key, value)),
        attn_mask=torch.from_numpy(~mask) if masked else None,  # there True = may not
        average_attn_weights=False,
    )
    assert_same(output, expected[0])
    assert_same(weights, expected_weights[0])


def test_multi_head_attention_is_one_attention_for_each_block_of_columns(
    rng: np.random.Generator,
) -> None:
    weights = attention_weights(torch_attention())
    query, memory = rng.normal(size=(T, D_MODEL)), rng.normal(size=(S, D_MODEL))
    heads = []
    for block in (slice(0, D_K), slice(D_K, D_MODEL)):
        head, _ = paper.scaled_dot_product_attention(
            query @ weights.w_q[:, block] + weights.b_q[block],
            memory @ weights.w_k[:, block] + weights.b_k[block],
            memory @ weights.w_v[:, block] + weights.b_v[block],
        )
        heads.append(head)
    expected = np.concatenate(heads, axis=-1) @ weights.w_o + weights.b_o
    output, _ = paper.multi_head_attention(query, memory, memory, weights, H)
    assert_same(output, expected)


def test_concatenating_heads_undoes_splitting_them(rng: np.random.Generator) -> None:
    x = rng.normal(size=(T, D_MODEL))
    assert paper.split_heads(x, H).shape == (H, T, D_K)
    assert np.array_equal(paper.concatenate_heads(paper.split_heads(x, H)), x)


def test_positions_are_the_formula_place_by_place() -> None:
    encoding = paper.positional_encoding(T, D_MODEL)
    for position in range(T):
        for i in range(D_MODEL // 2):
            angle = position / 10000 ** (2 * i / D_MODEL)
            assert encoding[position, 2 * i] == pytest.approx(math.sin(angle))
            assert encoding[position, 2 * i + 1] == pytest.approx(math.cos(angle))


def test_a_shift_in_position_is_the_same_rotation_everywhere() -> None:
    # §3.5: PE(pos + k) is a linear function of PE(pos); with (sin, cos) read as a complex number,
    # it is a multiplication that depends on k alone.
    encoding = paper.positional_encoding(31, D_MODEL)
    turns = encoding[:, 1::2] + 1j * encoding[:, 0::2]
    shift = 3
    assert_same(turns[shift:], turns[:-shift] * turns[shift])


def test_layer_norm_is_torchs(rng: np.random.Generator) -> None:
    module = randomised(nn.LayerNorm(D_MODEL, dtype=torch.float64))
    x = rng.normal(loc=3.0, size=(T, D_MODEL))
    assert_same(paper.layer_norm(x, norm_weights(module)), module(torch.from_numpy(x)))


@pytest.mark.parametrize("padded", [False, True])
def test_the_encoder_layer_is_torchs(rng: np.random.Generator, padded: bool) -> None:
    layer = torch_layer(nn.TransformerEncoderLayer)
    x = rng.normal(size=(S, D_MODEL))
    mask = paper.padding_mask(np.array([8, 9, 0]), pad=0) if padded else None
    expected = layer(
        torch.from_numpy(x)[None],
        src_key_padding_mask=torch.from_numpy(~mask) if padded else None,
    )
    assert_same(paper.encoder_layer(x, encoder_layer_weights(layer), H, mask), expected[0])


@pytest.mark.parametrize("padded", [False, True])
def test_the_decoder_layer_is_torchs(rng: np.random.Generator, padded: bool) -> None:
    layer = torch_layer(nn.TransformerDecoderLayer)
    x, memory = rng.normal(size=(T, D_MODEL)), rng.normal(size=(S, D_MODEL))
    mask = paper.padding_mask(np.array([8, 9, 0]), pad=0) if padded else None
    expected = layer(
        torch.from_numpy(x)[None],
        torch.from_numpy(memory)[None],
        tgt_mask=torch.from_numpy(~paper.look_ahead_mask(T)),
        memory_key_padding_mask=torch.from_numpy(~mask) if padded else None,
    )
    assert_same(paper.decoder_layer(x, memory, decoder_layer_weights(layer), H, mask), expected[0])


def test_embeddings_have_the_scale_of_the_positions(rng: np.random.Generator) -> None:
    embedding = rng.normal(scale=D_MODEL**-0.5, size=(10_000, D_MODEL))
    embedded = paper.embed(np.arange(10_000), embedding)
    assert embedded.std() == pytest.approx(1.0, rel=0.02)


def test_the_transformer_is_its_parts_in_the_order_of_the_figure(
    model: paper.TransformerWeights, source: np.ndarray, target: np.ndarray
) -> None:
    memory = paper.embed(source, model.source_embedding) + paper.positional_encoding(S, D_MODEL)
    memory = paper.encoder_layer(memory, model.encoder[0], H)
    memory = paper.encoder_layer(memory, model.encoder[1], H)
    hidden = paper.embed(target, model.target_embedding) + paper.positional_encoding(T, D_MODEL)
    hidden = paper.decoder_layer(hidden, memory, model.decoder[0], H)
    hidden = paper.decoder_layer(hidden, memory, model.decoder[1], H)
    probabilities = paper.transformer(source, target, model, H)
    assert_same(probabilities, paper.softmax(hidden @ model.w_output))
    assert_same(probabilities.sum(axis=-1), np.ones(T))


@pytest.mark.parametrize("first_changed", range(1, T))
def test_changing_the_future_leaves_earlier_predictions_alone(
    model: paper.TransformerWeights,
    source: np.ndarray,
    target: np.ndarray,
    first_changed: int,
) -> None:
    changed = target.copy()
    changed[first_changed:] = (changed[first_changed:] + 1) % V
    before = paper.transformer(source, target, model, H)
    after = paper.transformer(source, changed, model, H)
    assert_same(after[:first_changed], before[:first_changed])
    assert not np.allclose(after[first_changed:], before[first_changed:])


def test_padding_changes_nothing(
    model: paper.TransformerWeights, source: np.ndarray, target: np.ndarray
) -> None:
    padded_source = np.pad(source, (0, 2))
    padded_target = np.pad(target, (0, 4))
    mask = paper.padding_mask(padded_source, pad=0)
    memory = paper.encode(padded_source, model, H, mask)
    assert_same(memory[:S], paper.encode(source, model, H))
    probabilities = paper.transformer(padded_source, padded_target, model, H, mask)
    assert_same(probabilities[:T], paper.transformer(source, target, model, H))


def test_the_order_of_words_reaches_the_encoder_through_positions_only(
    model: paper.TransformerWeights, source: np.ndarray
) -> None:
    order = [2, 0, 1]
    without_positions = paper.embed(source, model.source_embedding)
    layer = model.encoder[0]
    assert_same(
        paper.encoder_layer(without_positions[order], layer, H),
        paper.encoder_layer(without_positions, layer, H)[order],
    )
    with_positions = paper.encode(source, model, H)
    assert not np.allclose(paper.encode(source[order], model, H), with_positions[order])


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_label_smoothed_cross_entropy_is_torchs(
    rng: np.random.Generator, target: np.ndarray, epsilon: float
) -> None:
    logits = rng.normal(scale=3.0, size=(T, V))
    expected = functional.cross_entropy(
        torch.from_numpy(logits),
        torch.from_numpy(target),
        label_smoothing=epsilon,
        reduction="none",
    )
    assert_same(paper.label_smoothed_cross_entropy(logits, target, epsilon), expected)


def test_the_loss_is_lowest_when_the_prediction_is_the_smoothed_label(
    rng: np.random.Generator, target: np.ndarray
) -> None:
    smoothed = paper.smooth_labels(target, V, epsilon=0.1)
    assert_same(smoothed.sum(axis=-1), np.ones(T))
    best = np.log(smoothed)
    nearby = best + rng.normal(scale=0.1, size=(T, V))
    loss = paper.label_smoothed_cross_entropy
    assert (loss(nearby, target) > loss(best, target)).all()


def test_the_learning_rate_rises_in_a_line_then_falls_with_the_root_of_the_step() -> None:
    warmup = 4000
    peak = paper.learning_rate(warmup)
    assert peak == pytest.approx((512 * warmup) ** -0.5)
    assert paper.learning_rate(warmup // 4) == pytest.approx(peak / 4)
    assert paper.learning_rate(warmup * 4) == pytest.approx(peak / 2)
    assert paper.learning_rate(warmup, d_model=4 * 512) == pytest.approx(peak / 2)
    assert all(paper.learning_rate(step) < peak for step in (warmup - 1, warmup + 1))


def test_the_length_penalty_is_one_for_one_word_and_grows_with_length() -> None:
    assert paper.length_penalty(1) == 1.0
    assert paper.length_penalty(30, alpha=0.0) == 1.0
    assert paper.length_penalty(25, alpha=1.0) == pytest.approx(5.0)
    penalties = [paper.length_penalty(length) for length in range(1, 60)]
    assert penalties == sorted(set(penalties))


def test_greedy_decoding_takes_the_likeliest_word_at_every_step(
    model: paper.TransformerWeights, source: np.ndarray
) -> None:
    words = paper.greedy_decode(source, model, H, bos=1, eos=-1, max_extra=4)
    assert len(words) == S + 4
    assert len(set(words)) > 1, "a model that repeats one word would show nothing"
    probabilities = paper.transformer(source, np.array([1, *words[:-1]]), model, H)
    assert probabilities.argmax(axis=-1).tolist() == words


def test_greedy_decoding_stops_before_eos(
    model: paper.TransformerWeights, source: np.ndarray
) -> None:
    endless = paper.greedy_decode(source, model, H, bos=1, eos=-1, max_extra=4)
    eos = endless[-1]
    words = paper.greedy_decode(source, model, H, bos=1, eos=eos, max_extra=4)
    assert words == endless[: endless.index(eos)]
