"""Looking inside: what is shown is what happened, and the checks measure what they say."""

import json
import re
import shutil
import subprocess
from base64 import b64decode
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from zlib import decompress

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence
from scipy.stats import spearmanr
from torch import Tensor

import attendo
from attendo.config import DataConfig
from attendo.data.builtin import sentences
from attendo.engines import Translator
from attendo.errors import BundleError, ConfigError, DataError
from attendo.look import answers, checks
from attendo.look.ablation import silence
from attendo.look.about import card_of, languages, model_json
from attendo.look.aggregates import flow, rollout, rollout_across, with_residual
from attendo.look.beams import beam_tree
from attendo.look.heads import Head, all_heads, characterise, parse_head
from attendo.look.heatmap import draw_heatmap
from attendo.look.page import WEB, bundle_modules, whole_page
from attendo.look.paper import transformer_of
from attendo.look.record import candidates, look, without
from attendo.look.write import show
from attendo.models.maps import shown_tokens, weight_colours
from attendo.nn.attention import Attention, ScaledDotProduct
from attendo.reference import paper
from small_runs import small_rival, small_run

TEXT = next(iter(sentences(seed=5, held_out=True))).source
TEXTS = [pair.source for pair in islice(sentences(seed=8, held_out=True), 12)]

HOSTILE = [
    "<script>alert(1)</script>",
    "\u202e\u2067 right to left \u200f",
    "👩‍👩‍👧‍👦 zero\u200dwidth\u200bjoiners",
    "</script><img src=x onerror=alert(1)> ${x} {{x}} $style",
    "\x00\x1b[31m\ufffd\u2028",
]


@pytest.fixture(scope="module")
def translator(trained) -> Translator:
    return attendo.load(trained, "cpu")


@pytest.fixture(scope="module")
def papers(tmp_path_factory) -> Translator:
    """A small model as the paper has it: post-norm, sinusoids."""
    folder = tmp_path_factory.mktemp("papers") / "run"
    settings = {"model.encoder_layers": 2, "model.decoder_layers": 2, "model.norm_order": "post"}
    small_run(folder, settings)
    return attendo.load(folder, "cpu")


def unpacked(packed: dict) -> np.ndarray:
    """Read weights as the page does."""
    data = b64decode(packed["data"])
    numbers = np.frombuffer(decompress(data) if packed.get("deflated") else data, "<u2")
    return numbers.reshape(packed["shape"]) / 65535


# What is shown


def test_the_numbers_on_the_page_are_those_of_the_paper(papers):
    looked = look(papers, TEXT, "Der Hund schläft.")
    shown = answers.looked_json(papers, looked)
    weights, n_heads = transformer_of(papers.bundle.model), 2
    grids = looked.reading.source, looked.reading.target
    source, target = (grid.ids[0].numpy() for grid in grids)
    x = paper.embed(source, weights.source_embedding)
    x = x + paper.positional_encoding(*x.shape)
    for number, layer in enumerate(weights.encoder):
        _, expected = paper.multi_head_attention(x, x, x, layer.self_attention, n_heads)
        np.testing.assert_allclose(unpacked(shown["maps"]["encoder"][number]), expected, atol=1e-4)
        x = paper.encoder_layer(x, layer, n_heads)
        norms = np.linalg.norm(x, axis=-1)
        np.testing.assert_allclose(shown["norms"]["encoder"][number + 1], norms, atol=1e-4)
    memory = x
    x = paper.embed(target, weights.target_embedding)
    x = x + paper.positional_encoding(*x.shape)
    for number, layer in enumerate(weights.decoder):
        mask = paper.look_ahead_mask(len(x))
        attended, expected = paper.multi_head_attention(
            x, x, x, layer.self_attention, n_heads, mask
        )
        np.testing.assert_allclose(unpacked(shown["maps"]["decoder"][number]), expected, atol=1e-4)
        inside = paper.add_and_norm(x, attended, layer.self_attention_norm)
        _, expected = paper.multi_head_attention(
            inside, memory, memory, layer.encoder_decoder_attention, n_heads
        )
        np.testing.assert_allclose(unpacked(shown["maps"]["cross"][number]), expected, atol=1e-4)
        x = paper.decoder_layer(x, memory, layer, n_heads)
    probabilities = paper.softmax(paper.output_projection(x, weights.w_output))
    said = probabilities[range(len(target)), looked.reading.labels.numpy()]
    shown_said = [step["probability"] for step in shown["steps"]]
    np.testing.assert_allclose(shown_said, said, atol=1e-4)
    best = [step["candidates"][0]["probability"] for step in shown["steps"]]
    np.testing.assert_allclose(best, probabilities.max(axis=-1), atol=1e-4)


