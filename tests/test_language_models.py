"""Language models: streams of text, lossless tokenizers, scores with context, generation."""

import math
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from attendo.cli import main
from attendo.config import DataConfig, DecodingConfig, load_recipe
from attendo.data.batches import Layout, Position, stream, stream_rows
from attendo.data.corpus import Corpus, MemorySide, ragged
from attendo.data.readers import Document, ReadReport, RecordFiles, read_records
from attendo.errors import ConfigError, DataError, TokenizerError
from attendo.lab.bench.sentences import numbered_tokenizer
from attendo.models import CausalLM, Encoder, build_model
from attendo.nn.grid import Grid, WholeRows
from attendo.specials import IGNORE
from attendo.tasks import LanguageModel
from attendo.text import Continuation, train_tokenizer
from attendo.training.kinds import check_kinds
from attendo.training.plan import make_plan
from conftest import small_config

TEXT = (
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n  Speak, speak.\n\n"
    "First Citizen:\nYou are all resolved rather to die than to famish?\n\nAll:\nResolved.\n"
)


# -- streams


def layout_of(width: int, budget: int) -> Layout:
    return Layout(width, budget, "stream", lambda columns: pytest.fail("not shaped"), {"text": 0})


def numbers(n: int) -> MemorySide:
    return MemorySide(ragged([list(range(n))]))


@given(
    n=st.integers(2, 60),
    width=st.integers(1, 17),
    stride=st.integers(1, 17),
    rows=st.integers(1, 4),
)
def test_every_token_is_scored_once_with_enough_context(n, width, stride, rows):
    stride = min(stride, width)
    seen = []
    for batch in stream_rows(numbers(n), layout_of(width, rows * width), stride):
        grid = batch.inputs["text"]
        for row, column in (batch.labels != IGNORE).nonzero().tolist():
            label, before = int(batch.labels[row, column]), int(grid.ids[row, column])
            assert label == before + 1
            assert column >= min(label - 1, width - stride)
            seen.append(label)
        assert batch.n_labels == int((batch.labels != IGNORE).sum())
    assert sorted(seen) == list(range(1, n))


def test_an_epoch_of_a_stream_cuts_the_text_at_other_places_than_the_last():
    corpus, layout = Corpus({"text": numbers(1000)}, 1), layout_of(13, 52)
    starts: dict[int, set[int]] = {}
    for position, batch in islice(stream(corpus, layout, 1, Position()), 100):
        grid = batch.inputs["text"]
        assert isinstance(grid, WholeRows)
        assert grid.ids.shape == (4, 13), "all batches have one shape"
        assert torch.equal(batch.labels, grid.ids + 1)
        starts.setdefault(position.epoch, set()).update(grid.ids[:, 0].tolist())
    places = [{start % 13 for start in found} for found in starts.values()]
    assert all(len(found) == 1 for found in places)
    assert len(set.union(*places)) > 2
    assert len(starts[0]) >= 1000 // 13 - 1


def test_a_stream_goes_on_with_the_same_batches_from_any_position():
    corpus, layout = Corpus({"text": numbers(500)}, 1), layout_of(13, 52)
    all_batches = list(islice(stream(corpus, layout, 3, Position()), 25))
    for number in (0, 7, 18):
        position, _ = all_batches[number]
        _, again = next(stream(corpus, layout, 3, position))
        assert torch.equal(again.labels, all_batches[number + 1][1].labels)


def test_a_text_that_is_shorter_than_a_row_is_refused():
    corpus = Corpus({"text": numbers(12)}, 1)
    with pytest.raises(DataError, match=r"12 tokens, fewer than a row: data.max_length = 13"):
        next(stream(corpus, layout_of(13, 13), 1, Position()))


def test_streams_are_for_language_models():
    with pytest.raises(ConfigError, match='"stream" is for the task "language-model"'):
        load_recipe("demo", {"data.layout": "stream"})


