"""What must hold for a Transformer of every kind, whatever its weights.

In double precision with random weights, so that nothing but the order of sums can differ.
"""

from collections.abc import Callable, Iterator
from itertools import product, takewhile
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attendo.config import DataConfig, TransformerConfig, load_recipe
from attendo.data.batches import Batch, Position, once, stream
from attendo.data.corpus import Corpus, Numbers, Ragged, ragged
from attendo.data.packing import lay_grid, pad_grid
from attendo.decoding import reorder
from attendo.decoding.rows import regroup
from attendo.lab.bench.sentences import numbered_tokenizer
from attendo.losses import cross_entropy
from attendo.models import Transformer, build_model
from attendo.models.transformer import TransformerDecoder, TransformerEncoder
from attendo.nn.attention import ATTENTIONS
from attendo.nn.attention.favor import Favor
from attendo.nn.feedforward import FEED_FORWARDS
from attendo.nn.grid import Grid
from attendo.nn.layers import NORMS
from attendo.nn.positions import POSITIONS
from attendo.specials import Specials
from attendo.tasks import Translation
from conftest import HEADS, ROWS, SOURCE, TARGET, VOCABULARY, WIDTH, small_config

SPECIALS = Specials(pad=0, bos=1, eos=2)
SOURCE_LENGTHS, TARGET_LENGTHS = (SOURCE, 2, 5), (3, TARGET, 4)
OTHER_VOCABULARY = 37
MAX_POSITIONS = 13

TIES = ("all", "output", "none")
# So small that not everybody sees everybody.
NARROW = {
    "window": {"reach": 2},
    "chunks": {"size": 2, "overlap": 1},
    "lsh": {"reach": 2, "n_buckets": 4, "n_rounds": 2},
    "favor": {"n_features": 32},
}
MASKED = [name for name, kind in ATTENTIONS.items() if kind.uses_mask]
LONG = [name for name in ATTENTIONS if name not in MASKED]
KINDS: dict[str, dict[str, Any]] = {
    **{
        f"{positions}-{order}": {"positions": positions, "norm_order": order}
        for positions, order in product(POSITIONS, ("post", "pre"))
    },
    # A rotation and a bias must reach every attention kind.
    **{
        f"{attention}-{positions}": {"attention": attention, "positions": positions}
        for attention, positions in product(MASKED, ("rotary", "alibi"))
        if attention != "dot"
    },
    **{
        f"{attention}-{positions}": {"attention": attention, "positions": positions, **NARROW}
        for attention, positions in product(LONG, ("rotary", "sinusoidal"))
    },
    **{
        f"reversible-{attention}": {
            "attention": attention,
            "norm_order": "pre",
            "reversible": True,
            **NARROW,
        }
        for attention in ("dot", "lsh")
    },
    "window-and-dot": {
        "attention_pattern": ("window", "dot"),
        "positions": "rotary",
        "norm_order": "pre",
        **NARROW,
    },
    "logit-cap": {"logit_cap": 1.5},
    **{f"feed_forward-{kind}": {"feed_forward": kind} for kind in FEED_FORWARDS},
    **{f"norm-{kind}": {"norm": kind, "norm_order": "pre"} for kind in NORMS},
    **{f"tied-{kind}": {"tied": kind} for kind in TIES},
}


def build(config: TransformerConfig) -> Transformer:
    """Build a model in double precision and add noise: fresh biases are 0, fresh gains are 1."""
    n_source = VOCABULARY if config.tied == "all" else OTHER_VOCABULARY
    model = build_model(config, n_source, VOCABULARY).double()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def model(request: pytest.FixtureRequest) -> Transformer:
    return build(small_config(max_positions=MAX_POSITIONS, **request.param))


def sentences(lengths: tuple[int, ...]) -> list[list[int]]:
    """Draw sentences of ids that both vocabularies have."""
    return [torch.randint(3, OTHER_VOCABULARY, (length,)).tolist() for length in lengths]


@pytest.fixture
def source() -> Grid:
    return pad_grid(sentences(SOURCE_LENGTHS), SPECIALS.pad)


