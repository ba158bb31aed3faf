"""Looking inside a language model and a classifier: the page, the image, ablation, refusals."""

import json
import math
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode
from zlib import decompress

import numpy as np
import pytest
import torch
from selenium.webdriver.support.wait import WebDriverWait

import attendo
from attendo.cli import main
from attendo.config import DecodingConfig
from attendo.data.readers import Document
from attendo.engines import Engine, Generator, TextClassifier, load_engine
from attendo.errors import ConfigError, DataError
from attendo.look import answers, checks
from attendo.look.heads import Head, ablate, all_heads, records_of
from attendo.look.record import candidates, look, without
from attendo.look.write import show
from attendo.models.maps import shown_tokens
from attendo.specials import IGNORE
from attendo.tasks import Classification, LanguageModel, Task
from servers import DRIVER, browsing, emulate, send, serving
from test_browser import Page, axe

TEXT = "The old dog sees a $ zebra."

SETTINGS = {
    "data.builtin": 200,
    "data.hold_out": 20,
    "tokenizer.vocabulary": 350,
    "model.d_model": 24,
    "model.d_ff": 48,
    "model.n_heads": 3,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "training.steps": 12,
    "training.warmup_steps": 3,
    "training.batch_tokens": 256,
    "training.validate_every": 12,
}

KINDS = {"language-model": "decoder", "classification": "encoder"}
"""The only kind of attention that a model of each task has."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    for task in KINDS:
        attendo.train(task, out=folder / task, device="cpu", settings=SETTINGS)
    return {task: folder / task for task in KINDS}


@pytest.fixture(scope="module", params=KINDS)
def engine(request, runs) -> Engine:
    return load_engine(runs[request.param], "cpu")


@pytest.fixture
def kind(engine) -> str:
    return KINDS[engine.bundle.task.name]


@pytest.fixture
def command(monkeypatch) -> Callable[..., int]:
    """Run a command in this process; returns its exit code."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, arguments)])
        try:
            main()
        except SystemExit as exit_:
            return int(exit_.code or 0)
        return 0

    return run


def test_a_run_is_loaded_for_its_task(runs):
    assert isinstance(load_engine(runs["language-model"], "cpu"), Generator)
    assert isinstance(load_engine(runs["classification"], "cpu"), TextClassifier)


def test_only_the_attention_of_the_model_is_recorded(engine, kind):
    recorded = look(engine, TEXT)
    assert recorded.kind == kind
    assert {name: len(layers) for name, layers in recorded.weights.items() if layers} == {kind: 2}
    tokens = engine.bundle.task.tokenizer.tokens(engine.bundle.task.tokenizer.encode(TEXT))
    if kind == "decoder":
        assert recorded.target_inputs == ["<s>", *tokens]
        assert recorded.tokenized.target_tokens == [*tokens, "</s>"]
        assert recorded.tokenized.source_tokens == []
    else:
        assert recorded.tokenized.source_tokens == ["<s>", *tokens, "</s>"]
        assert recorded.tokenized.target_tokens == recorded.target_inputs == []


def test_weights_follow_from_queries_and_keys_and_sum_to_one(engine, kind):
    recorded = look(engine, TEXT)
    n_tokens = len(recorded.tokenized.source_tokens or recorded.target_inputs)
    for record, weights in zip(
        records_of(recorded.recording)[kind], recorded.weights[kind], strict=True
    ):
        queries, keys = record.queries[0].double(), record.keys[0].double()
        scores = queries @ keys.transpose(1, 2) / math.sqrt(queries.shape[-1])
        if kind == "decoder":
            later = torch.ones(n_tokens, n_tokens).triu(1).bool()
            scores = scores.masked_fill(later, -math.inf)
        torch.testing.assert_close(weights.double(), scores.softmax(-1), atol=1e-5, rtol=1e-4)
        assert weights.shape == (3, n_tokens, n_tokens)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, n_tokens))


