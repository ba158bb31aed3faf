"""Masked language models: what is hidden, BERT's head, and the commands that use such a model."""

import json
import math
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLMPredictionHead

from attendo.bundle import read_score_card, read_tensors
from attendo.cli import main
from attendo.config import DataConfig, MaskingConfig
from attendo.data.batches import Batch, Position, once, stream
from attendo.data.corpus import Corpus, MemorySide, Ragged, ragged
from attendo.data.masking import MASKED, REPLACED, Masking, most_guessed, n_guessed
from attendo.data.packing import pack
from attendo.engines import MaskFiller, load_embedder, load_engine
from attendo.errors import DataError
from attendo.losses import cross_entropy
from attendo.models import Encoder, build_model
from attendo.models.classifier import Classifier
from attendo.models.masked import MaskedLM
from attendo.nn.grid import Grid
from attendo.specials import IGNORE
from attendo.tasks import MaskedLanguageModel
from attendo.text import Tokenizer, load_tokenizer, train_tokenizer
from conftest import VOCABULARY, small_config
from small_runs import SETTINGS

MASK = 40
REPLACEMENTS = np.arange(3, MASK)
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=30)
SHARES = st.sampled_from([0.05, 0.15, 0.3, 0.5, 0.9])


def texts_of(lengths: list[int], seed: int = 0) -> Ragged:
    chance = np.random.default_rng(seed)
    return ragged([chance.integers(3, MASK, length).tolist() for length in lengths])


def hide(text: Ragged, seed: int = 1, **options: Any) -> tuple[Ragged, Ragged]:
    masking = Masking(**{"share": 0.15, "mask": MASK, "replacements": REPLACEMENTS, **options})
    return masking.apply(text, np.random.default_rng(seed))


# Which tokens are hidden


@given(lengths=LENGTHS, share=SHARES)
def test_each_text_has_its_share_of_tokens_to_guess(lengths, share):
    text = texts_of(lengths)
    _, labels = hide(text, share=share)
    counts = np.add.reduceat(labels.ids != IGNORE, labels.offsets[:-1])
    expected = [max(1, round(share * length)) for length in lengths]
    assert counts.tolist() == expected == n_guessed(text.lengths(), share).tolist()


def test_of_the_tokens_to_guess_most_are_masked_some_replaced_and_some_kept():
    text = texts_of([100] * 3000)
    hidden, labels = hide(text)
    chosen = labels.ids != IGNORE
    n = chosen.sum()
    assert n == 3000 * 15
    assert np.array_equal(labels.ids[chosen], text.ids[chosen])
    assert np.array_equal(hidden.ids[~chosen], text.ids[~chosen])
    before, after = text.ids[chosen], hidden.ids[chosen]
    # Five standard deviations of a share, each.
    assert np.mean(after == MASK) == pytest.approx(MASKED, abs=5 * math.sqrt(0.16 / n))
    assert np.mean((after != MASK) & (after != before)) == pytest.approx(REPLACED, abs=0.01)
    drawn = np.bincount(after[(after != MASK) & (after != before)], minlength=MASK + 1)
    assert not drawn[:3].any()
    assert drawn[3:MASK].min() > 0.5 * drawn.sum() / len(REPLACEMENTS)


def test_all_places_of_a_text_are_hidden_alike():
    _, labels = hide(texts_of([20] * 4000))
    counts = (labels.ids.reshape(4000, 20) != IGNORE).sum(axis=0)
    assert counts.min() > 0.85 * counts.mean()
    assert counts.max() < 1.15 * counts.mean()


@given(lengths=LENGTHS, share=SHARES)
def test_whole_words_are_hidden_whole(lengths, share):
    text = texts_of(lengths)
    continues = np.arange(MASK + 1) % 3 == 0
    _, labels = hide(text, share=share, continues=continues)
    chosen = labels.ids != IGNORE
    room = n_guessed(text.lengths(), share)
    for (start, end), most in zip(pairwise(text.offsets), room, strict=True):
        ids, is_chosen = text.ids[start:end], chosen[start:end]
        begins = [at for at in range(len(ids)) if at == 0 or not continues[ids[at]]]
        words = [is_chosen[first:last] for first, last in pairwise([*begins, len(ids)])]
        assert 1 <= is_chosen.sum() <= most
        if min(map(len, words)) <= most:  # else no whole word fits
            assert all(word.all() or not word.any() for word in words)


