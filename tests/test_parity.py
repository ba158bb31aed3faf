"""The same weights elsewhere give the same numbers: torch.nn, transformers' Marian, the paper."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import MarianConfig, MarianMTModel

from attendo.config import BlockConfig, DecodingConfig, TrainingConfig
from attendo.data.packing import pad_grid
from attendo.decoding import Request, search
from attendo.hypotheses import length_penalty
from attendo.look.paper import (
    array,
    attention_of,
    decoder_layer_of,
    encoder_layer_of,
    feed_forward_of,
    norm_of,
    transformer_of,
)
from attendo.losses import cross_entropy
from attendo.models import Transformer, build_model
from attendo.nn.attention.base import (
    Additive,
    Pattern,
    attention_scores,
    masked_softmax,
    scaled_dot_product_attention,
)
from attendo.nn.feedforward import FeedForward
from attendo.nn.grid import Grid, not_later, same_segment
from attendo.nn.layers import Layer, make_norm
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.positions import Sinusoidal
from attendo.reference import paper
from attendo.specials import IGNORE, Specials
from attendo.training import optimization
from conftest import HEADS, INNER, ROWS, SOURCE, TARGET, VOCABULARY, WIDTH, small_config

D_MODEL = HEADS * WIDTH
SPECIALS = Specials(pad=0, bos=1, eos=2)
SOURCE_LENGTHS, TARGET_LENGTHS = (SOURCE, 2, 5), (3, TARGET, 4)

# Two float32 computations of one formula differ by the order of their sums.
TOLERANCE = 1e-5


def assert_same(actual: Tensor, expected: Tensor | np.ndarray) -> None:
    if isinstance(expected, np.ndarray):
        expected = torch.from_numpy(expected).to(actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def noisy(module: nn.Module) -> nn.Module:
    """Add noise to all weights: fresh biases are 0 and fresh gains 1, which hides mistakes."""
    for parameter in module.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return module


def sentences(lengths: tuple[int, ...]) -> list[list[int]]:
    return [torch.randint(3, VOCABULARY, (length,)).tolist() for length in lengths]


@pytest.fixture
def source() -> Grid:
    return pad_grid(sentences(SOURCE_LENGTHS), SPECIALS.pad)


@pytest.fixture
def target() -> Grid:
    return pad_grid(sentences(TARGET_LENGTHS), SPECIALS.pad)


def is_text(grid: Grid) -> Tensor:
    return grid.segments != 0


# Which weight of ours is which of torch.nn's: pairs, in the order of our parts

Read = Callable[[Tensor], Tensor]
"""What to take of a foreign parameter: itself, or its gradient."""
Pairs = Iterator[tuple[Tensor, Tensor]]


def pairs_of_affine(ours: nn.Module, theirs: nn.Module, read: Read) -> Pairs:
    yield ours.weight, read(theirs.weight)
    yield ours.bias, read(theirs.bias)


def pairs_of_attention(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention, read: Read
) -> Pairs:
    projections = (ours.query, ours.key, ours.value)
    weights, biases = read(theirs.in_proj_weight).chunk(3), read(theirs.in_proj_bias).chunk(3)
    for projection, weight, bias in zip(projections, weights, biases, strict=True):
        yield projection.weight, weight
        yield projection.bias, bias
    yield from pairs_of_affine(ours.output, theirs.out_proj, read)


def pairs_of_layer(ours: nn.Module, theirs: nn.Module, read: Read) -> Pairs:
    yield from pairs_of_attention(ours.self_attention, theirs.self_attn, read)
    yield from pairs_of_affine(ours.around_self.norm, theirs.norm1, read)
    last_norm = theirs.norm2
    if ours.has_cross:
        yield from pairs_of_attention(ours.cross_attention, theirs.multihead_attn, read)
        yield from pairs_of_affine(ours.around_cross.norm, theirs.norm2, read)
        last_norm = theirs.norm3
    yield from pairs_of_affine(ours.feed_forward.inner, theirs.linear1, read)
    yield from pairs_of_affine(ours.feed_forward.outer, theirs.linear2, read)
    yield from pairs_of_affine(ours.around_feed_forward.norm, last_norm, read)


def copy(pairs: Pairs) -> None:
    for mine, theirs in pairs:
        mine.data.copy_(theirs.detach())


# torch.nn

VARIANTS = pytest.mark.parametrize(
    ("norm_order", "activation"), [("post", "relu"), ("pre", "gelu")]
)


def torch_layer(kind: type[nn.Module], norm_order: str = "post", activation: str = "relu"):
    return noisy(
        kind(
            D_MODEL, HEADS, INNER, dropout=0.0, activation=activation,
            batch_first=True, norm_first=norm_order == "pre",
        )
    )  # fmt: skip


def encoded(layer: Layer, x: Tensor, source: Grid) -> Tensor:
    return layer(x, Pattern(same_segment(source.segments, source.segments)))


def decoded(layer: Layer, x: Tensor, memory: Tensor, target: Grid, source: Grid) -> Tensor:
    across = same_segment(target.segments, source.segments)
    return layer(x, Pattern(not_later(target)), memory, Pattern(across))


@VARIANTS
def test_the_encoder_layer_is_torchs(source: Grid, norm_order: str, activation: str) -> None:
    theirs = torch_layer(nn.TransformerEncoderLayer, norm_order, activation)
    ours = Layer(small_config(norm_order=norm_order, feed_forward=activation))
    copy(pairs_of_layer(ours, theirs, lambda weight: weight))
    x = torch.randn(ROWS, SOURCE, D_MODEL)
    actual = encoded(ours, x, source)
    expected = theirs(x, src_key_padding_mask=~is_text(source))  # there True = may not
    assert_same(actual[is_text(source)], expected[is_text(source)])


@VARIANTS
def test_the_decoder_layer_is_torchs(
    source: Grid, target: Grid, norm_order: str, activation: str
) -> None:
    theirs = torch_layer(nn.TransformerDecoderLayer, norm_order, activation)
    ours = Layer(small_config(norm_order=norm_order, feed_forward=activation), cross=True)
    copy(pairs_of_layer(ours, theirs, lambda weight: weight))
    x, memory = torch.randn(ROWS, TARGET, D_MODEL), torch.randn(ROWS, SOURCE, D_MODEL)
    actual = decoded(ours, x, memory, target, source)
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~is_text(target),
        memory_key_padding_mask=~is_text(source),
    )
    assert_same(actual[is_text(target)], expected[is_text(target)])


class TorchTransformer(nn.Module):
    """Figure 1 of the paper, put together from torch.nn alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D_MODEL)
        nn.init.normal_(self.embedding.weight, std=D_MODEL**-0.5)
        self.encoder = nn.ModuleList(torch_layer(nn.TransformerEncoderLayer) for _ in range(2))
        self.decoder = nn.ModuleList(torch_layer(nn.TransformerDecoderLayer) for _ in range(2))

    def forward(self, source: Grid, target: Grid) -> Tensor:
        memory, x = self.embed(source.ids), self.embed(target.ids)
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=~is_text(source))
        for layer in self.decoder:
            x = layer(
                x,
                memory,
                tgt_mask=torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1),
                tgt_key_padding_mask=~is_text(target),
                memory_key_padding_mask=~is_text(source),
            )
        return x @ self.embedding.weight.T

    def embed(self, ids: Tensor) -> Tensor:
        waves = torch.from_numpy(paper.positional_encoding(ids.shape[1], D_MODEL)).float()
        return self.embedding(ids) * math.sqrt(D_MODEL) + waves

    def pairs(self, ours: Transformer, read: Read) -> Pairs:
        yield ours.output.weight, read(self.embedding.weight)
        yield from self._pairs_of_layers(ours.encoder.layers, self.encoder, read)
        yield from self._pairs_of_layers(ours.decoder.layers, self.decoder, read)

    def _pairs_of_layers(self, ours: nn.ModuleList, theirs: nn.ModuleList, read: Read) -> Pairs:
        for mine, their in zip(ours, theirs, strict=True):
            yield from pairs_of_layer(mine, their, read)