def test_a_language_model_reports_its_perplexity_and_the_next_tokens(runs):
    engine = load_engine(runs["language-model"], "cpu")
    recorded = look(engine, TEXT)
    task, model = engine.bundle.task, engine.bundle.model
    scores = task.evaluate(model, [Document(TEXT)], DecodingConfig(), engine.device)
    first, second = recorded.summary.splitlines()
    found = re.fullmatch(r"perplexity: ([\d.]+) \((\d+) tokens with </s>\)", first)
    assert float(found[1]) == pytest.approx(scores.perplexity, rel=1e-4)
    assert int(found[2]) == scores.tokens
    state, logits = model.start(1), None
    with torch.inference_mode():
        for token in [task.specials.bos, *task.tokenizer.encode(TEXT)]:
            logits, state = model.step(torch.tensor([token]), state)
    best = logits[0].softmax(-1).topk(5)
    tokens = shown_tokens(["<s>", *task.tokenizer.tokens(best.indices.tolist())])[1:]
    for token, listed in zip(tokens, second.removeprefix("next token: ").split(", "), strict=True):
        assert listed.startswith(f"{token} 0.")
    assert [f"{one:.4f}" for one in best.values] == re.findall(r" (0\.\d{4})(?:,|$)", second)


def test_a_classifier_reports_what_it_predicts(runs):
    engine = load_engine(runs["classification"], "cpu")
    recorded = look(engine, TEXT)
    (expected,) = engine.predict([TEXT])
    assert recorded.summary == f"{expected.label}\t{expected.probability:.4f}"
    assert recorded.target == expected.label
    (labels,) = candidates(recorded, 5)
    probabilities = {one.token: pytest.approx(one.probability, abs=1e-5) for one in labels}
    assert expected.probabilities == probabilities


def test_ablation_changes_the_prediction_and_leaves_the_model_alone(engine, kind):
    plain = look(engine, TEXT)
    heads = all_heads(engine.bundle.model)
    assert {head.kind for head in heads} == {kind}
    assert len(heads) == 6
    ablated = look(engine, TEXT, ablated=[Head(kind, 1, 0)])
    assert not torch.allclose(ablated.log_probs, plain.log_probs, atol=1e-5)
    # The first layer comes before the ablated head.
    assert torch.equal(ablated.weights[kind][0], plain.weights[kind][0])
    assert torch.equal(look(engine, TEXT).log_probs, plain.log_probs)
    assert type(without(engine, heads)) is type(engine)


def test_the_loss_without_each_head_is_that_of_the_labels(engine, kind):
    recorded = look(engine, TEXT)
    task, model = engine.bundle.task, engine.bundle.model
    loss, changes = checks.ablation(task, model, recorded.tokenized)
    labels = recorded.labels.tolist()
    said = recorded.log_probs[range(len(labels)), labels]
    assert loss == pytest.approx(-float(said.mean()), abs=1e-5)
    assert np.shape(changes[kind]) == (2, 3)
    with torch.inference_mode():
        found = task.loss(ablate(model, [Head(kind, 1, 2)]), recorded.tokenized.batch, 0.0)
    assert changes[kind][1][2] == pytest.approx(float(found.total) / len(labels) - loss, abs=1e-6)
    assert (recorded.tokenized.labels != IGNORE).sum() == len(labels)


def embedded(path: Path) -> dict:
    page = path.read_text("utf-8")
    data = re.search(r'<script type="application/json" id="recording">(.*?)</script>', page, re.S)
    return json.loads(data[1])


