"""Every kind of every table keeps the promises of its table; and what each part claims is true."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attendo.config import BlockConfig, make_recipe
from attendo.data.corpus import ragged
from attendo.data.packing import lay_grid, pad_grid
from attendo.errors import ConfigError
from attendo.losses import Loss, cross_entropy
from attendo.models import MODELS, Transformer, build_model
from attendo.nn.attention import ATTENTIONS
from attendo.nn.attention.base import (
    Pattern,
    attention_scores,
    masked_softmax,
    scaled_dot_product_attention,
)
from attendo.nn.embedding import Embedding
from attendo.nn.feedforward import FEED_FORWARDS
from attendo.nn.grid import Grid, not_later, partner_span, same_segment
from attendo.nn.layers import NORMS, make_residual
from attendo.nn.numerics import Dropout
from attendo.nn.positions import POSITIONS
from attendo.nn.stack import Memory, Stack
from attendo.specials import IGNORE
from conftest import HEADS, INNER, ROWS, SOURCE, TARGET, VOCABULARY, WIDTH, small_config

D_MODEL = HEADS * WIDTH
PAD, BOS, EOS = 0, 1, 2
MASKED = [name for name, kind in ATTENTIONS.items() if kind.uses_mask]
TABLES = {
    "attention": ATTENTIONS,
    "feed_forward": FEED_FORWARDS,
    "norm": NORMS,
    "positions": POSITIONS,
}
EVERY_KIND = pytest.mark.parametrize(
    ("key", "kind"), [(key, kind) for key, table in TABLES.items() for kind in table]
)


def sentences(*lengths: int) -> list[list[int]]:
    return [torch.randint(3, VOCABULARY, (length,)).tolist() for length in lengths]


@pytest.fixture
def packed() -> Grid:
    """Two sentences in the first row, one in the second, and none at all in the third."""
    return lay_grid(ragged(sentences(3, 5, TARGET)), ragged([[0, 1], [2], []]), SOURCE, PAD)


def build(key: str, kind: str) -> Transformer:
    return build_model(small_config(**{key: kind}), VOCABULARY, VOCABULARY)


def measure(model: Transformer, pairs: list[list[int]]) -> Loss:
    """Measure how well a model copies: the source is the target."""
    ended = [[*ids, EOS] for ids in pairs]
    target = pad_grid([[BOS, *ids] for ids in pairs], PAD)
    logits = model.logits(model.decode(target, model.encode(pad_grid(ended, PAD))))
    return cross_entropy(logits, pad_grid(ended, IGNORE).ids)


# Conformance


@EVERY_KIND
def test_it_builds_from_defaults_and_keeps_shape_and_type(
    key: str, kind: str, packed: Grid
) -> None:
    block = BlockConfig(**{key: kind})
    x = torch.randn(ROWS, SOURCE, block.d_model)
    memory = Stack(block, 1)(x, packed)
    decoder = Stack(block, 1, causal=True, cross=True)
    hidden = decoder(x, packed, Memory(memory, packed.segments))
    for result in (memory, hidden):
        assert result.shape == x.shape
        assert result.dtype == x.dtype
        assert result.isfinite().all()


@EVERY_KIND
def test_every_weight_gets_a_finite_gradient(key: str, kind: str) -> None:
    model = build(key, kind)
    measure(model, sentences(3, 7, 5)).total.backward()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, name
            assert weight.grad.isfinite().all(), name


@EVERY_KIND
def test_one_training_step_lowers_the_loss(key: str, kind: str) -> None:
    model, pairs = build(key, kind), sentences(3, 7, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    before = measure(model, pairs).total
    before.backward()
    optimizer.step()
    assert measure(model, pairs).total < before


@EVERY_KIND
def test_it_runs_in_bfloat16(key: str, kind: str) -> None:
    model, pairs = build(key, kind), sentences(3, 7, 5)
    expected = measure(model, pairs).total.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):  # as training does
        mixed = measure(model, pairs).total
    mixed.backward()
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    assert all(weight.grad.isfinite().all() for weight in learned)
    assert mixed.item() == pytest.approx(expected, rel=0.02)
    assert measure(model.bfloat16(), pairs).total.item() == pytest.approx(expected, rel=0.02)


@EVERY_KIND
def test_the_mask_is_honoured(key: str, kind: str, packed: Grid) -> None:
    block = small_config(**{key: kind})
    encoder = Stack(block, 2)
    x = torch.randn(ROWS, SOURCE, D_MODEL)
    is_first = packed.segments == 1
    changed = x.where(is_first[..., None], torch.randn_like(x))
    before = encoder(x, packed)
    after = encoder(changed, packed)
    torch.testing.assert_close(after[is_first], before[is_first])
    is_second = packed.segments == 2
    assert not torch.allclose(after[is_second], before[is_second])


@EVERY_KIND
def test_an_unknown_kind_is_refused_with_the_key_and_the_nearest_name(key: str, kind: str) -> None:
    message = f"model.{key} = '{kind}x' is not known; did you mean '{kind}'"
    with pytest.raises(ConfigError, match=message):
        build(key, f"{kind}x")


@EVERY_KIND
def test_the_recipe_documents_it(key: str, kind: str) -> None:
    assert kind in BlockConfig.model_fields[key].description


@pytest.mark.parametrize("kind", MODELS)
def test_every_family_builds_from_defaults(kind: str) -> None:
    config = make_recipe({"model": {"kind": kind}}).model
    with torch.device("meta"):
        model = build_model(config, VOCABULARY, VOCABULARY)
    assert model.output.weight.shape == (VOCABULARY, config.d_model)


def test_an_unknown_family_is_refused_with_the_key() -> None:
    with pytest.raises(ConfigError, match=r"model\.kind = 'transformr'.*'transformer'"):
        make_recipe({"model": {"kind": "transformr"}})


# Attention


def draw_heads(*lengths: int) -> list[Tensor]:
    return [torch.randn(ROWS, HEADS, length, WIDTH, requires_grad=True) for length in lengths]


def draw_mask() -> Tensor:
    """Draw a mask in which every query has a key."""
    mask = torch.rand(ROWS, 1, TARGET, SOURCE) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_fused_equals_explicit_attention_in_outputs_and_gradients(
    has_mask: bool, has_bias: bool
) -> None:
    inputs = draw_heads(TARGET, SOURCE, SOURCE)
    q, k, v = inputs
    mask = draw_mask() if has_mask else None
    bias = torch.randn(ROWS, HEADS, TARGET, SOURCE) if has_bias else None
    fused = scaled_dot_product_attention(q, k, v, mask, bias)
    explicit = masked_softmax(attention_scores(q, k, bias), mask) @ v
    torch.testing.assert_close(fused, explicit)
    incoming = torch.randn_like(fused)
    torch.testing.assert_close(
        torch.autograd.grad(fused, inputs, incoming),
        torch.autograd.grad(explicit, inputs, incoming),
    )


@pytest.mark.parametrize("kind", MASKED)
def test_attention_weights_sum_to_one_and_masked_places_are_exactly_zero(kind: str) -> None:
    attention = ATTENTIONS[kind](small_config())
    q, k, v = draw_heads(TARGET, SOURCE, SOURCE)
    mask, bias = draw_mask(), torch.randn(ROWS, HEADS, TARGET, SOURCE)
    weights = attention.weights(q, k, Pattern(mask, bias))
    torch.testing.assert_close(attention(q, k, v, Pattern(mask, bias)), weights @ v)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(ROWS, HEADS, TARGET))
    assert (weights[~mask.expand_as(weights)] == 0).all()


@pytest.mark.parametrize("kind", MASKED)
def test_the_heads_of_attention_do_not_meet(kind: str) -> None:
    attention = ATTENTIONS[kind](small_config())
    q, k, v = draw_heads(TARGET, SOURCE, SOURCE)
    before = attention(q, k, v, Pattern(None))
    changed = [x.detach().clone() for x in (q, k, v)]
    for x in changed:
        x[:, 2] += torch.randn_like(x[:, 2])
    after = attention(*changed, Pattern(None))
    others = [head for head in range(HEADS) if head != 2]
    torch.testing.assert_close(after[:, others], before[:, others])
    assert not torch.allclose(after[:, 2], before[:, 2])


@pytest.mark.parametrize("kind", MASKED)
def test_a_bias_of_minus_infinity_is_a_mask(kind: str) -> None:
    attention = ATTENTIONS[kind](small_config())
    q, k, v = draw_heads(TARGET, SOURCE, SOURCE)
    mask = draw_mask()
    bias = torch.zeros(ROWS, HEADS, TARGET, SOURCE).masked_fill(~mask, -torch.inf)
    masked = attention(q, k, v, Pattern(mask))
    biased = attention(q, k, v, Pattern(None, bias))
    torch.testing.assert_close(biased, masked)


@pytest.mark.parametrize("kind", MASKED)
@pytest.mark.parametrize("place", ["p_drop", "p_drop_attention", "p_drop_inner"])
def test_dropout_acts_in_training_only(kind: str, place: str) -> None:
    model = build_model(small_config(attention=kind, **{place: 0.5}), VOCABULARY, VOCABULARY)
    certain = build_model(small_config(attention=kind), VOCABULARY, VOCABULARY)
    certain.load_state_dict(model.state_dict())
    pairs = sentences(3, 7, 5)
    assert measure(model, pairs).total != measure(model, pairs).total
    expected = measure(certain, pairs).total
    torch.testing.assert_close(measure(model.eval(), pairs).total, expected)


def test_dropout_is_on_the_sum_with_the_positions_and_on_what_a_sublayer_adds() -> None:
    # §5.4 names these two places.
    block = small_config(p_drop=0.5, norm_order="pre")
    x, places = torch.randn(ROWS, TARGET, D_MODEL), torch.arange(TARGET).expand(ROWS, -1)
    encoder = Stack(block, 1)
    entered, whole = encoder.enter(x, places), encoder.eval().enter(x, places)
    is_dropped = entered == 0
    assert is_dropped.float().mean().item() == pytest.approx(0.5, abs=0.05)
    torch.testing.assert_close(entered[~is_dropped], 2 * whole[~is_dropped])
    added = make_residual(block)(x, torch.ones_like) - x
    assert set(added.round(decimals=4).unique().tolist()) == {0.0, 2.0}


# Masks


def test_the_masks_say_same_sentence_and_not_later(packed: Grid) -> None:
    whole, causal = same_segment(packed.segments, packed.segments), not_later(packed)
    assert whole.shape == causal.shape == (ROWS, 1, SOURCE, SOURCE)
    for row, query, key in np.ndindex(ROWS, SOURCE, SOURCE):
        if packed.segments[row, query] == 0:
            continue  # outputs of padding are not used
        is_same = packed.segments[row, query] == packed.segments[row, key]
        assert whole[row, 0, query, key] == is_same
        assert causal[row, 0, query, key] == (is_same and key <= query)


def test_spans_say_the_same_as_the_masks_and_let_padding_see_nothing(packed: Grid) -> None:
    is_token = (packed.segments != 0)[:, None, :, None]
    partners = torch.tensor([[1, 2, 2], [1, 1, 1], [0, 0, 0]])
    whole = partner_span(packed.segments, packed.segments)
    for seen, mask in (
        (whole, same_segment(packed.segments, packed.segments)),
        (whole.up_to_itself(), not_later(packed)),
        (partner_span(packed.segments, partners), same_segment(packed.segments, partners)),
    ):
        key = torch.arange(mask.shape[-1])
        first, last = (place[:, None, :, None] for place in seen)
        assert torch.equal((first <= key) & (key <= last), mask & is_token)


def test_no_query_is_left_without_a_key(packed: Grid) -> None:
    # Fused kernels answer such a query with rubbish, and nan as gradients.
    partners = torch.tensor(
        [[1, 2, 2], [1, 1, 1], [0, 0, 0]]
    )  # without padding that padding could attend to
    assert same_segment(packed.segments, partners).any(dim=-1).all()
    assert same_segment(packed.segments, packed.segments).any(dim=-1).all()
    assert not_later(packed).any(dim=-1).all()


# Positions


def positions_of(kind: str, **changes: int) -> nn.Module:
    return POSITIONS[kind](small_config(positions=kind, **changes))


@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_follow_the_grid_and_not_the_column(kind: str) -> None:
    positions = positions_of(kind)
    places, order = torch.arange(TARGET)[None], torch.randperm(TARGET)
    x = torch.randn(1, TARGET, D_MODEL)
    torch.testing.assert_close(
        positions.embed(x[:, order], places[:, order]), positions.embed(x, places)[:, order]
    )
    heads = torch.randn(1, HEADS, TARGET, WIDTH)
    turn, turn_shuffled = positions.rotate(places), positions.rotate(places[:, order])
    if turn is not None:
        torch.testing.assert_close(turn_shuffled(heads[:, :, order]), turn(heads)[:, :, order])
    bias = positions.bias(places, places)
    if bias is not None:
        shuffled = positions.bias(places[:, order], places)
        torch.testing.assert_close(shuffled, bias[:, :, order])


def test_learned_positions_past_the_table_share_its_last_vector() -> None:
    positions = positions_of("learned", max_positions=INNER)
    places = torch.tensor([[INNER - 2, INNER - 1, INNER, 3 * INNER]])
    before, last, *past = positions.embed(torch.zeros(1, 4, D_MODEL), places)[0]
    assert not torch.equal(before, last)
    assert all(torch.equal(vector, last) for vector in past)


def test_rotary_scores_depend_on_the_distance_only_and_lengths_are_kept() -> None:
    rotate = positions_of("rotary").rotate
    q, k = torch.randn(2, 1, HEADS, 1, WIDTH).unbind()

    def score(query: int, key: int) -> Tensor:
        turned_q, turned_k = (
            rotate(torch.tensor([[place]]))(x) for x, place in ((q, query), (k, key))
        )
        torch.testing.assert_close(turned_q.norm(dim=-1), q.norm(dim=-1))
        return (turned_q * turned_k).sum(dim=-1)

    torch.testing.assert_close(score(2, 7), score(102, 107), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(score(0, 0), (q * k).sum(dim=-1))
    assert not torch.allclose(score(2, 7), score(7, 2))


def test_alibi_takes_off_in_proportion_to_the_distance_with_the_papers_slopes() -> None:
    alibi = POSITIONS["alibi"](BlockConfig(positions="alibi", n_heads=8))
    places = torch.arange(TARGET)[None]
    bias = alibi.bias(places, places)
    for head, query, key in np.ndindex(8, TARGET, TARGET):
        assert bias[0, head, query, key] == -abs(query - key) * 2.0 ** -(head + 1)


# Embeddings, norms and stacks


def test_embeddings_and_the_logits_of_a_shared_matrix_have_variance_one() -> None:
    embedding = Embedding(5003, D_MODEL)
    assert embedding(torch.arange(5003)[None]).std().item() == pytest.approx(1.0, rel=0.02)
    logits = torch.randn(101, D_MODEL) @ embedding.weight.T
    assert logits.std().item() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_what_leaves_a_stack_is_normalised(norm: str, norm_order: str, packed: Grid) -> None:
    block = small_config(norm=norm, norm_order=norm_order)
    x = 7.0 * torch.randn(ROWS, SOURCE, D_MODEL) + 3.0
    memory = Stack(block, 2)(x, packed)
    decoder = Stack(block, 2, causal=True, cross=True)
    hidden = decoder(x, packed, Memory(memory, packed.segments))
    for result in (memory, hidden):
        mean_square = result.square().mean(dim=-1)
        torch.testing.assert_close(mean_square, torch.ones_like(mean_square), rtol=1e-3, atol=1e-3)
        if norm == "layer":
            mean = result.mean(dim=-1)
            torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", FEED_FORWARDS)
def test_the_feed_forward_network_treats_every_place_alike_and_alone(kind: str) -> None:
    network = FEED_FORWARDS[kind](small_config())
    x, order = torch.randn(ROWS, TARGET, D_MODEL), torch.randperm(TARGET)
    torch.testing.assert_close(network(x[:, order]), network(x)[:, order])
    torch.testing.assert_close(network(x[:1, :1]), network(x)[:1, :1])
    assert network.activate(x).shape == (ROWS, TARGET, INNER)


# Learning


def draw_to_copy(count: int) -> list[list[int]]:
    lengths = torch.randint(2, 5, (count,)).tolist()
    return [torch.randint(3, 11, (length,)).tolist() for length in lengths]


def learn_to_copy(kind: str) -> Transformer:
    config = small_config(
        positions=kind, norm_order="pre", d_model=32, n_heads=4, d_ff=64,
        encoder_layers=1, decoder_layers=1,
    )  # fmt: skip
    model = build_model(config, 11, 11)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(250):
        optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (step + 1) / 20)
        loss = measure(model, draw_to_copy(64))
        optimizer.zero_grad()
        (loss.total / loss.n_labels).backward()
        optimizer.step()
    return model


def share_copied(model: Transformer, texts: list[list[int]]) -> float:
    """Copy greedily, token by token; the share that is right to the last token."""
    state = model.start(model.encode(pad_grid([[*ids, EOS] for ids in texts], PAD)))
    tokens, outputs = torch.full((len(texts),), BOS), []
    for _ in range(5):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(dim=-1)
        outputs.append(tokens)
    said = torch.stack(outputs, dim=1).tolist()
    right = [ids[: len(text) + 1] == [*text, EOS] for ids, text in zip(said, texts, strict=True)]
    return sum(right) / len(right)


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.usefixtures("unchecked")
def test_a_model_learns_to_copy_unless_it_cannot_see_the_order(kind: str) -> None:
    share = share_copied(learn_to_copy(kind), draw_to_copy(200))
    if kind == "none":
        assert share < 0.4
    else:
        assert share > 0.6


# -- on a CPU --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_dropout_drops_the_share_it_is_told_and_makes_up_for_it(share: float) -> None:
    x = torch.ones(101, 1009)
    dropped = Dropout(share)(x)
    is_kept = dropped != 0
    assert is_kept.float().mean() == pytest.approx(1 - share, abs=5e-3)
    torch.testing.assert_close(dropped[is_kept], torch.full_like(dropped[is_kept], 1 / (1 - share)))
    # Four numbers share one draw of random bits: neighbours must not fall together for that.
    together = [(is_kept[:, :-n] == is_kept[:, n:]).float().mean() for n in (1, 2, 3, 4)]
    assert together == pytest.approx([(1 - share) ** 2 + share**2] * 4, abs=1e-2)


def test_dropout_drops_the_same_places_backward_and_others_the_next_time() -> None:
    x = torch.randn(7, 11, requires_grad=True)
    layer = Dropout(0.5)
    dropped = layer(x)
    (grad,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(grad != 0, dropped != 0)
    assert not torch.equal(layer(x) != 0, dropped != 0)
    assert layer.eval()(x) is x


@pytest.mark.parametrize("has_mask", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
def test_attention_in_products_is_fused_attention(has_mask: bool, has_bias: bool) -> None:
    q = torch.randn(ROWS, HEADS, TARGET, WIDTH, requires_grad=True)
    k, v = (torch.randn(ROWS, HEADS, SOURCE, WIDTH, requires_grad=True) for _ in range(2))
    mask = torch.rand(ROWS, 1, TARGET, SOURCE) < 0.5 if has_mask else None
    if mask is not None:
        mask[..., 0] = True
    bias = torch.randn(ROWS, HEADS, TARGET, SOURCE) if has_bias else None
    fused = scaled_dot_product_attention(q, k, v, mask, bias)
    products = scaled_dot_product_attention(
        q.bfloat16(), k.bfloat16(), v.bfloat16(), mask, bias
    ).float()
    torch.testing.assert_close(products, fused, rtol=0.05, atol=0.05)
    grad = torch.randn_like(fused)
    for left, right in zip(
        torch.autograd.grad(products, (q, k, v), grad),
        torch.autograd.grad(fused, (q, k, v), grad),
        strict=True,
    ):
        assert (left - right).norm() < 0.02 * right.norm()