def test_the_gradients_of_all_weights_are_those_of_the_same_model_in_torch(
    source: Grid, target: Grid
) -> None:
    theirs, ours = TorchTransformer(), build_model(small_config(), VOCABULARY, VOCABULARY)
    copy(theirs.pairs(ours, lambda weight: weight))
    labels = target.ids.roll(-1, dims=1).where(is_text(target), torch.tensor(IGNORE))
    logits = ours.logits(ours.decode(target, ours.encode(source)))
    loss = cross_entropy(logits, labels, smoothing=0.1)
    expected = functional.cross_entropy(
        theirs(source, target)[is_text(target)],
        labels[is_text(target)],
        label_smoothing=0.1,
        reduction="sum",
    )
    assert_same(loss.total, expected)
    loss.total.backward()
    expected.backward()
    compared = list(theirs.pairs(ours, lambda weight: weight.grad))
    assert {id(weight) for weight, _ in compared} == {id(weight) for weight in ours.parameters()}
    for weight, gradient in compared:
        # A gradient is a sum over all tokens: what counts is its error beside the largest of them.
        torch.testing.assert_close(
            weight.grad, gradient, rtol=1e-4, atol=1e-5 * max(1.0, gradient.abs().max().item())
        )


# transformers' Marian

MARIAN_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
MARIAN_LAYER = {
    "around_self.norm": "self_attn_layer_norm",
    "around_cross.norm": "encoder_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
    **{f"self_attention.{our}": f"self_attn.{their}" for our, their in MARIAN_ATTENTION.items()},
    **{
        f"cross_attention.{our}": f"encoder_attn.{their}" for our, their in MARIAN_ATTENTION.items()
    },
}