@pytest.mark.parametrize("task", KINDS)
def test_a_page_has_what_the_model_has(runs, task, command, tmp_path, capsys):
    path, engine, kind = tmp_path / "page.html", load_engine(runs[task], "cpu"), KINDS[task]
    assert command("look", runs[task], TEXT, "--out", path, "--ablate", f"{kind}.1.2") == 0
    recorded = look(engine, TEXT, ablated=[Head(kind, 0, 1)])
    assert capsys.readouterr().out == f"{recorded.summary}\n"
    shown = embedded(path)
    assert shown["ablated"] == [f"{kind}.0.1"]
    assert shown["source_tokens"] == recorded.tokenized.source_tokens
    assert shown["target_tokens"] == recorded.tokenized.target_tokens
    assert shown["source"] == ("" if kind == "decoder" else TEXT)
    assert shown["target"] == recorded.target
    assert {name for name, layers in shown["maps"].items() if layers} == {kind}
    for packed, expected in zip(shown["maps"][kind], recorded.weights[kind], strict=True):
        weights = np.frombuffer(decompress(b64decode(packed["data"])), "<u2") / 65535
        np.testing.assert_allclose(weights.reshape(packed["shape"]), expected, atol=1e-4)
    assert list(shown["rollout"]) == [kind]
    assert {"ablation", "checks", "beams"} & set(shown) == {"ablation"}
    assert "zebra" in shown["unknown"]
    facts = shown["facts"]
    layers = facts["encoder_layers"], facts["decoder_layers"]
    assert layers == ((0, 2) if kind == "decoder" else (2, 0))
    assert facts["languages"] == ""
    assert re.fullmatch(r"perplexity \d+\.\d|accuracy \d+\.\d %", facts["score"])
    assert "generated texts with" in facts["about"]
    assert "translat" not in facts["about"]
    names = [step["token"] for step in shown["steps"]]
    assert names == (recorded.tokenized.target_tokens or [recorded.target])
    for step in shown["steps"]:
        assert 0 < sum(one["probability"] for one in step["candidates"]) <= 1 + 1e-5


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_an_image_shows_the_tokens(runs, task, command, suffix, tmp_path, monkeypatch):
    from matplotlib import rcParams

    monkeypatch.setitem(rcParams, "svg.fonttype", "none")  # text as text
    path = tmp_path / f"map.{suffix}"
    assert command("look", runs[task], TEXT, "--out", path, "--layer", 2, "--head", 3) == 0
    if suffix == "png":
        assert path.read_bytes().startswith(b"\x89PNG")
        return
    drawn = path.read_text("utf-8")
    assert f"{KINDS[task].capitalize()} self-attention, layer 2, head 3" in drawn
    recorded = look(load_engine(runs[task], "cpu"), TEXT)
    for token in shown_tokens(recorded.tokenized.source_tokens or recorded.target_inputs):
        assert drawn.count(f">{escape(token)}</text>") >= 2, token
    names = re.findall(r">([^<]+)</text>", drawn)
    assert {"queries", "keys"} <= set(names)
    assert not any("source" in name or "target" in name for name in names)


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver")
def test_pages_work_in_a_browser_on_a_desk_and_on_a_phone(runs, tmp_path):
    with browsing() as driver:
        for task, kind in KINDS.items():
            engine = load_engine(runs[task], "cpu")
            recorded = look(engine, TEXT)
            show(engine, recorded, tmp_path / f"{task}.html")
            tokens = recorded.tokenized.source_tokens or recorded.target_inputs
            for width in (1440, 390):
                screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
                driver.get(f"file://{tmp_path / task}.html#open=ablation,norms")
                wait = WebDriverWait(driver, 20)
                wait.until(lambda driver: len(driver.find_elements("css selector", ".cell")) == 9)
                wait.until(lambda driver: driver.find_elements("css selector", ".ablation td"))
                sides = driver.find_elements("css selector", ".side-q .token")
                assert len(sides) == len(tokens)
                main_text = driver.find_element("css selector", "main").text
                assert TEXT in main_text
                assert f"{kind.capitalize()} · layer 2" in main_text
                assert "ranslation" not in main_text
                assert ("Next-token candidates" in main_text) == (kind == "decoder")
                assert (f"Predicted label\n{recorded.target}" in main_text) == (kind == "encoder")
                overflow = "return document.documentElement.scrollWidth - innerWidth"
                assert driver.execute_script(overflow) <= 0
        assert driver.get_log("browser") == []