def test_looking_changes_no_translation(translator):
    plain = translator.translate(TEXTS)
    assert [look(translator, text).target for text in TEXTS] == plain
    assert translator.translate(TEXTS) == plain


def test_without_a_recording_no_weights_are_built(translator, monkeypatch):
    """Switched off it costs nothing: what builds the weights is not even called."""

    def refuse(*args: object) -> Tensor:
        raise AssertionError("weights were built")

    monkeypatch.setattr(Attention, "weights", refuse)
    monkeypatch.setattr(ScaledDotProduct, "scores", refuse)
    assert all(translator.translate(TEXTS))
    with pytest.raises(AssertionError, match="weights were built"):
        look(translator, TEXT)


def test_additive_attention_can_be_looked_at_too(tmp_path):
    small_run(tmp_path / "run", {"model.attention": "additive"})
    translator = attendo.load(tmp_path / "run", "cpu")
    looked = look(translator, TEXT)
    shown = answers.looked_json(translator, looked)
    np.testing.assert_allclose(unpacked(shown["maps"]["cross"][0]).sum(axis=-1), 1, atol=1e-3)
    assert answers.checks_json(translator, looked, None, None)["words"]
    assert answers.vectors_json(looked, Head("cross", 0, 1))["scores"][0][0] is not None


@pytest.fixture(scope="module")
def gru(tmp_path_factory) -> Translator:
    """A model without attention."""
    folder = small_rival(tmp_path_factory.mktemp("gru") / "run", "demo-gru")
    return attendo.load(folder, "cpu")


def test_a_model_without_attention_shows_what_it_has(gru, tmp_path):
    looked = look(gru, TEXT, "Der Hund schläft.")
    shown = json.loads(json.dumps(answers.everything_json(gru, looked, {}), allow_nan=False))
    assert shown["maps"] == {"encoder": [], "decoder": [], "cross": []}
    assert "no attention weights" in shown["missing"]
    assert shown["facts"]["architecture"] == "GRU without attention"
    assert shown["facts"]["n_heads"] == 0
    assert not shown["can_ablate"]
    assert len(shown["steps"]) == len(shown["target_tokens"])
    for side, tokens in (("encoder", "source_tokens"), ("decoder", "target_inputs")):
        assert np.shape(shown["states"][side]) == (len(shown[tokens]), 16)
        assert np.shape(shown["norms"][side]) == (2, len(shown[tokens]))
    assert shown["checks"]["attention"] is None
    size = len(shown["target_tokens"]), len(shown["source_tokens"])
    assert np.shape(shown["checks"]["occlusion"]) == np.shape(shown["checks"]["gradient"]) == size
    assert "ablation" not in shown
    show(gru, looked, tmp_path / "steps.gif")
    with pytest.raises(ConfigError, match=r"no encoder-decoder attention .* --out look\.html"):
        show(gru, looked, tmp_path / "map.png")
    with pytest.raises(ConfigError, match="this model has no heads that can be ablated"):
        parse_head("cross.0.0", gru.bundle.model)