def marian_name(name: str) -> str:
    """Return Marian's name for one of our parameters."""
    if name == "target_embedding.weight":  # the one matrix of a model that is tied all round
        return "model.shared.weight"
    stack, layers, number, part = name.split(".", maxsplit=3)
    part, kind = part.rsplit(".", maxsplit=1)
    return f"model.{stack}.{layers}.{number}.{MARIAN_LAYER[part]}.{kind}"


def as_marian(ours: Transformer) -> MarianMTModel:
    """Put our weights into a Marian model."""
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=D_MODEL, max_position_embeddings=61,
        encoder_layers=2, encoder_attention_heads=HEADS, encoder_ffn_dim=INNER,
        decoder_layers=2, decoder_attention_heads=HEADS, decoder_ffn_dim=INNER,
        activation_function="relu", dropout=0.0, scale_embedding=True,
        pad_token_id=SPECIALS.pad, bos_token_id=SPECIALS.bos, eos_token_id=SPECIALS.eos,
        decoder_start_token_id=SPECIALS.bos, forced_eos_token_id=None,
    )  # fmt: skip
    marian = MarianMTModel(config).eval()
    own = dict(marian.named_parameters())
    for name, weight in ours.named_parameters():
        own.pop(marian_name(name)).data.copy_(weight.detach())
    # Marian puts all sines before all cosines; the paper, and we, take turns.
    waves = Sinusoidal(small_config()).embed(torch.zeros(1, 61, D_MODEL), torch.arange(61)[None])
    for name in ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"):
        own.pop(name).data.copy_(waves[0])
    assert not own, "a weight of Marian's that we do not have"
    return marian


@pytest.fixture
def ours() -> Transformer:
    return noisy(build_model(small_config(), VOCABULARY, VOCABULARY))


def test_the_logits_are_marians(ours: Transformer, source: Grid, target: Grid) -> None:
    actual = ours.logits(ours.decode(target, ours.encode(source)))
    expected = as_marian(ours)(
        input_ids=source.ids,
        attention_mask=is_text(source).long(),
        decoder_input_ids=target.ids,
    ).logits
    assert_same(actual[is_text(target)], expected[is_text(target)])


