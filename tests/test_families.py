"""Every model family keeps the same promises, whatever it is made of."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile

import attendo
from attendo.config import ConvolutionalConfig, load_recipe
from attendo.data.packing import pad_grid
from attendo.engines import load_engine
from attendo.errors import ConfigError
from attendo.look import answers
from attendo.look.paper import affine_weights, array
from attendo.look.record import look
from attendo.models import MODELS, CausalLM, Encoder, Seq2Seq, build_model
from attendo.models.convolutional import HALF, EncoderWindow, _near
from attendo.models.recurrent import Recurrent
from attendo.nn.grid import Grid, Sequences
from attendo.reference import paper
from attendo.tasks import TASKS
from small_runs import small_run

PAD, VOCABULARY = 0, 23

RECURRENT = {"kind": "recurrent", "d_model": 16}

FAMILIES: dict[str, dict[str, Any]] = {
    "rnn": {**RECURRENT, "cell": "rnn", "attention": "none"},
    "gru": {**RECURRENT, "cell": "gru", "attention": "none"},
    "lstm": {**RECURRENT, "cell": "lstm", "attention": "none"},
    "one way": {**RECURRENT, "bidirectional": False, "attention": "none"},
    "bahdanau": {**RECURRENT, "cell": "gru", "attention": "additive"},
    "lstm with attention": {**RECURRENT, "attention": "additive"},
    "luong": {**RECURRENT, "attention": "dot"},
    "two matrices": {**RECURRENT, "tied": "none"},
    "convolutional": {
        "kind": "convolutional",
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
    },
    "wide windows": {"kind": "convolutional", "d_model": 16, "kernel": 5, "encoder_layers": 1},
    "no windows": {"kind": "convolutional", "d_model": 16, "kernel": 1, "tied": "none"},
    "transformer": {"kind": "transformer", "d_model": 16, "n_heads": 2, "d_ff": 32},
}
# A family that is not named above is tested with its defaults.
FAMILIES |= {
    kind: {"kind": kind, "d_model": 16}
    for kind in MODELS
    if all(kind != settings["kind"] for settings in FAMILIES.values())
}


@pytest.fixture(params=FAMILIES)
def model(request) -> Seq2Seq:
    return build(FAMILIES[request.param])


def build(settings: dict[str, Any]) -> Seq2Seq:
    recipe = load_recipe("multi30k", {"model": settings})
    return build_model(recipe.model, VOCABULARY, VOCABULARY).eval()


def draw(*lengths: int) -> list[list[int]]:
    return [torch.randint(3, VOCABULARY, (length,)).tolist() for length in lengths]


SOURCES, TARGETS = (5, 2, 7), (4, 6, 3)


def together(sentences: list[list[int]], width: int) -> Grid:
    """Lay sentences into one row, one after the other."""
    ids, segments, positions = ([0] * width for _ in range(3))
    place = 0
    for number, sentence in enumerate(sentences, start=1):
        for position, token in enumerate(sentence):
            ids[place], segments[place], positions[place] = token, number, position
            place += 1
    return Grid(*(torch.tensor([part]) for part in (ids, segments, positions)))


def assert_same(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


def test_packed_sentences_do_not_see_each_other(model):
    sources, targets = draw(*SOURCES), draw(*TARGETS)
    alone = [
        model.decode(pad_grid([target], PAD), model.encode(pad_grid([source], PAD)))[0]
        for source, target in zip(sources, targets, strict=True)
    ]
    padded = model.decode(pad_grid(targets, PAD), model.encode(pad_grid(sources, PAD)))
    for row, expected in zip(padded, alone, strict=True):
        assert_same(row[: len(expected)], expected)
    packed = model.decode(together(targets, 16), model.encode(together(sources, 17)))
    assert_same(packed[0, : sum(TARGETS)], torch.cat(alone))


def test_step_by_step_is_all_at_once(model):
    sources, targets = draw(*SOURCES), draw(5, 5, 5)
    memory = model.encode(pad_grid(sources, PAD))
    at_once = model.logits(model.decode(pad_grid(targets, PAD), memory))
    state = model.start(memory)
    for place, tokens in enumerate(torch.tensor(targets).T):
        logits, state = model.step(tokens, state)
        assert_same(logits, at_once[:, place])


def test_the_future_changes_nothing_before_it(model):
    source, target = pad_grid(draw(6), PAD), draw(7)[0]
    other = [*target[:4], *draw(3)[0]]
    memory = model.encode(source)
    left, right = (model.decode(pad_grid([ids], PAD), memory)[0, :4] for ids in (target, other))
    assert_same(left, right)


def test_every_weight_learns(model):
    model.train()
    sources, targets = draw(*SOURCES), draw(*TARGETS)
    logits = model.logits(
        model.decode(pad_grid(targets, PAD), model.encode(pad_grid(sources, PAD)))
    )
    logits.logsumexp(-1).sum().backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert without == []


# -- encoders and language models ----------------------------------------------------------------


@pytest.fixture(params=FAMILIES)
def encoder(request) -> Encoder:
    return build_half(FAMILIES[request.param], Encoder)


@pytest.fixture(params=FAMILIES)
def language_model(request) -> CausalLM:
    return build_half(FAMILIES[request.param], CausalLM)


def build_half(settings: dict[str, Any], promise: type[Any]) -> Any:
    if not any(issubclass(one, promise) for one in MODELS[settings["kind"]]):
        pytest.skip(f"this family has no {promise.__name__}")
    recipe = load_recipe("multi30k", {"model": settings})
    return build_model(recipe.model, VOCABULARY, promise=promise).eval()


def test_an_encoder_encodes_packed_sequences_as_alone(encoder):
    sources = draw(*SOURCES)
    alone = [encoder.encode(pad_grid([source], PAD)).hidden[0] for source in sources]
    padded = encoder.encode(pad_grid(sources, PAD)).hidden
    for row, expected in zip(padded, alone, strict=True):
        assert_same(row[: len(expected)], expected)
    packed = encoder.encode(together(sources, 17)).hidden
    assert_same(packed[0, : sum(SOURCES)], torch.cat(alone))


def test_what_an_encoder_records_is_what_happened(encoder):
    source = pad_grid(draw(6), PAD)
    memory, recorded = encoder.record(source)
    assert_same(memory.hidden, encoder.encode(source).hidden)
    (gradient,) = torch.autograd.grad(memory.hidden[..., 0].sum(), recorded.hidden_states[0])
    assert gradient.abs().sum() > 0


def test_a_language_model_is_the_same_packed_alone_and_step_by_step(language_model):
    model, texts = language_model, draw(*TARGETS)
    alone = [model.decode(pad_grid([text], PAD))[0] for text in texts]
    packed = model.decode(together(texts, 16))
    assert_same(packed[0, : sum(TARGETS)], torch.cat(alone))
    text = torch.tensor([texts[0]] * 2)
    state = model.start(2)
    for place, tokens in enumerate(text.T):
        logits, state = model.step(tokens, state)
        assert_same(logits[1], model.logits(alone[0])[place])
    logits, recorded = model.record(pad_grid(texts[:1], PAD))
    assert_same(logits[0], model.logits(alone[0]))
    (gradient,) = torch.autograd.grad(logits.logsumexp(-1).sum(), recorded.hidden_states[0])
    assert gradient.abs().sum() > 0


def test_the_future_changes_nothing_that_a_language_model_says_before_it(language_model):
    text = draw(7)[0]
    other = [*text[:4], *draw(3)[0]]
    left, right = (language_model.decode(pad_grid([ids], PAD))[0, :4] for ids in (text, other))
    assert_same(left, right)


def test_every_weight_of_an_encoder_and_of_a_language_model_learns(encoder, language_model):
    encoder.train().encode(pad_grid(draw(*SOURCES), PAD)).hidden.square().sum().backward()
    hidden = language_model.train().decode(pad_grid(draw(*TARGETS), PAD))
    language_model.logits(hidden).logsumexp(-1).sum().backward()
    for model in (encoder, language_model):
        without = [name for name, weight in model.named_parameters() if weight.grad is None]
        assert without == []


HALVES = {
    "classification": {"model.pooling": "max"},
    "language-model": {"data.layout": "packed"},
    "masked-language-model": {},
    "image-classification": {"model.pooling": "mean"},
    "speech-recognition": {},
}


@pytest.mark.parametrize("task", HALVES)
@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_older_families_learn_other_tasks_are_saved_and_looked_at(task, kind, tmp_path):
    model = {"kind": kind, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    settings = {"task": task, "model": {**model, "tied": "output"}, **HALVES[task]}
    card = small_run(tmp_path / "run", settings)
    assert math.isfinite(card[TASKS[task].metric.name])
    engine = load_engine(tmp_path / "run", "cpu")
    assert engine.bundle.recipe.model.kind == kind
    shown = answers.recording_json(engine, look(engine, engine.bundle.task.examples[0]))
    assert shown["maps"]["encoder"] == []
    assert shown["rollout"] is None


def bytes_taken(model: Seq2Seq, length: int) -> int:
    """Sum all memory that is allocated, forward and backward over whole texts."""
    grid = pad_grid(draw(length, length), PAD)
    with profile(profile_memory=True) as found:
        model.encode(grid).hidden.sum().backward()
    return sum(max(0, event.self_cpu_memory_usage) for event in found.events())


@pytest.mark.parametrize("family", ["rnn", "gru", "lstm", "one way", "convolutional"])
def test_twice_the_text_is_twice_the_work(family):
    model = build(FAMILIES[family])
    assert bytes_taken(model, 128) < 2.5 * bytes_taken(model, 64)


def test_what_is_recorded_is_what_happened(model):
    source, target = pad_grid(draw(6), PAD), pad_grid(draw(4), PAD)
    recording = model.record(source, target)
    expected = model.logits(model.decode(target, model.encode(source)))
    assert_same(recording.logits, expected)
    for record in recording.decoder.cross:
        assert record.weights.shape[2:] == (4, 6)
        assert_same(record.weights.sum(-1), torch.ones(record.weights.shape[:3]))
        assert_same(record.weights @ record.values, record.heads)


def test_sentences_come_apart_and_together_again():
    grid = together(draw(3, 1, 4), 10)
    sentences = Sequences.of(grid.segments)
    assert sentences.lengths.tolist() == [3, 1, 4]
    x = torch.randn(1, 10, 2)
    apart = sentences.separate(x)
    assert_same(apart[2], x[0, 4:8])
    assert (apart[1, 1:] == 0).all()
    assert_same(sentences.reassemble(apart)[0, :8], x[0, :8])
    assert (sentences.reassemble(apart)[0, 8:] == 0).all()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_a_step_with_additive_attention_is_bahdanaus():
    """Attend with the last state, read the word with the result, update the state (GRU)."""
    settings = {**FAMILIES["bahdanau"], "encoder_layers": 1, "decoder_layers": 1}
    model = build(settings)
    assert isinstance(model, Recurrent)
    memory = model.encode(pad_grid(draw(6), PAD))
    state = model.start(memory)
    token = torch.tensor([7])
    attention, cells = model.attention, model.decoder
    before, source = array(state.memory.hidden[0, 0]), array(memory.hidden[0])
    torch.nn.init.zeros_(attention.query.bias)  # the paper it comes from has none
    logits, after = model.step(token, state)
    found, _ = paper.additive_attention(
        before[None],
        source,
        source,
        paper.AdditiveAttentionWeights(
            w=array(attention.query.weight).T,
            u=array(attention.key.weight).T,
            v=array(attention.score[0]),
        ),
    )
    word = array(model.target_embedding(token[None])[0, 0])
    read = np.concatenate([word, found[0]])
    parts = [
        (array(weight) @ x + array(bias)).reshape(3, -1)
        for weight, bias, x in (
            (cells.weight_ih_l0, cells.bias_ih_l0, read),
            (cells.weight_hh_l0, cells.bias_hh_l0, before),
        )
    ]
    reset, update = (sigmoid(parts[0][gate] + parts[1][gate]) for gate in (0, 1))
    new = np.tanh(parts[0][2] + reset * parts[1][2])
    now = (1 - update) * new + update * before
    np.testing.assert_allclose(array(after.memory.hidden[0, 0]), now, atol=1e-5)
    w, b = affine_weights(model.join)
    said = np.tanh(np.concatenate([found[0], now]) @ w + b)
    np.testing.assert_allclose(array(logits[0]), said @ array(model.output.weight).T, atol=1e-4)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_window_is_a_gated_convolution_over_each_sentence_alone(kernel):
    window = EncoderWindow(ConvolutionalConfig(d_model=6, kernel=kernel, p_drop=0.0))
    nn.init.normal_(window.projection.bias)
    x = torch.randn(1, 9, 6)
    is_near = _near(torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0, 0]]), kernel // 2, kernel // 2)
    actual = window(x, is_near)
    weight = window.projection.weight.unflatten(1, (6, kernel))
    for part in (slice(0, 4), slice(4, 7)):
        alone = x[:, part].transpose(1, 2)
        convolved = nn.functional.conv1d(alone, weight, window.projection.bias, padding=kernel // 2)
        expected = (nn.functional.glu(convolved, dim=1) + alone) * HALF
        torch.testing.assert_close(actual[:, part], expected.transpose(1, 2))


@pytest.mark.parametrize("family", ["gru", "bahdanau", "luong", "convolutional"])
def test_a_family_trains_translates_and_is_looked_at(family, tmp_path):
    small_run(tmp_path / "run", {"model": FAMILIES[family]})
    translator = attendo.load(tmp_path / "run", "cpu")
    assert len(translator.translate(["The dog sleeps.", "A cat."], beam=2)) == 2
    recorded = look(translator, "The dog sleeps.", "Der Hund schläft.")
    shown = answers.recording_json(translator, recorded)
    assert shown["maps"]["encoder"] == []
    n_layers = {"gru": 0, "convolutional": 2}.get(family, 1)
    assert len(shown["maps"]["cross"]) == n_layers
    assert shown["rollout"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "transfomer"}, "did you mean 'transformer'"),
        ({**RECURRENT, "n_heads": 2}, "unknown key 'model.n_heads'"),
        ({**RECURRENT, "cel": "gru"}, "did you mean 'cell'"),
        ({**RECURRENT, "d_model": 15}, "bidirectional = true needs an even d_model, not 15"),
        ({"cell": "gru"}, "unknown key 'model.cell'"),
        ({"kind": "convolutional", "kernel": 4}, "an odd number"),
    ],
)
def test_settings_of_another_family_are_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("multi30k", {"model": change})