@given(lengths=LENGTHS, share=SHARES, width=st.integers(62, 100))
def test_no_row_has_more_tokens_to_guess_than_are_counted_on(lengths, share, width):
    text = texts_of(lengths)
    n = n_guessed(text.lengths(), share)
    rows = pack([text.lengths() + 2], width)
    for start, end in pairwise(rows.offsets):
        assert n[rows.ids[start:end]].sum() <= most_guessed(width, share)


@pytest.mark.parametrize(("width", "share", "expected"), [(512, 0.3, 170), (512, 0.9, 459)])
def test_not_many_more_are_counted_on_than_there_are(width, share, expected):
    assert most_guessed(width, share) == expected


# In batches


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["the old dog sleeps.", "a young cat sings, and the birds listen"] * 20
    return train_tokenizer("bpe", texts, 320)


@pytest.fixture(scope="module")
def task(tokenizer) -> MaskedLanguageModel:
    data = DataConfig(max_length=64)
    return MaskedLanguageModel(tokenizer, data, MaskingConfig(share=0.2))


def corpus_of(task: MaskedLanguageModel, n: int = 400) -> Corpus:
    chance = np.random.default_rng(5)
    size = task.tokenizer.size - 4
    ids = [chance.integers(0, size, chance.integers(1, 62)).tolist() for _ in range(n)]
    return Corpus({"text": MemorySide(ragged(ids))}, n)


def epochs(task: MaskedLanguageModel, position: Position, n: int) -> list[Batch]:
    batches = stream(corpus_of(task), task.layout(task.data, 512), 3, position)
    return [next(batches)[1] for _ in range(n)]


def same(left: Batch, right: Batch) -> bool:
    return all(map(torch.equal, left.tensors(), right.tensors()))


def test_masking_is_repeated_after_resuming_and_new_in_each_epoch(task):
    batches = epochs(task, Position(), 60)
    assert all(map(same, batches[20:], epochs(task, Position(0, 20), 40)))
    first, second = (
        next(iter(stream(corpus_of(task, 1), task.layout(task.data, 512), 3, Position(epoch))))[1]
        for epoch in (0, 1)
    )
    assert not torch.equal(first.labels, second.labels)


def test_validation_hides_the_same_tokens_every_time(task):
    layout = task.layout(task.data, 512)
    twice = [list(once(corpus_of(task), layout)) for _ in range(2)]
    assert all(map(same, *twice))


def test_only_tokens_of_the_text_are_to_be_guessed(task):
    specials = task.tokenizer.specials
    for batch in epochs(task, Position(), 10):
        grid = batch.inputs["text"]
        is_label = batch.labels != IGNORE
        assert is_label.sum() == batch.n_labels > 0
        assert not is_label[grid.segments == 0].any()
        firsts = (grid.positions == 0) & (grid.segments != 0)
        assert (grid.ids[firsts] == specials.bos).all()
        assert not is_label[firsts].any()
        assert not is_label[grid.ids == specials.eos].any()
        assert (grid.ids == task.masking.mask).any()
        assert is_label[grid.ids == task.masking.mask].all()


def test_the_loss_of_chosen_positions_is_that_of_all(task):
    model = task.build(small_config()).eval()
    model.output.bias.data.normal_()
    for batch in epochs(task, Position(), 3):
        logits = model.logits(model.encode(batch.inputs["text"]).hidden)
        expected = cross_entropy(logits, batch.labels, 0.1)
        found = task.loss(model, batch, 0.1)
        assert found.n_labels == expected.n_labels == batch.n_labels
        torch.testing.assert_close(found.total, expected.total)
        parameters = [one for one in model.parameters() if one.requires_grad]
        torch.testing.assert_close(
            torch.autograd.grad(found.total, parameters),
            torch.autograd.grad(expected.total, parameters),
            rtol=1e-4,
            atol=1e-4,
        )
        with torch.no_grad():
            torch.testing.assert_close(task.loss(model, batch, 0.1).total, expected.total.detach())


