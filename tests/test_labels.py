"""Labels of texts, of pairs of texts and of words: rows, pooling, scores and commands."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rcParams

import attendo
from attendo.bundle import load_bundle
from attendo.config import DataConfig
from attendo.data.corpus import ragged
from attendo.data.packing import lay_grid, pad_grid
from attendo.engines import load_classifier, load_engine
from attendo.errors import BundleError, DataError
from attendo.models import Encoder, build_model
from attendo.models.classifier import Classifier
from attendo.nn.grid import segment_means
from attendo.reporter import Console
from attendo.runs import read_labels
from attendo.specials import IGNORE
from attendo.tasks import PairClassification, TokenClassification
from attendo.tasks.classification import LabelledPair
from attendo.tasks.label_scores import entities, score_labels
from attendo.tasks.token_classification import LabelledWords
from attendo.text import Tokenizer, train_tokenizer
from conftest import VOCABULARY, small_config
from small_runs import CPU, SETTINGS, overflowing, small_run


@pytest.mark.parametrize("content", ["[]", '{"labels": []}', '{"labels": [1]}', "{}", "{"])
def test_damaged_labels_are_refused(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(BundleError, match=r"labels\.json' cannot be read"):
        read_labels(tmp_path, "labels")


# Scores


def scores_of(pairs: list[tuple[str, str]], **options):
    return score_labels([[pair] for pair in pairs], **options).to_dict()


def test_scores_of_two_labels_are_those_computed_by_hand():
    # 6 hits, 1 miss, 2 false alarms, 3 correct rejections of "yes"
    pairs = [("yes", "yes")] * 6 + [("yes", "no")] + [("no", "yes")] * 2 + [("no", "no")] * 3
    scores = scores_of(pairs)
    assert scores["accuracy"] == 75.0
    assert scores["f1"] == {"no": round(100 * 6 / 9, 2), "yes": 80.0}
    assert scores["macro_f1"] == pytest.approx((66.67 + 80) / 2, abs=0.01)
    assert scores["matthews"] == round((6 * 3 - 1 * 2) / math.sqrt(7 * 8 * 4 * 5), 4)
    assert scores["confusion"] == {"no": {"no": 3, "yes": 2}, "yes": {"no": 1, "yes": 6}}
    assert scores["texts"] == 12
    assert "entity_f1" not in scores
    assert "words" not in scores


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_matthews_correlation_is_the_correlation_of_both_columns(flags):
    pairs = [(str(left), str(right)) for left, right in flags]
    scores = scores_of(pairs)
    if len({label for pair in pairs for label in pair}) < 2:
        assert "matthews" not in scores
        return
    expected, predicted = np.array(flags, dtype=float).T
    varies = expected.std() > 0 and predicted.std() > 0
    correlation = np.corrcoef(expected, predicted)[0, 1] if varies else 0.0
    assert scores["matthews"] == pytest.approx(correlation, abs=1e-4)


def test_whether_there_are_two_labels_does_not_depend_on_the_texts():
    assert "matthews" not in scores_of([("a", "a"), ("b", "c"), ("c", "c")])
    assert "matthews" not in score_labels([[("a", "b")]], ["a", "b", "c"]).to_dict()
    assert score_labels([[("a", "a")]], ["a", "b"]).to_dict()["matthews"] == 0


def test_entities_begin_with_b_and_continue_with_i():
    labels = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-PER", "O", "I-ORG", "I-ORG"]
    assert entities(labels) == [
        (0, 2, "PER"), (3, 4, "LOC"), (4, 5, "LOC"), (5, 6, "PER"), (7, 9, "ORG"),
    ]  # fmt: skip


def test_an_entity_is_right_if_its_kind_and_its_ends_are():
    expected = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    texts = [list(zip(*labels, strict=True)) for labels in zip(expected, predicted, strict=True)]
    scores = score_labels(texts, of_words=True).to_dict()
    assert scores["entity_f1"] == round(100 * 2 * 1 / (3 + 3), 2)
    assert scores["accuracy"] == 50.0
    assert (scores["words"], scores["texts"]) == (6, 2)


def test_only_bio_labels_have_entities():
    scores = score_labels([[("NOUN", "NOUN"), ("O", "O")]], of_words=True).to_dict()
    assert "entity_f1" not in scores


# Pooling

LENGTHS = (5, 3, 7, 1)


@pytest.mark.parametrize("rows", [[[0, 1], [2, 3]], [[0], [1], [2], [3]]])
def test_means_of_segments_are_those_of_a_loop(rows):
    sequences = ragged([[1] * length for length in LENGTHS])
    grid = lay_grid(sequences, ragged(rows), 11, 0)
    x = torch.randn(len(rows), 11, 4, dtype=torch.float64)
    means = segment_means(x.float(), grid.segments)
    for row, segments in enumerate(grid.segments):
        for number in range(1, 1 + len(rows[row])):
            place = segments == number
            expected = x[row][place].mean(dim=0).float().expand(int(place.sum()), -1)
            torch.testing.assert_close(means[row][place], expected)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_is_pooled_alone_whatever_is_beside_it(pooling):
    body = build_model(small_config(), VOCABULARY, promise=Encoder)
    model = Classifier(body, 50, 3, pooling=pooling)
    model.output.weight.data.normal_()
    model.eval()
    sequences = [torch.randint(3, VOCABULARY, (length,)).tolist() for length in LENGTHS]
    packed = lay_grid(ragged(sequences), ragged([[0, 1], [2, 3]]), 12, 0)
    padded = pad_grid(sequences, 0)
    with torch.no_grad():
        pooled = model.pool(model.encode(packed))
        starts = (packed.positions == 0) & (packed.segments != 0)
        together = model.logits(pooled[starts])
        apart = model.logits(model.pool(model.encode(padded))[:, 0])
        for sequence, logits in zip(sequences, together, strict=True):
            hidden = model.encode(pad_grid([sequence], 0)).hidden[0]
            expected = hidden.mean(dim=0) if pooling == "mean" else hidden.amax(dim=0)
            torch.testing.assert_close(logits, model.output(expected))
    torch.testing.assert_close(together, apart)


# Rows


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("bpe", ["the old dog sleeps and a young cat sings"] * 9, 320)


@given(first=st.integers(0, 30), second=st.integers(0, 30), room=st.integers(4, 40))
def test_of_a_long_pair_the_longer_text_is_cut(first, second, room):
    tokenizer = TOKENIZER
    task = PairClassification(tokenizer, ["no", "yes"], room)
    texts = ("dog " * first, "cat " * second)
    ((row,),) = task.rows([texts], room)
    bos, eos = tokenizer.specials.bos, tokenizer.specials.eos
    dog, cat = (tokenizer.encode(word)[0] for word in ("dog", "cat"))
    ends = [at for at, token in enumerate(row.ids) if token == eos]
    assert row.ids[0] == bos
    assert row.places == [0]
    assert ends[-1] == len(row.ids) - 1 < room
    kept = row.ids.count(dog), row.ids.count(cat)
    assert row.ids == [bos, *[dog] * kept[0], eos, *[cat] * kept[1], eos]
    lengths = [first, second]
    while sum(lengths) > room - 3:  # one by one, the same
        longer = 1 if lengths[1] >= lengths[0] else 0
        lengths[longer] -= 1
    assert sum(kept) == sum(lengths)
    assert max(abs(left - right) for left, right in zip(kept, lengths, strict=True)) <= 1


TOKENIZER = train_tokenizer("word", ["dog cat"] * 9, 320)


def test_words_are_labelled_at_their_first_token_and_split_between_words(tokenizer):
    task = TokenClassification(tokenizer, ["O", "X"], 12)
    text = "the unheardof dog sings the old unheardof cat"
    labels = "O X O O O O X X"
    data, dropped = DataConfig(max_length=12), Counter[str]()
    record = LabelledWords(text, labels)
    examples = [example for _, example in task.encode([record], data, dropped)]
    assert len(examples) > 1
    assert not dropped
    parts = [task.decode(example) for example in examples]
    assert " ".join(part.text for part in parts) == text
    assert " ".join(part.labels for part in parts) == labels
    for ids, numbers in examples:
        shaped = task.shape(
            {"text": ragged([ids]), "labels": ragged([numbers])}, np.random.default_rng(0)
        )
        tokens = task.tokenizer.tokens(shaped.inputs["text"].ids.tolist())
        labelled = [at for at, label in enumerate(shaped.labels.ids) if label != IGNORE]
        assert labelled == [at for at, token in enumerate(tokens) if token.startswith("▁")]
        assert len(tokens) <= 12


def test_words_and_labels_that_do_not_match_are_counted(tokenizer):
    task = TokenClassification(tokenizer, ["O", "X"], 32)
    records = [
        LabelledWords("the dog", "O O"),
        LabelledWords("the dog", "O"),
        LabelledWords("the dog", "O Y"),
        LabelledWords("the \u200b\x01 dog", "O X O"),
    ]
    dropped = Counter[str]()
    kept = list(task.encode(records, DataConfig(), dropped))
    assert [record for record, _ in kept] == [records[0], records[3]]
    assert dropped == {"not one label for each word": 1, "label that no training text has": 1}


def test_of_a_document_the_first_pair_or_sentence_is_read(tokenizer):
    pairs, words = (
        kind(tokenizer, ["a", "b"], 32) for kind in (PairClassification, TokenClassification)
    )
    assert pairs.beginning("\n\nOne. Two.\tThree.\nFour.\tFive.") == "One. Two.\tThree."
    assert words.beginning("\n\nOne dog. Two dogs.\nFour.") == "One dog."


def test_two_texts_belong_to_a_pair(tokenizer):
    task = PairClassification(tokenizer, ["no", "yes"], 32)
    assert task.parse("one\ttwo") == task.parse(("one", "two")) == ("one", "two")
    with pytest.raises(DataError, match=r"has 1 texts; .* reads 2: text TAB second"):
        task.parse("one")
    record = LabelledPair("the dog", "a cat", "yes")
    ((_, example),) = task.encode([record], DataConfig(), Counter())
    assert task.decode(example) == record


# Commands

SHORT = {**SETTINGS, "training.steps": 4, "training.validate_every": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("labels")
    for task in ("classification", "pair-classification", "token-classification"):
        small_run(folder / task, {**SHORT, "task": task, "model.pooling": "mean"})
    return {path.name: path for path in folder.iterdir()}


def test_pairs_are_two_arguments_or_lines_with_a_tab(runs, command, tmp_path):
    run = runs["pair-classification"]
    (expected,) = load_classifier(run, "cpu").predict([("A dog.", "A cat.")])
    line = f"{expected.label}\t{expected.probability:.4f}\n"
    assert command("predict", run, "A dog.", "A cat.")[:2] == (0, line)
    (tmp_path / "pairs.tsv").write_text("A dog.\tA cat.\nA cat.\tA dog.\n")
    code, out, _ = command("predict", run, "--input", tmp_path / "pairs.tsv", "--json")
    found = [json.loads(one) for one in out.splitlines()]
    assert code == 0
    assert [(one["text"], one["second"]) for one in found] == [
        ("A dog.", "A cat."), ("A cat.", "A dog."),
    ]  # fmt: skip
    assert found[0]["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    code, out, error = command("predict", run, "A dog.")
    assert (code, out) == (2, "")
    assert "reads 2: text TAB second" in error
    assert error.count("\n") == 1


def test_words_are_printed_with_their_labels(runs, command):
    run = runs["token-classification"]
    text = "der alte hund " * 60  # longer than a row
    words = text.split()
    code, out, _ = command("predict", run, text, "sie schläft")
    assert code == 0
    first, second, rest = out.split("\n\n")
    assert [line.split("\t")[0] for line in first.splitlines()] == words
    assert {line.split("\t")[1] for line in out.splitlines() if line} <= {"lower", "upper"}
    assert len(second.splitlines()) == 2
    assert rest == ""
    _, out, _ = command("predict", run, "sie schläft", "--json")
    found = json.loads(out)
    assert found["words"] == ["sie", "schläft"]
    assert len(found["labels"]) == len(found["probabilities"]) == 2


def test_answers_do_not_depend_on_the_batch(runs):
    engine = load_classifier(runs["token-classification"], "cpu")
    texts = ["der hund", "", "die alte katze singt " * 20, "ein hund"]
    together = engine.predict(texts, batch_size=3)
    alone = [engine.predict([text])[0] for text in texts]
    assert [one.labels for one in together] == [one.labels for one in alone]
    assert together[1].labels == ()


@pytest.mark.parametrize("task", ["classification", "pair-classification", "token-classification"])
def test_parameters_that_overflow_are_refused(runs, task, tmp_path, command):
    run = overflowing(runs[task], tmp_path / "run")
    for name in ("predict", "embed"):
        code, out, error = command(name, run, "A dog.\tA cat.")
        assert (code, out) == (2, "")
        assert "output is not finite" in error


@pytest.mark.parametrize(
    ("task", "lines", "names"),
    [
        (
            "classification",
            ["The dog sleeps.\tEnglish", "Der Hund.\tGerman"],
            ["English", "German"],
        ),
        ("pair-classification", ["a\tb\tin order", "b\ta\tswapped"], ["in order", "swapped"]),
        ("token-classification", ["der hund\tlower upper"], ["lower", "upper"]),
    ],
)
def test_an_evaluation_prints_a_table_and_draws_a_matrix(
    runs, command, tmp_path, monkeypatch, task, lines, names
):
    monkeypatch.setitem(rcParams, "svg.fonttype", "none")  # text as text
    (tmp_path / "test.tsv").write_text("\n".join(lines) + "\n")
    given = ("evaluate", runs[task], "--data", tmp_path / "test.tsv", "--device", "cpu")
    code, out, error = command(*given, "--confusion", tmp_path / "map.svg")
    assert code == 0, error
    drawn = (tmp_path / "map.svg").read_text("utf-8")
    for name in (*names, "predicted label"):
        assert f">{name}</text>" in drawn
    card = json.loads(command(*given, "--json")[1])
    assert f"Matthews  {card['matthews']:.4f}\n" in out
    table = out.splitlines()[-3:]
    assert table[0].split() == ["label", "F1", "occurs", "predicted"]
    for line, name in zip(table[1:], names, strict=True):
        assert line.strip().startswith(name)
        assert f"{card['f1'][name]:.2f} %" in line
    assert command(*given, "--confusion", tmp_path / "map.png")[0] == 0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_words_without_labels_cannot_be_scored(runs, command, tmp_path):
    (tmp_path / "test.tsv").write_text("der hund\tlower\n")
    code, _, error = command(
        "evaluate", runs["token-classification"], "--data", tmp_path / "test.tsv"
    )
    assert code == 2
    assert "has 2 words and 1 labels" in error


def test_a_bad_held_out_record_does_not_stop_a_training(tmp_path, capsys):
    lines = [f"der hund {n}\tlower upper{' lower' if n % 4 else ''}" for n in range(40)]
    (tmp_path / "bad.tsv").write_text("\n".join(lines) + "\n")
    settings = {"task": "token-classification", "data.builtin": 0, "training.validation_bleu": 9}
    bad = [str(tmp_path / "bad.tsv")]
    settings |= {f"data.{part}files": bad for part in ("", "valid_", "test_")}
    small_run(tmp_path / "run", {**SHORT, **settings}, reporter=Console())
    said = capsys.readouterr().err
    for part in ("validation", "test"):
        assert f"left out 10 {part} records: not one label for each word" in said
    (tmp_path / "worse.tsv").write_text("der hund\tlower\n")
    settings["data.test_files"] = [str(tmp_path / "worse.tsv")]
    with pytest.raises(DataError, match="no test record is left: 1 not one label for each word"):
        small_run(tmp_path / "other", {**SHORT, **settings})


def test_a_matrix_needs_a_classifier_and_a_picture(runs, command):
    run = runs["classification"]
    code, _, error = command("evaluate", run, "--data", "x.tsv", "--confusion", "map.txt")
    assert code == 2
    assert "unknown ending; use .png or .svg" in error
    translator = Path(attendo.__file__).parent / "shipped" / "walk"
    code, _, error = command("evaluate", translator, "--data", "x.tsv", "--confusion", "map.png")
    assert code == 2
    assert "--confusion is for classifiers" in error


def test_a_run_keeps_its_pooling(runs):
    assert load_bundle(runs["classification"], CPU).model.pooling == "mean"


def test_pairs_and_words_are_inspected(runs, command, tmp_path):
    engine = load_engine(runs["pair-classification"], "cpu")
    found = engine.inspect("A dog.", "A cat.")
    tokens = engine.bundle.task.tokenizer
    assert tokens.decode(found.tokenized.inputs["text"].ids[0].tolist()) == "A dog. A cat."
    assert found.tokenized.source_tokens.count("</s>") == 2
    assert found.summary == engine.predict([("A dog.", "A cat.")])[0].to_text()
    page = tmp_path / "page.html"
    given = ("look", runs["token-classification"], "der alte hund", "--out", page)
    code, out, _ = command(*given)
    assert code == 0
    (expected,) = load_classifier(runs["token-classification"], "cpu").predict(["der alte hund"])
    assert out == f"{expected.to_text()}\n"