def learn_by_heart(model: Transformer, sources: list[list[int]], targets: list[list[int]]) -> None:
    """Train a little on a few pairs: an untrained model repeats one word, and tests nothing."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    source = pad_grid(sources, SPECIALS.pad)
    target = pad_grid([[SPECIALS.bos, *ids] for ids in targets], SPECIALS.pad)
    labels = pad_grid([[*ids, SPECIALS.eos] for ids in targets], IGNORE).ids
    for _ in range(30):
        loss = cross_entropy(model.logits(model.decode(target, model.encode(source))), labels)
        optimizer.zero_grad()
        (loss.total / loss.n_labels).backward()
        optimizer.step()


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_the_outputs_are_marians(ours: Transformer, strategy: str) -> None:
    limit, n_beams = 19, 3
    known, lengths = sentences(tuple(range(1, 12))), (3, 7, 1, 5, 2, 6, 4, 7, 2, 5, 1)
    learn_by_heart(ours, known, sentences(lengths))
    grid = pad_grid([*known, *sentences(SOURCE_LENGTHS)], SPECIALS.pad)
    with torch.inference_mode():
        state = ours.start(ours.encode(grid))
    request = Request(
        step=ours.step, state=state, max_lengths=[limit] * len(grid.ids),
        numbers=range(len(grid.ids)), specials=SPECIALS, device=torch.device("cpu"),
    )  # fmt: skip
    # Lengths are penalised by other formulas, so by neither.
    options = DecodingConfig(strategy=strategy, beam=n_beams, alpha=0.0, max_loops=0)
    actual = [list(best.ids) for best, *_ in search(request, options)]
    outputs = as_marian(ours).generate(
        input_ids=grid.ids,
        attention_mask=is_text(grid).long(),
        num_beams=n_beams if strategy == "beam" else 1,
        early_stopping=strategy == "beam",
        do_sample=False,
        length_penalty=0.0,
        max_new_tokens=limit + 1,  # eos counts there
        suppress_tokens=[SPECIALS.pad, SPECIALS.bos],
    )
    assert actual == [text_of(output[1:].tolist(), limit) for output in outputs]
    assert len({len(ids) for ids in actual}) > 4, "outputs of like lengths would show little"


def text_of(ids: list[int], limit: int) -> list[int]:
    return ids[: ids.index(SPECIALS.eos)] if SPECIALS.eos in ids else ids[:limit]


# The paper: float64 NumPy, one sentence at a time


def some_keys_mask() -> Tensor:
    """Draw a mask (1, 1, T, S) in which every query has a key."""
    mask = torch.rand(1, 1, TARGET, SOURCE) < 0.5
    mask[..., 0] = True
    return mask


def test_attention_is_the_papers() -> None:
    q = torch.randn(1, HEADS, TARGET, WIDTH)
    k, v = torch.randn(1, HEADS, SOURCE, WIDTH), torch.randn(1, HEADS, SOURCE, WIDTH)
    mask = some_keys_mask()
    expected, expected_weights = paper.scaled_dot_product_attention(
        array(q[0]), array(k[0]), array(v[0]), mask[0, 0].numpy()
    )
    assert_same(scaled_dot_product_attention(q, k, v, mask)[0], expected)
    assert_same(masked_softmax(attention_scores(q, k), mask)[0], expected_weights)


def test_additive_attention_is_bahdanaus() -> None:
    block = BlockConfig(d_model=WIDTH, n_heads=1, attention="additive")
    module = Additive(block)
    nn.init.zeros_(module.query.bias)  # the paper it comes from has none
    q, k, v = (torch.randn(1, 1, length, WIDTH) for length in (TARGET, SOURCE, SOURCE))
    mask = some_keys_mask()
    expected, expected_weights = paper.additive_attention(
        *(array(x[0, 0]) for x in (q, k, v)),
        paper.AdditiveAttentionWeights(
            w=array(module.query.weight).T, u=array(module.key.weight).T, v=array(module.score[0])
        ),
        mask[0, 0].numpy(),
    )
    assert_same(module(q, k, v, Pattern(mask))[0, 0], expected)
    assert_same(module.weights(q, k, Pattern(mask))[0, 0], expected_weights)


def test_multi_head_attention_is_the_papers() -> None:
    module = noisy(MultiHeadAttention(small_config()))
    x, memory = torch.randn(1, TARGET, D_MODEL), torch.randn(1, SOURCE, D_MODEL)
    mask = some_keys_mask()
    expected, expected_weights = paper.multi_head_attention(
        array(x[0]), *[array(memory[0])] * 2, attention_of(module), HEADS, mask[0, 0].numpy()
    )
    records = []
    actual = module(x, memory, Pattern(mask), records)
    assert_same(actual[0], expected)
    assert_same(records[0].weights[0], expected_weights)


def test_sinusoidal_positions_are_the_papers() -> None:
    length = 101
    zeros, places = torch.zeros(1, length, D_MODEL), torch.arange(length)[None]
    actual = Sinusoidal(small_config()).embed(zeros, places)
    assert_same(actual[0], paper.positional_encoding(length, D_MODEL))


def test_the_feed_forward_network_is_the_papers() -> None:
    module = noisy(FeedForward(small_config()))
    x = torch.randn(1, TARGET, D_MODEL)
    assert_same(module(x)[0], paper.feed_forward(array(x[0]), feed_forward_of(module)))


def test_layer_norm_is_the_papers() -> None:
    module = noisy(make_norm(small_config()))
    x = torch.randn(1, TARGET, D_MODEL) + 3.0
    assert_same(module(x)[0], paper.layer_norm(array(x[0]), norm_of(module)))


def test_the_encoder_layer_is_the_papers(source: Grid) -> None:
    layer = noisy(Layer(small_config()))
    x = torch.randn(ROWS, SOURCE, D_MODEL)
    actual = encoded(layer, x, source)
    for row, length in enumerate(SOURCE_LENGTHS):
        mask = paper.padding_mask(source.ids[row].numpy(), SPECIALS.pad)
        expected = paper.encoder_layer(array(x[row]), encoder_layer_of(layer), HEADS, mask)
        assert_same(actual[row, :length], expected[:length])


def test_the_decoder_layer_is_the_papers(source: Grid, target: Grid) -> None:
    layer = noisy(Layer(small_config(), cross=True))
    x, memory = torch.randn(ROWS, TARGET, D_MODEL), torch.randn(ROWS, SOURCE, D_MODEL)
    actual = decoded(layer, x, memory, target, source)
    for row, length in enumerate(TARGET_LENGTHS):
        mask = paper.padding_mask(source.ids[row].numpy(), SPECIALS.pad)
        weights = decoder_layer_of(layer)
        expected = paper.decoder_layer(array(x[row]), array(memory[row]), weights, HEADS, mask)
        assert_same(actual[row, :length], expected[:length])


@pytest.mark.parametrize("tied", ["all", "none"])
def test_the_transformers_logits_are_the_papers(source: Grid, target: Grid, tied: str) -> None:
    model = noisy(build_model(small_config(tied=tied), VOCABULARY, VOCABULARY))
    weights = transformer_of(model)
    actual = model.logits(model.decode(target, model.encode(source)))
    for row, lengths in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        source_ids, target_ids = (
            grid.ids[row, :length].numpy()
            for grid, length in zip((source, target), lengths, strict=True)
        )
        memory = paper.encode(source_ids, weights, HEADS)
        hidden = paper.decode(target_ids, memory, weights, HEADS)
        expected = paper.output_projection(hidden, weights.w_output)
        assert_same(actual[row, : lengths[1]], expected)


def test_the_label_smoothed_loss_is_the_papers(target: Grid) -> None:
    logits = torch.randn(ROWS, TARGET, VOCABULARY)
    labels = target.ids.where(is_text(target), torch.tensor(IGNORE))
    text = is_text(target)
    losses = paper.label_smoothed_cross_entropy(array(logits[text]), labels[text].numpy(), 0.1)
    loss = cross_entropy(logits, labels, smoothing=0.1)
    assert_same(loss.total, np.array(losses.sum()))
    assert loss.n_labels == len(losses)


@pytest.mark.parametrize("step", [1, 2, 3999, 4000, 4001, 100_000])
def test_the_learning_rate_is_the_papers(step: int) -> None:
    config = TrainingConfig(schedule="paper", warmup_steps=4000)
    assert optimization.paper(step, config, 512) == pytest.approx(paper.learning_rate(step))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_length_penalty_is_the_papers(alpha: float) -> None:
    for length in (1, 2, 50):
        expected = paper.length_penalty(length, alpha)
        assert length_penalty(length, alpha) == pytest.approx(expected)