def test_all_packed_batches_give_the_output_layer_the_same_shape(task):
    model = task.build(small_config())
    shapes = set()
    for batch in epochs(task, Position(), 5):
        hidden = task.hidden(model, batch.inputs)
        states, labels = task.select(model, hidden, batch.labels)
        shapes.add((states.shape, labels.shape))
    assert len(shapes) == 1
    assert states.shape[1] < batch.labels.shape[1] / 2


# The model


def test_the_head_is_that_of_bert():
    body = build_model(small_config(), VOCABULARY, promise=Encoder)
    model = MaskedLM(body, tied=False)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 50, "layer_norm_eps": 1e-5}
    theirs = BertLMPredictionHead(BertConfig(**sizes, hidden_act="gelu")).eval()
    for parameter in (*model.parameters(), *theirs.parameters()):
        parameter.data.normal_()
    linear, norm = model.transform.linear, model.transform.norm
    for ours, other in (
        (linear, theirs.transform.dense),
        (norm, theirs.transform.LayerNorm),
        (model.output, theirs.decoder),
    ):
        ours.weight.data.copy_(other.weight)
        ours.bias.data.copy_(other.bias)
    hidden = torch.randn(3, 7, 50)
    with torch.no_grad():
        torch.testing.assert_close(model.logits(hidden), theirs(hidden))


def test_the_output_layer_shares_the_embedding_unless_told_otherwise(task):
    model = task.build(small_config())
    assert model.output.weight is model.body.embedding.weight
    other = task.build(small_config(tied="none"))
    assert other.output.weight is not other.body.embedding.weight


def test_the_body_has_the_parameters_of_a_classifier(task):
    model = task.build(small_config())
    classifier = Classifier(
        build_model(small_config(), task.tokenizer.size, promise=Encoder), 50, 2
    )
    assert {name: parameter.shape for name, parameter in classifier.body.named_parameters()} == {
        name: parameter.shape for name, parameter in model.body.named_parameters()
    }


# The mask token


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram", "word", "char"])
def test_a_mask_token_changes_no_other_id(kind):
    texts = ["the old dog sleeps.", "a young cat sings."] * 10
    plain = train_tokenizer(kind, texts, 600)
    assert plain.mask is None
    masked = plain.with_mask()
    assert masked.mask == plain.size == masked.size - 1
    assert masked.specials == plain.specials
    assert masked.encode(texts[0]) == plain.encode(texts[0])
    assert masked.with_mask() is masked
    again = Tokenizer.from_json(masked.to_json())
    assert (again.mask, again.size) == (masked.mask, masked.size)
    assert again.tokens([again.mask]) == ["<mask>"]
    assert again.mask not in again.encode("the characters <mask> are text")
    assert again.decode([*again.encode("the dog"), again.mask]) == "the dog"


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram", "word", "char"])
def test_a_mask_in_a_text_stands_for_one_token(kind):
    texts = ["the old dog sleeps.", "a young cat sings."] * 10
    tokenizer = train_tokenizer(kind, texts, 600).with_mask()
    found = tokenizer.encode_masked("the old <mask> sleeps <mask>.")
    parts = [tokenizer.encode(part) for part in ("the old", "sleeps")]
    end = tokenizer.encode("dog.")[len(tokenizer.encode("dog")) :]
    assert found == [*parts[0], tokenizer.mask, *parts[1], tokenizer.mask, *end]
    assert tokenizer.encode_masked(texts[0]) == tokenizer.encode(texts[0])