def test_numbers_that_are_not_finite_are_refused(papers):
    """A page must never hold NaN: it is not JSON."""
    damaged = deepcopy(papers.bundle.model)
    damaged.output.weight = torch.nn.Parameter(damaged.output.weight * torch.inf)
    with pytest.raises(BundleError, match="not finite"):
        look(Translator(replace(papers.bundle, model=damaged)), TEXT, "Der Hund schläft.")
    with pytest.raises(ValueError, match="JSON"):
        whole_page({"loss": float("nan")})


def test_temperatures_are_exact_for_the_whole_vocabulary(translator):
    looked = look(translator, TEXT)
    shown = answers.looked_json(translator, looked)
    for number, temperature in enumerate(shown["temperatures"]):
        expected = (looked.recording.logits[0] / temperature).softmax(dim=-1)
        best = expected.topk(answers.N_CANDIDATES).values
        for step, probabilities in zip(shown["steps"], best, strict=True):
            logs = np.array([one["log_prob"] for one in step["candidates"]])
            found = np.exp(logs / temperature - step["normalizers"][number])
            np.testing.assert_allclose(found, probabilities, atol=1e-4)


def test_a_text_is_translated_by_sentences_that_add_up_to_it(translator):
    text = "  The old dog sleeps. Two qwertz birds sing.\n\nThe dog sees a cat.\n"
    told = answers.translation_json(translator, text, 1)
    assert "".join(one["source"] + one["gap"] for one in told["segments"]) == text
    sources = [one["source"] for one in told["segments"] if one["source"]]
    assert sources == [text[2:21], "Two qwertz birds sing.", "The dog sees a cat."]
    translations = [one["translation"] for one in told["segments"] if one["source"]]
    assert translations == translator.translate(sources, beam=1)
    assert told["translation"].count("\n") == 3
    assert told["unknown"] == ["qwertz"]


def test_what_a_model_is_comes_from_its_run(translator, trained):
    about = model_json(translator, card_of(trained))
    assert about["languages"] == "English → German"
    assert about["architecture"] == "Transformer"
    n_pairs = json.loads((trained / "scorecard.json").read_text())["training_pairs"]
    n_words = len((trained / "words.txt").read_text().split())
    assert f"{n_pairs:,} generated sentence pairs with {n_words:,} different" in about["about"]
    assert languages(DataConfig(source=("a/b.en.gz",), target=("a/b.de",))) == "en → de"
    for name in ("pairs.txt", "b.de"):
        assert languages(DataConfig(source=(name,), target=("b.de",))) == ""


def test_recordings_are_short_in_a_terminal_and_maps_in_a_notebook(translator, gru):
    recording, reading = translator.record("<b>The</b> dog sleeps.", "Der Hund")
    assert len(repr(recording)) < 400
    assert len(repr(reading)) < 400
    page = recording._repr_html_()
    assert page.count("<rect") == len(reading.source_tokens) * len(reading.target_tokens)
    assert ">Hund</text>" in page
    assert "<b>" not in page
    assert "▁" not in page
    assert len(page) < 20_000
    assert look(translator, TEXT)._repr_html_().startswith("<figure>")
    assert look(gru, TEXT)._repr_html_() is None


def test_rows_sum_to_one_and_masked_places_are_exactly_zero(translator):
    shown = answers.looked_json(translator, look(translator, TEXT))
    for kind, layers in shown["maps"].items():
        for layer in layers:
            weights = unpacked(layer)
            np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-3)
            if kind == "decoder":
                assert (np.triu(weights, 1) == 0).all()


def test_a_look_is_json_of_the_promised_form(translator):
    looked = look(translator, TEXT)
    shown = json.loads(json.dumps(answers.looked_json(translator, looked)))
    n_source, n_target = len(shown["source_tokens"]), len(shown["target_tokens"])
    assert shown["source"] == TEXT
    assert shown["target"] == translator.translate([TEXT])[0]
    assert shown["target_inputs"] == ["<s>", *shown["target_tokens"][:-1]]
    heads = shown["n_heads"]
    shapes = {
        "encoder": [heads, n_source, n_source],
        "decoder": [heads, n_target, n_target],
        "cross": [heads, n_target, n_source],
    }
    for kind, shape in shapes.items():
        assert [layer["shape"] for layer in shown["maps"][kind]] == [shape] * 2
        assert [len(layer) for layer in shown["heads"][kind]] == [heads] * 2
    assert [step["token"] for step in shown["steps"]] == shown["target_tokens"]
    for step in shown["steps"]:
        values = [one["probability"] for one in step["candidates"]]
        assert values == sorted(values, reverse=True)
        assert sum(values) <= 1 + 1e-4
    assert len(shown["norms"]["encoder"]) == len(shown["norms"]["decoder"]) == 3