@pytest.mark.parametrize("kind", ["dot", "additive"])
@pytest.mark.parametrize("positions", ["rotary", "alibi", "learned"])
def test_whole_rows_need_no_mask(kind, positions):
    config = small_config(attention=kind, positions=positions)
    model = build_model(config, 41, promise=CausalLM).eval()
    ids = torch.randint(41, (3, 11))
    packed = Grid(ids, torch.ones_like(ids), torch.arange(11).expand(3, -1))
    torch.testing.assert_close(model.decode(WholeRows(*packed)), model.decode(packed))
    whole, of_packed = (model.record(grid)[1] for grid in (WholeRows(*packed), packed))
    for left, right in zip(whole.attention, of_packed.attention, strict=True):
        torch.testing.assert_close(left.weights, right.weights)


# -- text


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "\r\n\r\n", "\n" * 9000])
def test_a_plain_text_is_read_exactly_as_it_is(tmp_path, ending):
    whole = "".join(f"  line {n} \n" + "\n" * (n % 7 == 0) for n in range(900)) + "end" + ending
    path = tmp_path / "book.txt"
    path.write_bytes(whole.encode())
    records = list(read_records(RecordFiles(files=(str(path),), record=Document), ReadReport()))
    assert len(records) > 3
    assert [record.goes_on for record in records] == [True] * (len(records) - 1) + [False]
    assert "".join(record.text for record in records) == whole.removesuffix(ending)


def test_every_file_of_a_stream_ends_with_its_own_token(tmp_path):
    files = [tmp_path / f"{name}.txt" for name in "abc"]
    for file, ending in zip(files, ("", "\n", "\n\n\n"), strict=True):
        file.write_text("one two three" + ending, encoding="utf-8")
    found = RecordFiles(files=tuple(map(str, files)), record=Document)
    records = list(read_records(found, ReadReport()))
    assert records == [Document("one two three")] * 3
    assert not any(record.goes_on for record in records)