def test_the_mask_of_a_bert_vocabulary_is_used(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "sleep", "##s", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = load_tokenizer(tmp_path / "vocab.txt")
    assert (tokenizer.mask, tokenizer.mask_name) == (4, "[MASK]")
    assert tokenizer.with_mask() is tokenizer
    assert tokenizer.encode_masked("The [MASK] sleeps.") == [5, 4, 7, 8, 9]
    assert [words[number] for number, one in enumerate(tokenizer.continuing()) if one] == ["##s"]


def test_tokens_continue_a_word_unless_a_space_or_punctuation_begins_it(tokenizer):
    continues = np.array(tokenizer.continuing())
    text = "The birds, and unheardof ünïcodë: listen!"
    ids = tokenizer.encode(text)
    words: list[list[int]] = []
    for token in ids:
        if continues[token]:
            words[-1].append(token)
        else:
            words.append([token])
    spelled = [tokenizer.decode(word) for word in words]
    assert spelled == ["The", "birds", ",", "and", "unheardof", "ünïcodë", ":", "listen", "!"]


SMALL = train_tokenizer("bpe", ["the old dog sleeps."] * 5, 320).with_mask()


@settings(max_examples=20)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=5))
def test_any_text_with_masks_can_be_encoded(texts):
    ids = SMALL.encode_masked("<mask>".join(texts))
    assert ids.count(SMALL.mask) == len(texts) - 1


# The commands


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("masked") / "run"
    changes = {"training.steps": 6, "training.validate_every": 3, "masking.share": 0.3}
    options = {**SETTINGS, **changes, "masking.whole_words": "true"}
    words = ["--out", str(folder), "--device", "cpu"]
    for key, value in options.items():
        words += ["--set", f"{key}={value}"]
    assert call("train", "masked-language-model", *words) == 0
    return folder


def call(*arguments: object) -> int:
    """Run a command in this process; returns its exit code."""
    before, sys.argv = sys.argv, ["attendo", *map(str, arguments)]
    try:
        main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.fixture
def command(capsys) -> Callable[..., str]:
    """Run a command that succeeds; returns what it prints."""

    def run(*arguments: object) -> str:
        assert call(*arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


TEXTS = ["The old dog sees a cat.", "She sleeps.", "A young man sings in the old house."]


def test_a_run_is_continued_and_keeps_its_masking(run, command, capsys):
    tensors = read_tensors(run / "model.safetensors")
    command("train", "--out", run, "--resume", "--device", "cpu")
    again = read_tensors(run / "model.safetensors")
    assert all(torch.equal(tensors[name], again[name]) for name in tensors)
    assert call("train", "--out", run, "--resume", "--set", "masking.share=0.15") == 2
    assert "was started with other settings in [masking]" in capsys.readouterr().err


def test_a_run_has_a_mask_token_within_its_vocabulary(run):
    engine = load_engine(run, "cpu")
    assert isinstance(engine, MaskFiller)
    assert engine.bundle.task.tokenizer.size <= SETTINGS["tokenizer.vocabulary"]
    assert engine.bundle.task.masking.continues is not None


def test_texts_are_scored_by_pseudo_perplexity_and_accuracy(run, command, tmp_path):
    (tmp_path / "test.txt").write_text("\n".join(TEXTS * 5))
    arguments = ("evaluate", run, "--data", tmp_path / "test.txt", "--device", "cpu")
    scores = json.loads(command(*arguments, "--json"))
    engine = load_engine(run, "cpu")
    assert 1 < scores["pseudo_perplexity"] < 2 * engine.bundle.task.tokenizer.size
    assert 0 <= scores["accuracy"] <= 100
    printed = command(*arguments)
    assert f"pseudo-perplexity {scores['pseudo_perplexity']:.2f}\n" in printed
    assert f"accuracy          {scores['accuracy']:.2f} %\n" in printed
    card = read_score_card(run)
    assert card["evaluations"][-1]["pseudo_perplexity"] == scores["pseudo_perplexity"]


def test_guesses_are_the_most_probable_tokens(run, command):
    engine = load_engine(run, "cpu")
    task, model = engine.bundle.task, engine.bundle.model
    text = "The old <mask> sees <mask>."
    line, other = command("predict", run, text, "--device", "cpu").splitlines()
    ids = [task.tokenizer.specials.bos, *task.tokenizer.encode_masked(text)]
    ids.append(task.tokenizer.specials.eos)
    with torch.no_grad():
        probabilities = model.logits(model.encode(grid_of(torch.tensor([ids]))).hidden)[0].softmax(
            -1
        )
    for place, shown in zip(
        [at for at, token in enumerate(ids) if token == task.tokenizer.mask],
        (line, other),
        strict=True,
    ):
        best = probabilities[place].topk(5).values.tolist()
        assert re.findall(r" (0\.\d{4})(?:, |$)", shown) == [f"{one:.4f}" for one in best]
    (printed,) = command("predict", run, text, "--json", "--device", "cpu").splitlines()
    found = json.loads(printed)
    assert found["text"] == text
    assert [len(guesses) for guesses in found["guesses"]] == [5, 5]
    assert line.startswith(f"{found['guesses'][0][0]['token']} 0.")


def grid_of(ids: torch.Tensor) -> Grid:
    return Grid(ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None])