def test_many_weights_are_left_for_later(translator, monkeypatch):
    monkeypatch.setattr(answers, "MOST_WEIGHTS", 10)
    looked = look(translator, TEXT)
    shown = answers.looked_json(translator, looked)
    assert shown["maps"]["cross"] == [None, None]
    later = unpacked(answers.layer_json(looked, "cross", 1)["map"])
    np.testing.assert_allclose(later, looked.weights["cross"][1], atol=1e-5)


def test_a_file_has_all_weights_and_if_there_are_many_coarser_ones(translator, monkeypatch):
    looked = look(translator, TEXT)
    for most, exactness in [(10**9, 1e-5), (10, 1 / 255)]:
        monkeypatch.setattr(answers, "MOST_EXACT", most)
        told = answers.everything_json(translator, looked, {})
        for kind, layers in looked.weights.items():
            for packed, weights in zip(told["maps"][kind], layers, strict=True):
                np.testing.assert_allclose(unpacked(packed), weights, atol=exactness)
    assert {"checks", "ablation", "beams"} <= told.keys()


def test_vectors_give_scores_and_scores_give_weights(papers):
    looked = look(papers, TEXT)
    for head in (Head("decoder", 1, 1), Head("cross", 0, 0)):
        shown = answers.vectors_json(looked, head)
        queries, keys = np.array(shown["queries"]), np.array(shown["keys"])
        scores = queries @ keys.T / np.sqrt(queries.shape[1])
        is_seen = np.array([[score is not None for score in row] for row in shown["scores"]])
        np.testing.assert_allclose(
            np.array(shown["scores"], dtype=float)[is_seen], scores[is_seen], atol=1e-3
        )
        weights = paper.masked_softmax(scores, is_seen)
        expected = looked.weights[head.kind][head.layer][head.head]
        np.testing.assert_allclose(weights, expected, atol=1e-3)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_looked_at_like_any_other(translator, text):
    looked = look(translator, text, text)
    page = whole_page(answers.looked_json(translator, looked))
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2
    assert json.loads(scripts[0])["source"] == text


def test_there_must_be_something_to_look_at_and_not_too_much(translator):
    with pytest.raises(DataError, match="empty"):
        look(translator, "  ")
    longest = translator.bundle.task.max_length - 1
    with pytest.raises(DataError, match=f"up to {longest}: take a part"):
        look(translator, "dog " * (longest + 1))
    with pytest.raises(DataError, match="shorter"):
        look(translator, "dog", "Hund " * 1000)
    with pytest.raises(DataError, match="not Unicode text"):
        look(translator, "\udcff")


def test_candidates_are_what_the_model_expects_next(translator):
    looked = look(translator, TEXT)
    greedy = look(translator, TEXT, translator.translate([TEXT], strategy="greedy")[0])
    found = candidates(greedy, 3)
    assert [best[0].token for best in found] == greedy.reading.target_tokens
    assert len(candidates(looked, 5)[0]) == 5


# Heads


def test_heads_are_found_by_name(translator):
    model = translator.bundle.model
    heads = all_heads(model)
    assert len(heads) == 3 * 2 * model.attentions()["cross"][0].n_heads
    assert [parse_head(str(head), model) for head in heads] == heads
    assert parse_head("cross.2.1", model, first=1) == Head("cross", 1, 0)
    for wrong in ("cross.9.0", "cross.0", "x.0.0", "", "cross.-1.0"):
        with pytest.raises(ConfigError, match=r"encoder\.0\.0 to encoder\.1\."):
            parse_head(wrong, model)


