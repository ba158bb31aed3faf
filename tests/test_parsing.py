"""Parsers: rules of brackets, probabilities of trees, batches, commands and fine-tuning."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch

import attendo
from attendo.bundle import load_bundle, read_tensors
from attendo.config import DataConfig, DecodingConfig, ParsingConfig
from attendo.data.batches import Layout, Position, once, stream
from attendo.data.builtin import sentences
from attendo.data.builtin.trees import tree_of
from attendo.data.corpus import Corpus, MemorySide, ragged
from attendo.data.treebanks import ParsedSentence
from attendo.decoding import Request, search
from attendo.decoding.brackets import BracketRules
from attendo.engines import Parser, load_engine
from attendo.look import answers
from attendo.look.record import look
from attendo.models.spans import Nodes, ScoredSpans, best_nodes, tree_losses
from attendo.tasks import TASKS, SpanParsing
from attendo.tasks.parsing import BracketVocabulary
from attendo.text import train_tokenizer
from attendo.text.trees import parse_tree
from conftest import small_config, without_checks
from small_runs import CPU, SETTINGS, overflowing
from test_trees import all_trees, random_trees

TREES = sorted(
    (tree_of(one) for one in islice(sentences(seed=5), 40)), key=lambda one: len(one.words())
)
RECORDS = [ParsedSentence.of(tree) for tree in TREES]
TEXTS = [record.text for record in RECORDS]
GREEDY = DecodingConfig(strategy="greedy")

SMALL = {
    **SETTINGS,
    "model.p_drop": 0.0,
    "training.learning_rate": 3e-3,
    "training.schedule": "constant",
    "training.label_smoothing": 0.0,
}
KINDS = ("parsing", "parsing-spans")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parsers")
    with without_checks():
        for kind in KINDS:
            attendo.train(kind, out=folder / kind, device="cpu", settings=SMALL)
    return {kind: folder / kind for kind in KINDS}


def make_task(kind: str, *, reads_words: bool = True):
    labels = sorted({label for tree in TREES for label in TASKS[kind].labels_of(tree)})
    tags = sorted({tag for tree in TREES for tag in tree.tags()})
    tokenizer = train_tokenizer("bpe", TEXTS, 350)
    parsing = ParsingConfig(reads_words=reads_words)
    return TASKS[kind](tokenizer, labels, tags, DataConfig(max_length=128), parsing)


def make_model(task):
    torch.manual_seed(1)
    return task.build(small_config(positions="rotary", tied="output")).eval()


# Brackets


def test_brackets_are_decoded_to_the_tree_that_was_encoded():
    trees = random_trees(6, 80)
    labels = sorted({node.label for tree in trees for node in tree.nodes()})
    tags = sorted({tag for tree in trees for tag in tree.tags()})
    vocabulary = BracketVocabulary(labels, tags)
    for tree in trees:
        numbers = {label: number for number, label in enumerate(labels)}
        ids = vocabulary.encode(tree, numbers, [tags.index(tag) for tag in tree.tags()])
        bare = vocabulary.decode(ids)
        assert bare.spans() == tree.spans()
        assert bare.tags() == tree.tags()
        check_allowed(vocabulary, ids, len(tree.words()))


def rules_of(vocabulary: BracketVocabulary, n_words: list[int], limits: list[int]) -> BracketRules:
    return BracketRules(
        eos=vocabulary.specials.eos,
        first_word=vocabulary.first_word,
        first_opening=vocabulary.first_opening,
        first_closing=vocabulary.first_closing,
        n_words=torch.tensor(n_words),
        limits=torch.tensor(limits),
    )


def check_allowed(vocabulary: BracketVocabulary, ids: list[int], n_words: int) -> None:
    """Every token of a tree may follow those before it."""
    rules = rules_of(vocabulary, [n_words], [len(ids)])
    for place, wanted in enumerate([*ids, vocabulary.specials.eos]):
        tokens = torch.tensor([ids[:place]], dtype=torch.long)
        assert rules(tokens, torch.tensor([0]), vocabulary.size)[0, wanted]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_whatever_a_model_prefers_search_finds_a_tree_over_all_words(strategy):
    vocabulary = BracketVocabulary(["NP", "S", "VP"], ["XX", "YY"])
    n_words = [1, 2, 5, 9]
    limits = [2 * n + 5 for n in n_words]
    generator = torch.Generator().manual_seed(3)
    liking = torch.randn(60, vocabulary.size, generator=generator) * 3
    liking[:, vocabulary.first_opening : vocabulary.first_closing] += 2  # it would open for ever

    def step(tokens, state):
        (place,) = state
        return liking[place] + 0.1 * tokens[:, None], (place + 1,)

    request = Request(
        step=step,
        state=(torch.zeros(4, dtype=torch.long),),
        max_lengths=limits,
        numbers=range(4),
        specials=vocabulary.specials,
        device=CPU,
        allow=rules_of(vocabulary, n_words, limits),
    )
    options = DecodingConfig(strategy=strategy, beam=3, max_loops=0)
    for n, (best, *_) in zip(n_words, search(request, options), strict=True):
        assert best.finished
        tree = vocabulary.decode(best.ids)
        assert len(tree.words()) == n
        assert all(node.children for node in tree.nodes())


@pytest.mark.parametrize("reads_words", [True, False])
def test_steps_of_the_decoder_are_those_of_the_whole_target(reads_words):
    task = make_task("parsing", reads_words=reads_words)
    model = make_model(task)
    ((_, example),) = task.encode(RECORDS[:1], DataConfig(), Counter())
    columns = {name: ragged([ids]) for name, ids in zip(task.columns, example, strict=True)}
    batch = alone(task, columns)
    (row,) = task.tokenize([TEXTS[0].split()])
    with torch.inference_mode():
        whole = model.logits(task.hidden(model, batch.inputs))[0]
        request = task._request(model, [row], [0], CPU)
        state, token = request.state, task.target.specials.bos
        for wanted, label in zip(whole, batch.labels[0].tolist(), strict=True):
            logits, state = request.step(torch.tensor([token]), state)
            torch.testing.assert_close(logits[0], wanted, atol=1e-4, rtol=1e-4)
            token = label


def alone(task, columns):
    corpus = Corpus({name: MemorySide(column) for name, column in columns.items()}, 1)
    (batch,) = once(corpus, task.layout(DataConfig(), 4096))
    return batch


# Spans


def test_the_probabilities_of_all_trees_of_a_sentence_sum_to_one():
    n_words, n_labels = 3, 2
    spans = [(i, j) for i in range(n_words) for j in range(i + 1, n_words + 1)]
    places = torch.zeros(1, n_words + 1, n_words + 1, dtype=torch.long)
    for number, (i, j) in enumerate(spans):
        places[0, i, j] = number
    scored = ScoredSpans(torch.randn(len(spans), n_labels), places, torch.tensor([n_words]))
    found = {}
    for tree in all_trees(0, n_words):
        for labels in torch.cartesian_prod(*[torch.arange(n_labels)] * len(tree)):
            starts, ends = torch.tensor(tree).T
            nodes = Nodes(torch.zeros_like(starts), starts, ends, labels)
            key = tuple(sorted(zip(starts.tolist(), ends.tolist(), labels.tolist(), strict=True)))
            found[key] = float((-tree_losses(scored, nodes)[0]).exp())
    assert sum(found.values()) == pytest.approx(1, abs=1e-5)
    _, *best = best_nodes(scored)
    key = tuple(sorted(zip(*(column.tolist() for column in best), strict=True)))
    assert key == max(found, key=found.get)


def test_packed_sentences_have_the_losses_of_each_alone():
    task = make_task("parsing-spans")
    model = make_model(task)
    examples = [example for _, example in task.encode(RECORDS[:21:3], DataConfig(), Counter())]
    columns = [
        MemorySide(ragged([example[place] for example in examples]))
        for place in range(len(task.columns))
    ]
    corpus = Corpus(dict(zip(task.columns, columns, strict=True)), len(examples))
    layout = Layout(128, 1024, "packed", task.shape, task.pads)
    _, packed = next(stream(corpus, layout, 0, Position()))
    assert packed.inputs["text"].segments.max() > 1
    together = task.loss(model, packed, 0.0)
    single = [
        task.loss(model, batch, 0.0)
        for batch in once(corpus, Layout(128, 1, "padded", task.shape, task.pads))
    ]
    assert len(single) == 7
    torch.testing.assert_close(together.total, sum(one.total for one in single))
    assert int(together.n_labels) == sum(len(tree.words()) for tree in TREES[:21:3])
    together.total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_parsed_alike_in_any_company(kind, unchecked):
    task = make_task(kind)
    model = make_model(task)
    words = [text.split() for text in TEXTS[:8:2]]
    done = []
    together = task.parse_words(model, [*words, []], GREEDY, CPU, done=done.append)
    assert sum(done) == 5
    assert together[-1].to_text() == ""
    for one, some in zip(together, words, strict=False):
        (apart,) = task.parse_words(model, [some], GREEDY, CPU)
        assert one.tree == apart.tree
        assert one.probability == pytest.approx(apart.probability, abs=1e-4)
        assert one.tree.words() == some


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_that_is_longer_than_a_row_keeps_all_words(kind, unchecked):
    task = make_task(kind)
    task.max_length = 12
    words = " ".join(TEXTS[:3]).split()
    (found,) = task.parse_words(make_model(task), [words], GREEDY, CPU)
    assert found.tree.label == "TOP"
    assert found.tree.words() == words


@pytest.mark.parametrize("kind", KINDS)
def test_records_survive_their_ids(kind):
    task = make_task(kind)
    for record, example in task.encode(RECORDS, DataConfig(max_length=256), Counter()):
        decoded = task.decode(example)
        assert decoded.text == record.text
        assert parse_tree(decoded.tree) == parse_tree(record.tree)


# Commands


@pytest.mark.parametrize("kind", KINDS)
def test_trees_are_printed_drawn_and_scored(kind, runs, command, tmp_path):
    run = runs[kind]
    code, out, _ = command("predict", run, "The cat sat.", "--out", tmp_path / "tree.svg")
    assert code == 0
    assert parse_tree(out).words() == ["The", "cat", "sat", "."]
    assert "<svg" in (tmp_path / "tree.svg").read_text()
    _, out, _ = command("predict", run, "The cat (a dog) sat.", "--json")
    found = json.loads(out)
    assert found["words"] == ["The", "cat", "-LRB-", "a", "dog", "-RRB-", "sat", "."]
    assert found["brackets"].startswith(f"({found['tree']['label']} ")
    assert found["constituents"][0] == {"label": found["tree"]["label"], "start": 0, "end": 8}
    (tmp_path / "test.mrg").write_text("\n".join(map(str, TREES[:8])))
    code, out, _ = command("evaluate", run, "--trees", tmp_path / "test.mrg", "--json")
    scores = json.loads(out)
    assert scores["well_formed"] == 100.0
    assert scores["sentences"] == 8
    assert scores["f1_interval"][0] <= scores["f1"] <= scores["f1_interval"][1]
    code, _, error = command("predict", run, "x", "--out", tmp_path / "tree.pdf")
    assert (code, "unknown ending" in error) == (2, True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_parser_attends_to_is_shown_with_its_tree(kind, runs, command, tmp_path):
    code, out, _ = command("look", runs[kind], TEXTS[0], "--out", tmp_path / "page.html")
    assert code == 0
    assert parse_tree(out).words() == TEXTS[0].split()
    engine = load_engine(runs[kind], "cpu")
    assert isinstance(engine, Parser)
    recorded = look(engine, TEXTS[1])
    shown = answers.recording_json(engine, recorded)
    assert parse_tree(shown["target"]).words() == TEXTS[1].split()
    assert len(shown["maps"]["encoder"]) == 1
    changes = answers.ablation_json(engine, recorded)["changes"]
    assert changes["encoder"]
    if kind == "parsing":
        nodes = answers.beams_json(engine, TEXTS[1], 2)["nodes"]
        assert nodes[1]["token"].startswith("(")
        assert answers.checks_json(engine, recorded, None, None)["agreement"]
        tree = TREES[1]
        assert look(engine, TEXTS[1], str(tree)).target == str(tree)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_overflow_are_refused(kind, runs, command, tmp_path):
    run = overflowing(runs[kind], tmp_path / "run")
    code, out, error = command("predict", run, "A dog sleeps .")
    assert (code, out) == (2, "")
    assert "output is not finite" in error


def test_a_resumed_parser_is_the_same_as_one_that_was_never_stopped(runs, tmp_path):
    kind = "parsing-spans"
    first = {**SMALL, "training.steps": 5}
    with without_checks():
        attendo.train(kind, out=tmp_path / "run", device="cpu", settings=first)
        attendo.train(kind, out=tmp_path / "run", device="cpu", settings=SMALL, resume=True)
    bundle = load_bundle(tmp_path / "run", CPU)
    assert type(bundle.task) is SpanParsing
    ours, theirs = (
        read_tensors(folder / "model.safetensors") for folder in (tmp_path / "run", runs[kind])
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_an_encoder_is_fine_tuned_as_a_parser_with_its_own_tokenizer(tmp_path):
    settings = {**SMALL, "model.norm_order": "post", "training.steps": 2}
    settings = {key: value for key, value in settings.items() if key != "training.label_smoothing"}
    with without_checks():
        attendo.train(
            "masked-language-model", out=tmp_path / "bert", device="cpu", settings=settings
        )
        data = {key: value for key, value in settings.items() if key.startswith(("data.", "train"))}
        attendo.train(
            "parsing-spans",
            out=tmp_path / "run",
            device="cpu",
            settings={**data, "start": str(tmp_path / "bert"), "finetuning.frozen": True},
        )
    before, after = (
        read_tensors(tmp_path / name / "model.safetensors") for name in ("bert", "run")
    )
    body = [name for name in after if name.startswith("body.")]
    assert body
    assert all(torch.equal(before[name], after[name]) for name in body)
    tokenizers = [(tmp_path / name / "tokenizer.json").read_text() for name in ("bert", "run")]
    assert tokenizers[0] == tokenizers[1]


def test_an_lstm_parses_through_the_same_recipe(tmp_path):
    own = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
    with without_checks():
        attendo.train(
            "parsing-lstm",
            out=tmp_path / "run",
            device="cpu",
            settings={**own, "model.d_model": 16, "training.steps": 2},
        )
    assert load_bundle(tmp_path / "run", CPU).recipe.model.kind == "recurrent"
    engine = load_engine(tmp_path / "run", "cpu")
    (found,) = engine.predict(["The cat sat."])
    assert found.tree.words() == ["The", "cat", "sat", "."]