@pytest.mark.parametrize("kind", ["char", "word", "byte-bpe", "code-bpe"])
def test_lossless_tokenizers_return_every_text(kind):
    tokenizer = train_tokenizer(kind, [TEXT, " <unk> </s> <0x41>"] * 3, 600, lossless=True)
    specials = set(tokenizer.specials)

    @settings(max_examples=60, deadline=None)
    @given(st.text())
    def returns(text: str) -> None:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not specials & set(ids)

    returns()
    for text in (TEXT, "  two\n\n\n spaces\t</s>", "<0x41> <unk>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_words_are_what_white_space_separates():
    text = " the <unk> of n.v. \n mr. vinken 's \n"
    tokenizer = train_tokenizer("word", [text] * 2, 400, lossless=True)
    words = ["▁the", "▁<unk>", "▁of", "▁n.v.", "▁⏎", "▁mr.", "▁vinken", "▁'s", "▁⏎"]
    assert tokenizer.tokens(tokenizer.encode(text)) == words


def test_a_kind_that_changes_white_space_cannot_be_lossless():
    with pytest.raises(TokenizerError, match="'unigram' cannot be lossless; use byte-bpe or code"):
        train_tokenizer("unigram", [TEXT], 600, lossless=True)
    with pytest.raises(TokenizerError, match=r"keeps all white space: set tokenizer\.lossless"):
        train_tokenizer("code-bpe", [TEXT], 600)


# -- scores


def small_task(**data) -> LanguageModel:
    return LanguageModel(numbered_tokenizer(41), DataConfig(layout="stream", **data))


@pytest.mark.parametrize("stride", [1, 4, 8])
def test_perplexity_is_that_of_each_token_given_those_before_it(stride):
    task = small_task(max_length=8)
    model = task.build(small_config(positions="rotary")).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    texts = [" ".join(map(str, np.random.default_rng(n).integers(3, 41, 9 + n))) for n in range(3)]
    options = DecodingConfig(stride=stride)
    scores = task.evaluate(model, [Document(text) for text in texts], options, torch.device("cpu"))

    eos = task.tokenizer.specials.eos
    tokens = [eos]
    for text in texts:
        tokens += [*task.tokenizer.encode(text), eos]
    total = 0.0
    for place in range(1, len(tokens)):
        # Rows begin at multiples of the stride; the last one is moved back to be full.
        row = 0 if place <= 8 else -(-(place - 8) // stride) * stride
        row = min(row, len(tokens) - 1 - 8)
        context = torch.tensor([tokens[row:place]])
        grid = Grid(context, torch.ones_like(context), torch.arange(place - row)[None])
        logits = model.logits(model.decode(grid)[0, -1])
        total -= float(functional.log_softmax(logits, -1)[tokens[place]].detach())
    assert scores.tokens == len(tokens) - 1
    assert scores.perplexity == pytest.approx(math.exp(total / scores.tokens), rel=1e-3)
    n_bytes = sum(len(text) + 1 for text in texts)
    assert scores.bits_per_byte == pytest.approx(total / math.log(2) / n_bytes, rel=1e-3)


# -- generation


def continued(tokenizer, ids, prompt: str = "", stops=()) -> tuple[list[str], str]:
    parts: list[str] = []
    text = Continuation(tokenizer, tokenizer.encode(prompt), stops, parts.append)
    for token in ids:
        if text.add(token):
            break
    return parts, text.finish()


@pytest.mark.parametrize("kind", ["bpe", "char", "byte-bpe", "wordpiece", "unigram"])
def test_parts_of_a_continuation_make_up_the_whole(kind):
    tokenizer = train_tokenizer(kind, [TEXT] * 3, 600)
    text = "hear me, naïve Citizen 🙂 of Zürich"
    parts, whole = continued(tokenizer, tokenizer.encode("speak " + text)[1:], "speak")
    assert "".join(parts) == whole
    assert whole.strip() in ("speak " + text)
    assert whole.endswith("🙂 of Zürich")
    assert not any("\ufffd" in part for part in parts)


def test_a_continuation_ends_before_a_stop_text():
    tokenizer = train_tokenizer("char", [TEXT], 400, lossless=True)
    ids = tokenizer.encode("Speak.\nAll:\nNo, no.")
    parts, whole = continued(tokenizer, ids, stops=["\nAll:", "never"])
    assert whole == "Speak."
    assert "".join(parts) == "Speak."
    assert continued(tokenizer, ids, stops=["\nAlls"])[1] == "Speak.\nAll:\nNo, no."


@pytest.mark.parametrize("strategy", ["sample", "greedy", "beam"])
def test_a_text_may_grow_longer_than_the_model_was_trained_for(strategy):
    task = small_task(max_length=8)
    model = task.build(small_config(positions="learned", max_positions=8)).eval()
    options = DecodingConfig(strategy=strategy, seed=3, max_loops=0, temperature=5.0)
    cpu = torch.device("cpu")
    parts: list[str] = []
    text = task.generate(model, "5 6 7", options, cpu, n_tokens=30, emit=parts.append)
    assert "".join(parts) == text
    assert len(text.split()) <= 30
    if strategy == "sample":
        assert len(text.split()) > 8
        assert text == task.generate(model, "5 6 7", options, cpu, n_tokens=30)
        other = options.model_copy(update={"seed": 4})
        assert text != task.generate(model, "5 6 7", other, cpu, n_tokens=30)


# -- options of the model


def test_queries_and_keys_are_normalised_in_every_head():
    model = build_model(small_config(query_key_norm=True), 41, promise=CausalLM).eval()
    ids = torch.randint(41, (2, 7))
    _, recorded = model.record(Grid(ids, torch.ones_like(ids), torch.arange(7).expand(2, -1)))
    for record in recorded.attention:
        for vectors in (record.queries, record.keys):
            sizes = vectors.square().mean(-1)
            torch.testing.assert_close(sizes, torch.ones_like(sizes), rtol=1e-3, atol=1e-3)


def test_word_dropout_drops_all_occurrences_of_a_word():
    model = build_model(small_config(p_drop_embedding=0.5), 41, promise=CausalLM).train()
    ids = torch.arange(41).repeat(1, 3)
    embedded = model.embedding(ids).unflatten(1, (3, 41))
    assert torch.equal(embedded[:, 0], embedded[:, 2])
    is_dropped = (embedded[0, 0] == 0).all(-1)
    assert 5 < int(is_dropped.sum()) < 36
    plain = model.eval().embedding(ids)[0, :41]
    torch.testing.assert_close(embedded[0, 0][~is_dropped], 2 * plain[~is_dropped])


def test_layers_have_kinds_of_attention_in_turn():
    config = small_config(decoder_layers=5, attention_pattern=("window", "window", "dot"))
    model = build_model(config, 41, promise=CausalLM)
    kinds = [type(one.attention).__name__ for one in model.attentions()["decoder"]]
    assert kinds == ["Window", "Window", "ScaledDotProduct", "Window", "Window"]
    recipe = load_recipe("language-model", {"model.attention_pattern": ["window", "dott"]})
    with pytest.raises(ConfigError, match=r"model.attention_pattern = 'dott'.*did you mean 'dot'"):
        check_kinds(recipe)


def test_windows_cost_fewer_operations_than_attention_to_everything():
    counted = [
        make_plan(load_recipe("gpt2-small", {"model.attention_pattern": kinds})).flops_per_token
        for kinds in ([], ["window", "dot"], ["window"])
    ]
    full, mixed, narrow = counted
    assert narrow < mixed < full
    assert full - mixed == mixed - narrow


def test_a_cap_bounds_the_logits_and_is_for_models_that_predict_the_next_token():
    model = build_model(small_config(logit_cap=2.0), 41, promise=CausalLM).eval()
    model.output.weight.data.mul_(50)
    hidden = 10 * torch.randn(7, model.output.in_features)
    logits = model.logits(hidden)
    torch.testing.assert_close(logits, 2.0 * torch.tanh(model.output(hidden) / 2.0))
    assert float(logits.detach().abs().max()) <= 2.0
    with pytest.raises(ConfigError, match=r"logit_cap = 2\.0 is for models that predict"):
        build_model(small_config(logit_cap=2.0), 41, promise=Encoder)


def test_the_number_of_embeddings_is_rounded_up():
    model = build_model(small_config(vocabulary_multiple=64), 41, promise=CausalLM)
    assert model.embedding.weight.shape[0] == 64
    assert model.output.weight is model.embedding.weight


# -- the command line

SMALL = {
    "data.max_length": 32,
    "data.hold_out": 4,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.decoder_layers": 1,
    "training.steps": 6,
    "training.warmup_steps": 2,
    "training.batch_tokens": 256,
    "training.validate_every": 3,
}


@pytest.fixture
def run(monkeypatch, capfd):
    """Run a command as a user does; return what it printed."""

    def call(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        shown = capfd.readouterr()
        assert not stopped.value.code, shown.err
        return shown.out

    return call


@pytest.mark.parametrize("recipe", ["shakespeare", "ptb", "gpt2-small", "language-model"])
def test_every_recipe_trains_scores_and_generates(recipe, run, tmp_path, unchecked):
    book: Path = tmp_path / "book.txt"
    book.write_text(TEXT * 150, encoding="utf-8")
    out = tmp_path / "run"
    changes = [f"--set={key}={value}" for key, value in SMALL.items()]
    if recipe in ("gpt2-small", "language-model"):
        changes.append("--set=tokenizer.vocabulary=400")
    run("train", recipe, "--data", book, "--out", out, "--device", "cpu", *changes)
    shown = run("evaluate", out, "--data", book, "--device", "cpu")
    assert shown.startswith("perplexity")
    words = ("generate", out, "First Citizen:", "--tokens", 60, "--seed", 7, "--device", "cpu")
    first = run(*words)
    assert first.startswith("First Citizen:")
    assert first == run(*words)
    assert first != run(*words[:-3], 8, *words[-2:])
    stop = first[20:22]
    assert run(*words, "--stop", stop) == first[: first.index(stop, 14)] + "\n"