def shifted(size: int, by: int) -> Tensor:
    weights = torch.full((size, size), 0.1 / size)
    for query in range(size):
        weights[query, min(max(query + by, 0), size - 1)] += 0.9
    return weights


@pytest.mark.parametrize(
    ("by", "name"), [(-1, "previous token"), (0, "same token"), (1, "next token")]
)
def test_heads_are_named_after_what_they_do(by, name):
    character = characterise(shifted(9, by), "encoder")
    assert character.name == name
    assert character.share == pytest.approx(0.9, abs=0.03)
    assert character.distance == pytest.approx(abs(by), abs=0.5)


def test_heads_that_look_everywhere_have_no_name():
    character = characterise(torch.full((8, 8), 1 / 8), "encoder")
    assert character.name == ""
    assert character.entropy == pytest.approx(3.0)


def test_heads_that_align_look_at_different_words():
    backwards = torch.eye(8).flip(0)
    assert characterise(backwards, "cross").name == "alignment"
    at_one = torch.zeros(8, 8)
    at_one[:, 3] = 1
    assert characterise(at_one, "cross").name == ""
    resting = torch.zeros(8, 8)
    resting[:, -1] = 1
    assert characterise(resting, "cross").name == "end of source"


def test_ends_are_recognised():
    first, last = torch.zeros(6, 6), torch.zeros(6, 6)
    first[:, 0] = last[:, -1] = 1
    assert characterise(first, "decoder").name == "first token"
    assert characterise(last, "encoder").name == "last token"
    assert characterise(torch.ones(1, 1), "decoder").name == "", "it has no choice"
    for size in range(2, 9):
        alike = torch.ones(size, size).tril()
        assert characterise(alike / alike.sum(1, keepdim=True), "decoder").name == ""


# Silence