@pytest.fixture
def target() -> Grid:
    return pad_grid(sentences(TARGET_LENGTHS), SPECIALS.pad)


def predict(model: Transformer, source: Grid, target: Grid) -> Tensor:
    return model.logits(model.decode(target, model.encode(source)))


def is_text(grid: Grid) -> Tensor:
    return grid.segments != 0


def rows_of(grid: Grid, rows: list[int]) -> Grid:
    return Grid(*(tensor[rows] for tensor in grid))


def assert_same(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def differ(one: Tensor, other: Tensor) -> bool:
    return (one - other).abs().max().item() > 1e-4


def test_every_row_and_place_gets_scores_for_the_whole_target_vocabulary(
    model: Transformer, source: Grid, target: Grid
) -> None:
    assert predict(model, source, target).shape == (ROWS, TARGET, VOCABULARY)
    assert model.encode(source).hidden.shape == (ROWS, SOURCE, HEADS * WIDTH)


# Decoding step by step


def steps(model: Transformer, source: Grid, ids: Tensor) -> Iterator[Tensor]:
    """Feed a target token by token, and yield the logits after each."""
    state = model.start(model.encode(source))
    for tokens in ids.unbind(dim=1):
        logits, state = model.step(tokens, state)
        yield logits


def test_cached_equals_uncached(model: Transformer, source: Grid, target: Grid) -> None:
    cached = torch.stack(list(steps(model, source, target.ids)), dim=1)
    uncached = predict(model, source, target)
    assert_same(cached[is_text(target)], uncached[is_text(target)])


def test_a_state_is_a_value_that_a_step_leaves_alone(
    model: Transformer, source: Grid, target: Grid
) -> None:
    first, second, *_ = target.ids.unbind(dim=1)
    _, state = model.step(first, model.start(model.encode(source)))
    copied = reorder(state, torch.arange(ROWS))
    once_more, _ = model.step(second, state)
    other, _ = model.step(first, state)
    again, _ = model.step(second, state)
    assert_same(state, copied)
    assert_same(again, once_more)
    assert differ(other, again)


def test_reordering_a_state_is_reordering_the_inputs(
    model: Transformer, source: Grid, target: Grid
) -> None:
    order = [2, 0, 0, 1]
    *before, last = target.ids[:, :4].unbind(dim=1)
    state = model.start(model.encode(source))
    for tokens in before:
        _, state = model.step(tokens, state)
    reordered, _ = model.step(last[order], reorder(state, torch.tensor(order)))
    *_, expected = steps(model, rows_of(source, order), target.ids[order, :4])
    assert_same(reordered, expected)


def test_beams_that_share_a_source_ask_it_as_if_each_had_its_own(
    model: Transformer, source: Grid, target: Grid
) -> None:
    tokens = target.ids[:, :4].repeat_interleave(2, dim=0)
    tokens[::2, 1:] = tokens[::2, 1:].roll(1, dims=1)  # two different beams a sentence
    start, twice = model.start(model.encode(source)), torch.arange(ROWS).repeat_interleave(2)
    shared, copied = regroup(start, twice, None), reorder(start, twice)
    parents, left = torch.tensor([1, 1, 4, 5]), torch.tensor([0, 2])
    for step, last in enumerate(tokens.unbind(dim=1)):
        if step == 2:  # one sentence is done, and in another both go on from the same beam
            shared, copied = regroup(shared, parents, left), reorder(copied, parents)
        chosen = last[parents] if step >= 2 else last
        (ours, shared), (expected, copied) = model.step(chosen, shared), model.step(chosen, copied)
        assert_same(ours, expected)


# Attention masks


@pytest.mark.parametrize("place", [1, TARGET - 1])
def test_the_future_changes_nothing_before_it(model: Transformer, source: Grid, place: int) -> None:
    target = pad_grid(sentences((TARGET,) * ROWS), SPECIALS.pad)
    changed = target.ids.clone()
    changed[:, place:] = (changed[:, place:] + 1) % VOCABULARY
    before = predict(model, source, target)
    after = predict(model, source, target._replace(ids=changed))
    assert_same(after[:, :place], before[:, :place])
    assert differ(after[:, place:], before[:, place:])


def test_every_token_of_the_source_matters_to_every_prediction(
    model: Transformer, source: Grid, target: Grid
) -> None:
    before = predict(model, source, target)
    for place in range(min(SOURCE_LENGTHS)):
        ids = source.ids.clone()
        ids[:, place] += 1
        after = predict(model, source._replace(ids=ids), target)
        assert (after != before)[is_text(target)].any(dim=-1).all()


def widened(grid: Grid) -> Grid:
    """Put more padding behind the text."""
    return Grid(*(nn.functional.pad(tensor, (0, 3)) for tensor in grid))


def padded_with_another_id(grid: Grid) -> Grid:
    return grid._replace(ids=grid.ids.where(is_text(grid), torch.tensor(29)))


def padded_with_other_positions(grid: Grid) -> Grid:
    columns = torch.arange(grid.ids.shape[1])
    return grid._replace(positions=grid.positions.where(is_text(grid), columns))


def padded_in_front(grid: Grid) -> Grid:
    shifts = (~is_text(grid)).sum(dim=1).tolist()
    return Grid(
        *(
            torch.stack([row.roll(shift) for row, shift in zip(tensor, shifts, strict=True)])
            for tensor in grid
        )
    )


@pytest.mark.parametrize(
    "change", [widened, padded_with_another_id, padded_with_other_positions, padded_in_front]
)
def test_padding_changes_nothing(
    model: Transformer, source: Grid, target: Grid, change: Callable[[Grid], Grid]
) -> None:
    other_source, other_target = change(source), change(target)
    assert_same(
        model.encode(other_source).hidden[is_text(other_source)],
        model.encode(source).hidden[is_text(source)],
    )
    assert_same(
        predict(model, other_source, other_target)[is_text(other_target)],
        predict(model, source, target)[is_text(target)],
    )


def test_batched_equals_alone(model: Transformer, source: Grid, target: Grid) -> None:
    together = predict(model, source, target)
    for row, (n_source, n_target) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = predict(
            model,
            pad_grid([source.ids[row, :n_source].tolist()], SPECIALS.pad),
            pad_grid([target.ids[row, :n_target].tolist()], SPECIALS.pad),
        )
        assert_same(alone[0], together[row, :n_target])


class ListedSide:
    """One language of a corpus, in memory."""

    def __init__(self, listed: list[list[int]]) -> None:
        self.stored = ragged(listed)

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        return self.stored.take(numbers)


def both_layouts() -> tuple[list[Batch], list[Batch]]:
    """Lay the same pairs out twice: several sentences a row, and one sentence a row."""
    lengths = [(5, 2), (1, 3), (7, 7), (2, 1), (3, 6), (4, 1), (1, 1), (6, 3), (2, 4)]
    n_source, n_target = zip(*lengths, strict=True)
    sides = ListedSide(sentences(n_source)), ListedSide(sentences(n_target))
    corpus = Corpus(dict(zip(("source", "target"), sides, strict=True)), size=len(lengths))
    tokenizer = numbered_tokenizer(VOCABULARY)
    data = DataConfig(max_length=19)
    layout = Translation(tokenizer, tokenizer, 19).layout(data, 2 * 19)
    epoch = takewhile(lambda item: item[0].epoch == 0, stream(corpus, layout, 0, Position()))
    packed, padded = [batch for _, batch in epoch], list(once(corpus, layout))
    assert all(batch.inputs["source"].segments.max() > 2 for batch in packed)
    assert all(batch.inputs["source"].segments.max() == 1 for batch in padded)
    return packed, padded


def learn(model: Transformer, batches: list[Batch]) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum the loss and the gradients of all weights over batches."""
    model.zero_grad()
    total = torch.zeros(())
    for batch in batches:
        loss = cross_entropy(
            predict(model, batch.inputs["source"], batch.inputs["target"]), batch.labels, 0.1
        )
        loss.total.backward()
        total += loss.total.detach()
    return total, {name: weight.grad for name, weight in model.named_parameters()}


def test_packed_equals_padded_in_loss_and_gradients(model: Transformer) -> None:
    packed, padded = both_layouts()
    loss, gradients = learn(model, packed)
    expected_loss, expected_gradients = learn(model, padded)
    # The loss is taken in single precision, whatever the model's.
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-5)


# Positions


@pytest.mark.parametrize("kind", POSITIONS)
def test_only_positions_tell_the_encoder_the_order_of_its_source(kind: str) -> None:
    model = build(small_config(positions=kind))
    source = pad_grid(sentences((TARGET,)), SPECIALS.pad)
    order = torch.randperm(TARGET)
    permuted = model.encode(source._replace(ids=source.ids[:, order])).hidden
    expected = model.encode(source).hidden[:, order]
    if kind == "none":
        assert_same(permuted, expected)
    else:
        assert differ(permuted, expected)


@pytest.mark.usefixtures("unchecked")
def test_positions_beyond_the_trained_length_work(model: Transformer) -> None:
    length = 3 * MAX_POSITIONS
    source, target = (pad_grid(sentences((length, 2)), SPECIALS.pad) for _ in range(2))
    logits = predict(model, source, target)
    assert logits.isfinite().all()
    cached = torch.stack(list(steps(model, source, target.ids)), dim=1)
    assert_same(cached[is_text(target)], logits[is_text(target)])


# Looking at the attention


def packed_grid(lengths: tuple[int, int, int]) -> Grid:
    """Lay two sentences into the first row, one into the second and none into the third."""
    return lay_grid(ragged(sentences(lengths)), ragged([[0, 1], [2], []]), 13, SPECIALS.pad)


def allowed(queries: Grid, keys: Grid, *, is_causal: bool) -> Tensor:
    """Return word by word which positions may attend to which."""
    mask = torch.zeros(ROWS, queries.ids.shape[1], keys.ids.shape[1], dtype=torch.bool)
    for row, query, key in np.ndindex(*mask.shape):
        is_same = queries.segments[row, query] == keys.segments[row, key]
        mask[row, query, key] = is_same and not (is_causal and key > query)
    return mask


def test_recorded_weights_share_out_one_and_give_nothing_to_masked_places(
    model: Transformer,
) -> None:
    source, target = packed_grid((5, 3, 11)), packed_grid((2, 7, 4))
    recording = model.record(source, target)
    for name, layers, queries, mask in [
        ("encoder", recording.encoder.attention, source, allowed(source, source, is_causal=False)),
        ("decoder", recording.decoder.attention, target, allowed(target, target, is_causal=True)),
        ("cross", recording.decoder.cross, target, allowed(target, source, is_causal=False)),
    ]:
        assert len(layers) == 2
        text = is_text(queries)
        for record, module in zip(layers, model.attentions()[name], strict=True):
            weights, sees_all = record.weights, module.attention.uses_mask
            assert weights.shape == (ROWS, HEADS, *mask.shape[1:])
            for head in weights.unbind(dim=1):
                assert_same(head[text].sum(dim=-1), torch.ones_like(head[text][:, 0]))
                assert (head[text][~mask[text]] == 0).all()
                assert (head[text][mask[text]] > 0).all() or not sees_all


def test_recording_changes_no_output(model: Transformer, source: Grid, target: Grid) -> None:
    memory = model.encode(source)
    hidden = model.decode(target, memory)
    recording = model.record(source, target)
    assert torch.equal(recording.logits, model.logits(hidden))
    assert torch.equal(model.encoder.norm(recording.encoder.hidden_states[-1]), memory.hidden)
    assert torch.equal(model.decoder.norm(recording.decoder.hidden_states[-1]), hidden)
    assert len(recording.encoder.hidden_states) == len(recording.decoder.hidden_states) == 3


def test_what_is_recorded_fits_together(model: Transformer, source: Grid, target: Grid) -> None:
    recording = model.record(source, target)
    decoder = recording.decoder
    for record in (*recording.encoder.attention, *decoder.attention, *decoder.cross):
        assert_same(record.weights @ record.values, record.heads)
        if isinstance(model.encoder.layers[0].self_attention.attention, Favor):
            continue  # whose weights are those of the scores only about
        seen = torch.where(record.weights > 0, record.scores, -torch.inf)
        is_all_seen = (record.weights.sum(dim=-1) > 0)[..., None]
        assert_same((seen.softmax(dim=-1) * is_all_seen).nan_to_num(), record.weights)


# Embeddings and size


SHARED = {
    "all": {"source_embedding", "target_embedding", "output"},
    "output": {"target_embedding", "output"},
    "none": set(),
}


@pytest.mark.parametrize("tied", TIES)
def test_tied_matrices_are_one_matrix(tied: str) -> None:
    model = build(small_config(tied=tied))
    places = {
        name: getattr(model, name).weight.data_ptr()
        for name in ("source_embedding", "target_embedding", "output")
    }
    assert len(set(places.values())) == 3 - max(0, len(SHARED[tied]) - 1)
    assert len({places[name] for name in SHARED[tied]}) <= 1


@pytest.mark.parametrize("tied", ["all", "output"])
def test_the_gradient_of_a_tied_matrix_is_the_sum_over_its_uses(
    tied: str, source: Grid, target: Grid
) -> None:
    one = build(small_config(tied=tied))
    separate = build_model(small_config(tied="none"), *vocabularies(one)).double()
    separate.load_state_dict(one.state_dict())  # names every use of a shared matrix
    for model in (one, separate):
        cross_entropy(predict(model, source, target), target.ids).total.backward()
    total = sum(getattr(separate, name).weight.grad for name in SHARED[tied])
    torch.testing.assert_close(one.output.weight.grad, total, rtol=1e-5, atol=1e-5)


def vocabularies(model: Transformer) -> tuple[int, int]:
    return len(model.source_embedding.weight), len(model.target_embedding.weight)


@pytest.mark.parametrize(("name", "millions"), [("paper-base", 65), ("paper-big", 213)])
def test_the_papers_models_have_the_papers_number_of_weights(name: str, millions: int) -> None:
    recipe = load_recipe(name)
    vocabulary = recipe.tokenizer.vocabulary
    assert vocabulary == 37_000
    with torch.device("meta"):
        model = build_model(recipe.model, vocabulary, vocabulary)
    n_parameters = sum(weight.numel() for weight in model.parameters())
    assert n_parameters == pytest.approx(millions * 1e6, rel=0.04)


# The halves alone


def decoder_only(**changes: Any) -> TransformerDecoder:
    return TransformerDecoder(small_config(**changes), VOCABULARY).double().eval()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_a_decoder_alone_steps_as_it_decodes(target: Grid, positions: str, norm_order: str) -> None:
    model = decoder_only(positions=positions, norm_order=norm_order)
    whole = model.logits(model.decode(target))
    state = model.start(len(target.ids))
    for place in range(target.ids.shape[1]):
        logits, state = model.step(target.ids[:, place], state)
        is_there = target.segments[:, place] != 0
        assert_same(logits[is_there], whole[is_there, place])


def test_a_decoder_alone_sees_nothing_later(target: Grid) -> None:
    model = decoder_only()
    changed = target._replace(ids=target.ids.clone())
    changed.ids[:, 3:] = (changed.ids[:, 3:] + 1) % VOCABULARY
    before, after = (model.decode(grid)[:, :3] for grid in (target, changed))
    assert_same(before, after)


def test_an_encoder_alone_is_the_encoder_of_the_whole(source: Grid) -> None:
    config = small_config()
    whole, alone = (
        Transformer(config, VOCABULARY, VOCABULARY),
        TransformerEncoder(config, VOCABULARY),
    )
    alone.encoder.load_state_dict(whole.encoder.state_dict())
    alone.embedding.load_state_dict(whole.source_embedding.state_dict())
    assert torch.equal(alone.eval().encode(source).hidden, whole.eval().encode(source).hidden)
    memory, recorded = alone.record(source)
    assert torch.equal(memory.hidden, alone.encode(source).hidden)
    assert len(recorded.attention) == config.encoder_layers


def test_a_decoder_alone_records_its_logits(target: Grid) -> None:
    model = decoder_only()
    logits, recorded = model.record(target)
    assert torch.equal(logits, model.logits(model.decode(target)))
    assert recorded.cross == []