WRONG = [
    (["--target", "Der Hund schläft."], "leave out --target"),
    (["--out", "map.png", "--what", "cross"], "the model has no encoder-decoder attention"),
    (
        ["--out", "map.png", "--what", "croos"],
        "--what = 'croos' is not known; did you mean 'cross'?",
    ),
    (["--out", "map.png", "--layer", "3"], "there is no layer 3; the model has 2"),
    (["--out", "map.png", "--head", "4"], "there is no head 4; the model has 3"),
    (["--ablate", "cross.1.1"], "there is no head 'cross.1.1'; this model has"),
    (["--out", "map.gif"], "an animation is of a translation"),
    (["--out", "map.pdf"], "unknown ending"),
]


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_refused_in_one_line(
    runs, task, command, options, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert command("look", runs[task], TEXT, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_texts_that_cannot_be_inspected_are_refused(engine):
    with pytest.raises(DataError, match="the text is empty"):
        look(engine, " \n")
    with pytest.raises(DataError, match=r"can be inspected with up to \d+: take a part of it"):
        look(engine, "dog " * engine.bundle.task.max_length)


def test_of_a_document_as_many_sentences_are_read_as_can_be_inspected(engine):
    task, sentence = engine.bundle.task, "The old dog sleeps."
    document = f"\n{sentence} " * 100
    read = task.beginning(document)
    assert document.strip().startswith(read)
    assert read.endswith(sentence)
    look(engine, read)
    with pytest.raises(DataError, match="take a part of it"):
        look(engine, f"{read} \n{sentence}")
    assert task.beginning(f" {sentence}\n") == sentence
    assert task.beginning("\n") == ""
    endless = "dog " * 1000
    assert task.beginning(endless) == endless.strip(), "what it cannot read is refused later"


def test_as_many_tokens_as_in_training_can_be_inspected(engine):
    task = engine.bundle.task
    room = task.max_length - (2 if isinstance(task, Classification) else 1)
    text = next(
        text
        for n_words in range(1, task.max_length)
        if len(task.tokenizer.encode(text := "a " * n_words)) == room
    )
    recorded = look(engine, text)
    assert len(recorded.tokenized.source_tokens or recorded.target_inputs) == task.max_length


def test_a_task_without_inspection_says_so(runs):
    class Other(LanguageModel):
        name = "other"
        inspect = Task.inspect

    engine = load_engine(runs["language-model"], "cpu")
    engine.bundle.task.__class__ = Other
    with pytest.raises(ConfigError, match="the task 'other' cannot be inspected"):
        look(engine, TEXT)


@pytest.fixture(scope="module")
def address(runs) -> Iterator[str]:
    shipped = files("attendo") / "shipped"
    with serving(*runs.values(), shipped / "walk-bert", shipped / "walk-gpt") as found:
        yield found


def test_all_tasks_are_served(address, runs):
    _, found, _ = send(address, "/api/models")
    assert {one["name"]: one["task"] for one in found["models"]} == {
        **{task: task for task in runs},
        "walk-bert": "masked-language-model",
        "walk-gpt": "language-model",
    }
    assert all(one["examples"] for one in found["models"])
    for task, run in runs.items():
        engine = load_engine(run, "cpu")
        ablated = [str(all_heads(engine.bundle.model)[0])]
        about = {"model": task, "source": TEXT, "ablated": ablated}
        status, answer, _ = send(address, "/api/look", about)
        expected = answers.recording_json(
            engine, look(engine, TEXT, None, [Head(KINDS[task], 0, 0)])
        )
        assert status == 200
        assert answer == {"model": task, **json.loads(json.dumps(expected))}
        assert send(address, "/api/layer", {**about, "kind": KINDS[task], "layer": 1})[0] == 200
        assert send(address, "/api/ablation", about)[1]["loss"] > 0


def test_a_text_is_continued_as_in_python(address, runs):
    generator = load_engine(runs["language-model"], "cpu")
    about = {"model": "language-model", "source": "The old dog", "tokens": 7}
    greedy = send(address, "/api/generate", about)[1]["continuation"]
    assert greedy == generator.generate("The old dog", tokens=7, strategy="greedy")
    sampled = send(address, "/api/generate", {**about, "seed": 5, "temperature": 2})[1]
    expected = generator.generate("The old dog", tokens=7, seed=5, temperature=2.0)
    assert sampled["continuation"] == expected != greedy


def test_hidden_words_are_predicted(address):
    about = {"model": "walk-bert", "source": "The <mask> sees a zebra, and the old <mask> sleeps."}
    _, found, _ = send(address, "/api/look", about)
    tokens = found["source_tokens"]
    assert [tokens[step["position"]] for step in found["steps"]] == ["<mask>", "<mask>"]
    assert all(step["token"] == step["candidates"][0]["token"] for step in found["steps"])
    assert found["mask"] == "<mask>"
    assert found["unknown"] == ["zebra"], "a hidden word is not unknown"


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver")
@pytest.mark.parametrize("width", [1440, 390])
def test_served_pages_predict_what_the_task_asks_for(address, width):
    with browsing() as driver:
        emulate(driver, width, 900, "light")
        page = Page(driver)

        def result_of(model: str, source: str) -> str:
            page.open(f"{address}/#{urlencode({'model': model, 'source': source})}")
            page.wait(lambda: page.all(".result-text") and page.text(".result-text"))
            page.wait(lambda: page.all(".enlarged .side-q .token"))
            return page.text(".result-text")

        written = send(address, "/api/generate", {"model": "walk-gpt", "source": "The old"})[1]
        assert result_of("walk-gpt", "The old") == "The old" + written["continuation"]
        nearest = page.one(".result-actions .example")
        first = nearest.text.split()[0]
        nearest.click()
        page.wait(lambda: page.text(".result-text").startswith(f"The old {first}"))
        assert page.one("textarea").get_attribute("value") == f"The old {first}"
        assert axe(page) == []

        assert "sleeps" in result_of("walk-bert", "The old dog sleeps.")
        next(one for one in page.all(".word") if one.text == "dog").click()
        page.wait(lambda: page.one("textarea").get_attribute("value") == "The old <mask> sleeps.")
        page.wait(lambda: page.text(".step-title").startswith("Hidden token"))
        assert page.text(".candidates .candidate") == page.text(".predicted")
        next(one for one in page.all(".word") if one.text == "dog").click()
        page.wait(lambda: "no word is hidden" in page.text(".facts"))
        page.all(".cell")[0].click()
        page.wait(lambda: page.all(".enlarged .actions button")[0].is_displayed())
        page.all(".enlarged .actions button")[0].click()
        page.wait(lambda: "1 head ablated" in page.text(".facts"))
        assert axe(page) == []

        label = send(address, "/api/look", {"model": "classification", "source": TEXT})[1]["target"]
        assert result_of("classification", TEXT) == label
        assert page.text(".next h3") == "Labels"
        titles = [one.text for one in page.all(".panel h3") if one.is_displayed()]
        assert titles == ["Which heads matter?", "Queries, keys, values", "Hidden states"]
        overflow = "return document.documentElement.scrollWidth - innerWidth"
        assert driver.execute_script(overflow) <= 0
        assert driver.get_log("browser") == []


@pytest.mark.parametrize(
    ("path", "model", "given", "message"),
    [
        ("translate", "language-model", {}, "the task 'language-model'; choose one for the task"),
        ("beams", "classification", {}, "choose one for the task 'translation'"),
        ("generate", "classification", {}, "choose one for the task 'language-model'"),
        ("checks", "classification", {}, "in translations only"),
        ("look", "language-model", {"target": "Hund"}, "which has only one text"),
        ("generate", "language-model", {"tokens": 100_000}, "tokens: input should be less"),
    ],
)
def test_what_a_task_lacks_is_refused_in_one_line(address, path, model, given, message):
    status, found, _ = send(address, f"/api/{path}", {"model": model, "source": TEXT, **given})
    assert status in (400, 422)
    assert message in found["error"]
    assert "\n" not in found["error"]
    assert "bin/attendo" not in found["error"]


def test_notebooks_show_the_attention_of_the_model(engine, kind):
    recorded = look(engine, TEXT)
    page = recorded._repr_html_()
    assert f"{kind.capitalize()} self-attention, last layer" in page
    for token in shown_tokens(recorded.tokenized.source_tokens or recorded.target_inputs):
        assert page.count(f">{escape(token)}</text>") >= 2


def test_json_has_no_values_that_json_lacks(engine):
    shown = answers.recording_json(engine, look(engine, TEXT))
    json.dumps(shown, allow_nan=False)