def test_a_silenced_head_says_nothing(translator):
    """Without the head, its layer's result is what the other heads make of it."""
    model = translator.bundle.model
    head = Head("cross", 1, 2)
    looked = look(translator, TEXT, "Der Hund schläft.")
    record = looked.recording.decoder.cross[1]
    attention = model.attentions()["cross"][1]
    heads = record.heads.clone()
    heads[:, 2] = 0
    expected = attention.output(heads.transpose(1, 2).flatten(2))
    quiet = silence(model, [head]).attentions()["cross"][1]
    actual = quiet.output(record.heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(actual, expected)


def test_silencing_leaves_the_model_as_it_was(translator):
    model = translator.bundle.model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    plain = translator.translate(TEXTS)
    quiet = silence(model, all_heads(model))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    shared = {id(weight) for weight in model.parameters()}
    others = [name for name, weight in quiet.named_parameters() if id(weight) not in shared]
    assert others
    assert all(name.endswith("attention.output.weight") for name in others)
    assert without(translator, all_heads(model)).translate(TEXTS) != plain
    assert translator.translate(TEXTS) == plain


def test_nothing_silenced_is_nothing_changed(translator):
    assert without(translator, ()) is translator
    model = translator.bundle.model
    reading = look(translator, TEXT).reading
    with torch.inference_mode():
        same = checks.label_log_probs(silence(model, []), reading.source, reading)
        assert torch.equal(same, checks.label_log_probs(model, reading.source, reading))


# Many weights in one matrix


def layers_of(n_layers: int, size: int) -> list[Tensor]:
    return [torch.randn(3, size, size).softmax(dim=-1) for _ in range(n_layers)]


def test_rollout_shares_out_one():
    layers = layers_of(4, 7)
    torch.testing.assert_close(rollout(layers).sum(dim=1), torch.ones(7))
    torch.testing.assert_close(rollout(layers[:1]), with_residual(layers[0]))
    nothing_else = [torch.eye(5)[None]] * 3
    torch.testing.assert_close(rollout(nothing_else), torch.eye(5))


def test_rollout_across_leaves_the_rest_to_the_target():
    cross = [torch.randn(3, 5, 7).softmax(dim=-1) for _ in range(3)]
    mixed = rollout_across(layers_of(3, 7), layers_of(3, 5), cross)
    # Each layer takes half from the source, and half of what was left stays with the target.
    torch.testing.assert_close(mixed.sum(dim=1), torch.full((5,), 1 - 0.5**3))


def test_flow_through_one_layer_is_its_weights_and_through_many_no_less_than_one_path():
    layers = layers_of(3, 6)
    torch.testing.assert_close(
        flow(layers[:1], 2), with_residual(layers[0])[2], atol=1e-5, rtol=1e-5
    )
    several = flow(layers, 2)
    product = rollout(layers)[2]
    assert (several >= product - 1e-5).all()
    assert (several <= 1 + 1e-5).all()


# Checks


def test_occlusion_is_reading_again_without_the_word(translator):
    model = translator.bundle.model
    reading = look(translator, TEXT).reading
    found = checks.occlusion(model, reading)
    assert found.shape == (len(reading.target_tokens), len(reading.source_tokens))
    with torch.inference_mode():
        whole = checks.label_log_probs(model, reading.source, reading)[0]
        hidden = reading.source.map(Tensor.clone)
        hidden.segments[0, 3] = 0
        hidden.ids[0, 3] = 0  # nobody sees it, so it does not matter what is there
        without_it = checks.label_log_probs(model, hidden, reading)[0]
    torch.testing.assert_close(found[:, 3], whole - without_it, atol=1e-4, rtol=1e-4)


def test_what_nobody_looks_at_does_not_matter(translator):
    model = translator.bundle.model
    deaf = silence(model, [head for head in all_heads(model) if head.kind == "cross"])
    reading = look(translator, TEXT).reading
    assert checks.occlusion(deaf, reading).abs().max() < 1e-4
    assert checks.gradient_times_input(deaf, reading).abs().max() < 1e-4


def test_the_gradient_is_the_change_that_is_seen(papers, monkeypatch):
    """Make what enters at one place a little larger, and see what the predictions do."""
    model = papers.bundle.model
    reading = look(papers, TEXT, "Der Hund schläft.").reading
    found = checks.gradient_times_input(model, reading)
    enter, place, little = model.encoder.enter.forward, 2, 1e-3

    def larger_by(share: float) -> Tensor:
        def forward(x: Tensor, positions: Tensor) -> Tensor:
            entered = enter(x, positions)
            factor = torch.ones(entered.shape[1], 1)
            factor[place] = 1 + share
            return entered * factor

        monkeypatch.setattr(model.encoder.enter, "forward", forward)
        with torch.inference_mode():
            return checks.label_log_probs(model, reading.source, reading)[0]

    slope = (larger_by(little) - larger_by(-little)) / (2 * little)
    torch.testing.assert_close(found[:, place], slope, atol=2e-3, rtol=2e-2)


def test_ablation_is_silencing_one_head_after_the_other(papers):
    model = papers.bundle.model
    reading = look(papers, TEXT).reading
    loss, changes = checks.ablation(papers.task, model, reading)
    assert loss == pytest.approx(
        -papers.score([TEXT], [look(papers, TEXT).target])[0] / len(reading.labels), abs=1e-4
    )
    assert {kind: np.shape(values) for kind, values in changes.items()} == {
        "encoder": (2, 2),
        "decoder": (2, 2),
        "cross": (2, 2),
    }
    with torch.inference_mode():
        said = checks.label_log_probs(
            silence(model, [Head("cross", 1, 0)]), reading.source, reading
        )
    assert changes["cross"][1][0] == pytest.approx(-float(said.mean()) - loss, abs=1e-6)


def test_agreement_is_the_mean_rank_correlation_of_rows():
    left, right = torch.rand(6, 9), torch.rand(6, 9)
    right[2] = right[2].round()  # ties
    expected = np.mean([spearmanr(a, b).statistic for a, b in zip(left, right, strict=True)])
    assert checks.agreement(left, right) == pytest.approx(expected)
    assert checks.agreement(left, left) == pytest.approx(1)
    assert checks.agreement(left, -left) == pytest.approx(-1)
    right[3] = 1.0  # no order at all: this row says nothing
    others = [row for row in range(6) if row != 3]
    assert checks.agreement(left, right) == pytest.approx(
        checks.agreement(left[others], right[others])
    )
    assert checks.agreement(left, torch.ones(6, 9)) is None


def test_the_words_follow_the_numbers():
    assert "agree well" in checks.in_words(0.9, 0.8)
    assert "hint" in checks.in_words(0.5, 0.5)
    assert "little" in checks.in_words(0.3, 0.2)
    assert "do not read" in checks.in_words(-0.3, None)
    assert "nothing to compare" in checks.in_words(None, None)


def test_checks_can_be_of_a_head_a_layer_or_everything(translator):
    looked = look(translator, TEXT)
    for layer, head in [(None, None), (1, None), (1, 2)]:
        shown = answers.checks_json(translator, looked, layer, head)
        assert np.shape(shown["attention"]) == np.shape(shown["gradient"])
        np.testing.assert_allclose(np.sum(shown["attention"], axis=1), 1, atol=1e-3)
        assert -1 <= shown["agreement"]["occlusion"] <= 1
    assert np.allclose(shown["attention"], looked.weights["cross"][1][2], atol=1e-4)


# The tree of a search


@pytest.mark.parametrize("n_beams", [1, 4])
def test_the_tree_holds_the_translation_and_its_score(translator, n_beams):
    best = translator.translations([TEXT], beam=n_beams)[0][0]
    nodes, path = beam_tree(translator, TEXT, n_beams)
    by_path = {node.path: node for node in nodes}
    task = translator.bundle.task
    assert task.target.decode(path[:-1]) == best.text
    assert by_path[path].state == "ended"
    assert by_path[path].score == pytest.approx(best.score, abs=1e-3)
    for node in nodes[1:]:
        assert by_path[node.path[:-1]].state == "kept"
        assert node.score <= by_path[node.path[:-1]].score + 1e-5
    for step in range(1, len(path)):
        kept = [node for node in nodes if len(node.path) == step and node.state == "kept"]
        assert 1 <= len(kept) <= n_beams


@pytest.mark.parametrize("n_beams", [1, 2, 4])
def test_the_tree_follows_a_search_that_is_overruled(papers, n_beams):
    """A model that has learned nothing says the same again and again, until it is stopped."""
    shown = answers.beams_json(papers, "very " * 14, n_beams)
    best = papers.translations(["very " * 14], strategy="beam", beam=n_beams)[0][0]
    assert shown["nodes"][shown["best"][-1]]["score"] == pytest.approx(best.score, abs=1e-3)


def test_the_tree_as_json_has_parents_before_children(translator):
    shown = answers.beams_json(translator, TEXT, 3)
    for number, node in enumerate(shown["nodes"]):
        assert node["id"] == number
        assert node["parent"] is None if number == 0 else node["parent"] < number
    tokens = [shown["nodes"][number]["token"] for number in shown["best"]]
    assert tokens[0] == "<s>"
    assert tokens[-1] == "</s>"


# Files


def test_the_page_is_one_file_that_needs_nothing_else(translator, tmp_path):
    show(translator, look(translator, TEXT), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"""(?:src|href)=["'](?!#|data:|/)""", page)
    assert "src=" not in page
    assert "default-src 'none'" in page
    assert TEXT in page


def test_modules_are_bundled_without_names_that_collide():
    script = bundle_modules("explorer/main.js")
    assert not re.search(r"^(?:import|export)\b", script, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names))
    for path in Path(str(WEB)).glob("*/*.js"):
        text = path.read_text(encoding="utf-8")
        assert "innerHTML" not in text
        assert "eval(" not in text