def test_texts_without_a_mask_and_long_ones_have_no_guesses(run, capsys):
    assert call("predict", run, "No mask.") == 2
    assert capsys.readouterr().err == (
        "error: 'No mask.' has no <mask>; write <mask> in place of a word to guess\n"
    )
    with pytest.raises(DataError, match="this model reads up to 128"):
        load_engine(run, "cpu").predict(["dog <mask> " * 80])


def test_a_page_shows_guesses_or_the_text_as_it_is(run, command, tmp_path):
    text = "The old <mask> sees <mask> and <mask>"
    printed = command("look", run, text, "--out", tmp_path / "a.html", "--device", "cpu")
    engine = load_engine(run, "cpu")
    (expected,) = engine.predict([text])
    assert printed == f"{expected.to_text()}\n"
    page = (tmp_path / "a.html").read_text("utf-8")
    data = re.search(r'<script type="application/json" id="recording">(.*?)</script>', page, re.S)
    shown = json.loads(data[1])
    assert shown["source_tokens"].count("<mask>") == len(shown["steps"]) == 3
    assert shown["ablation"]["loss"] > 0
    printed = command("look", run, TEXTS[0], "--out", tmp_path / "b.png", "--device", "cpu")
    assert printed == "no <mask> in the text: nothing to guess\n"
    found = engine.inspect(TEXTS[0])
    n_tokens = len(engine.bundle.task.tokenizer.encode(TEXTS[0]))
    assert found.recording.logits.shape[1] == n_tokens


# Embeddings


def test_a_vector_is_the_mean_of_hidden_states_with_length_one(run):
    embedder = load_embedder(run, "cpu")
    task, model = embedder.bundle.task, embedder.bundle.model
    vectors = embedder.embed([*TEXTS, ""], batch_size=3)
    assert vectors.shape == (4, 16)
    specials = task.tokenizer.specials
    for text, vector in zip([*TEXTS, ""], vectors, strict=True):
        ids = torch.tensor([[specials.bos, *task.tokenizer.encode(text), specials.eos]])
        with torch.no_grad():
            mean = model.encode(grid_of(ids)).hidden[0].mean(dim=0).numpy()
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_vectors_are_printed_and_written(run, command, tmp_path):
    expected = load_embedder(run, "cpu").embed(TEXTS)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    printed = command("embed", run, *TEXTS, "--device", "cpu")
    rows = [list(map(float, line.split("\t"))) for line in printed.splitlines()]
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    given = ("embed", run, "--input", tmp_path / "texts.txt", "--device", "cpu")
    objects = [json.loads(line) for line in command(*given, "--json").splitlines()]
    assert [one["text"] for one in objects] == TEXTS
    np.testing.assert_allclose([one["vector"] for one in objects], expected, atol=1e-6)
    assert command(*given, "--npy", tmp_path / "vectors.npy") == ""
    written = np.load(tmp_path / "vectors.npy", allow_pickle=False)
    assert written.dtype == np.float32
    np.testing.assert_allclose(written, expected, atol=1e-6)


def test_wrong_options_of_embed_are_refused(run, tmp_path, capsys):
    assert call("embed", run, "a", "--json", "--npy", tmp_path / "a.npy") == 2
    assert "both --npy and --json" in capsys.readouterr().err
    assert call("embed", run, "a", "--input", "b") == 2
    assert "both TEXT and --input" in capsys.readouterr().err
    with pytest.raises(DataError, match="no text to embed"):
        load_embedder(run, "cpu").embed([])