def test_a_translation_can_be_watched_word_by_word(translator, tmp_path):
    looked = look(translator, TEXT)
    show(translator, looked, tmp_path / "decoding.gif")
    with Image.open(tmp_path / "decoding.gif") as picture:
        assert picture.n_frames == len(looked.reading.target_tokens)
    assert (tmp_path / "decoding.gif").stat().st_size < 2_000_000


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_of_layers_and_heads(translator, tmp_path, suffix):
    looked = look(translator, TEXT)
    for kind in ("encoder", "decoder", "cross"):
        path = tmp_path / f"{kind}.{suffix}"
        show(translator, looked, path, kind, 1, 0)
        start = b"\x89PNG" if suffix == "png" else b"<?xml"
        assert path.read_bytes().startswith(start)


def test_pictures_name_their_axes_and_show_no_marks_of_words(translator, tmp_path):
    looked = look(translator, "The old dog bites the qwertz.")
    axes = {
        "cross": ("target", "source"),
        "encoder": ("source (queries)", "source (keys)"),
        "decoder": ("target (queries)", "target (keys)"),
    }
    for kind, names in axes.items():
        show(translator, looked, tmp_path / "a.svg", kind)
        texts = re.findall(r"<!-- (.*?) -->", (tmp_path / "a.svg").read_text())  # one for each text
        assert set(names) <= set(texts)
        assert not any(mark in text for text in texts for mark in "▁Ġ")
    source = shown_tokens(looked.reading.source_tokens)
    assert source[:3] == ["The", "old", "dog"]
    assert any(token.startswith("·") for token in source), "parts of a word can be told"


def test_pictures_have_the_colours_of_the_page(tmp_path):
    weights = torch.tensor([[0.0, 0.25], [0.5, 1.0]])
    draw_heatmap(weights, ["a", "b"], ["c", "d"], "title", tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        colours = {f"#{r:02x}{g:02x}{b:02x}" for _, (r, g, b, _) in picture.getcolors(1_000_000)}
    expected = [weight_colours()[round(255 * weight**0.5)] for weight in weights.flatten().tolist()]
    assert set(expected) <= colours


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_colours_are_those_of_the_page():
    script = (
        f"import {{ weightColour }} from '{Path(str(WEB)) / 'shared' / 'colours.js'}';"
        "console.log([...Array(256).keys()].map((at) => weightColour(at / 255, 'light')).join(';'))"
    )
    words = ["node", "--input-type=module", "--eval", script]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split(";")
    for ours, theirs in zip(weight_colours(), told, strict=True):
        rgb = [int(part) for part in re.findall(r"\d+", theirs)]
        own = [int(ours[at : at + 2], 16) for at in (1, 3, 5)]
        assert np.abs(np.subtract(own, rgb)).max() <= 1


def test_an_animation_has_a_caption(translator, tmp_path):
    show(translator, look(translator, TEXT), tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as picture:
        top = [
            np.asarray(frame.convert("L").crop((0, 0, 0.6 * picture.width, 35)))
            for frame in ImageSequence.Iterator(picture)
        ]
    assert (top[0] < 128).sum() > 200, "there is text"
    alike = [((frame < 128) == (top[0] < 128)).mean() for frame in top]
    assert min(alike) > 0.99, "in every frame"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (("cross", 7, None), "there is no layer 8; the model has 2"),
        (("cross", 0, -1), "there is no head 0"),
        (("crosss", None, None), "did you mean"),
    ],
)
def test_what_is_not_there_is_not_drawn(translator, tmp_path, choice, words):
    with pytest.raises(ConfigError, match=words):
        show(translator, look(translator, TEXT), tmp_path / "a.png", *choice)
    assert not list(tmp_path.iterdir())


def test_other_files_are_refused(translator, tmp_path):
    with pytest.raises(ConfigError, match=r"\.html, \.png, \.svg or \.gif"):
        show(translator, look(translator, TEXT), tmp_path / "a.pdf")
