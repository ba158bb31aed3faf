"""Engines and exports: CTranslate2 and ONNX compute what PyTorch computes, or are not used."""

import json
import math
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import ctranslate2
import numpy as np
import onnxruntime
import pytest
import tokenizers
import torch
from typer.testing import CliRunner

import attendo
from attendo.bundle import (
    Bundle,
    parameters_of,
    read_score_card,
    read_tensors,
    save_parameters,
    save_task,
    write_tensors,
)
from attendo.cli import app
from attendo.config import DataConfig, DecodingConfig, load_recipe
from attendo.conversions import FOLDER, MOST_LOST, RECORD, find_conversion
from attendo.converted import Converted
from attendo.data.corpus import write_texts
from attendo.data.readers import Pair
from attendo.data.texts import open_texts
from attendo.engines import CTranslate2Translator, Translator, load_translator
from attendo.engines.files import Evaluation, evaluate_files
from attendo.errors import BundleError, ConfigError
from attendo.files import write_json
from attendo.hypotheses import find_loop
from attendo.interop import export_ctranslate2
from attendo.interop.ctranslate2 import reason_against, write_model
from attendo.interop.onnx import make_graphs
from attendo.interop.onnx_export import describe_export
from attendo.lab.bench.sentences import numbered_tokenizer
from attendo.models.stored import read_parameters
from attendo.reporter import Reporter
from attendo.serve.library import Library
from attendo.tasks import LanguageModel, Translation
from attendo.text import train_tokenizer
from attendo.training.run import train_run
from conftest import without_checks
from small_runs import small_run

pytestmark = pytest.mark.usefixtures("unchecked")

SHIPPED = files("attendo") / "shipped" / "walk"


class Messages(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    data = DataConfig(builtin=2000, hold_out=100)
    return open_texts(data, Pair, lambda one: Pair(one.source, one.target)).valid


@pytest.fixture(scope="module")
def run(tmp_path_factory, pairs) -> Path:
    """Copy a small model that has been trained well, with validation pairs."""
    folder = tmp_path_factory.mktemp("runs") / "walk"
    shutil.copytree(str(SHIPPED), folder)
    (folder / "state" / "data").mkdir(parents=True)
    write_texts(folder / "state" / "data" / "valid.jsonl", pairs)
    with without_checks():
        load_translator(folder, engine="ctranslate2")  # so that it is converted
    return folder


@pytest.fixture(scope="module")
def torch_translator(run) -> Translator:
    return attendo.load(run, device="cpu")


def copy(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
    return folder


def change_parameters(run: Path, change) -> None:
    path = run / "model.safetensors"
    tensors = read_tensors(path)
    write_tensors(path, {name: change(name, tensor) for name, tensor in tensors.items()})


# -- the conversion

KINDS = {
    "the paper's": {},
    "pre-norm": {"norm_order": "pre", "norm_epsilon": 1e-3},
    "rms norm, gated": {"norm": "rms", "feed_forward": "gated", "norm_order": "pre"},
    "learned positions, fewer than needed": {"positions": "learned", "max_positions": 4},
    "rotary": {"positions": "rotary", "feed_forward": "gelu"},
    "no positions": {"positions": "none", "feed_forward": "swish"},
    "Marian's": {"positions": "sinusoidal-halves", "output_bias": True, "feed_forward": "swish"},
    "nothing shared": {"tied": "none", "scale_embedding": False},
    "embedding norm": {"tied": "output", "embedding_norm": True, "feed_forward": "gelu-tanh"},
    "round vocabulary": {"vocabulary_multiple": 16},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_conversion_gives_every_output_the_same_probability(changes, tmp_path):
    sizes = {"d_model": 20, "d_ff": 28, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 1}
    settings = {f"model.{key}": value for key, value in {**sizes, **changes}.items()}
    recipe = load_recipe("tiny", settings)
    first = numbered_tokenizer(41)
    second = numbered_tokenizer(37) if changes.get("tied") == "none" else first
    task = Translation(first, second, 16)
    model = task.build(recipe.model).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # biases and norms that do something
            if parameter.ndim == 1 or "table" in name:
                parameter.add_(torch.randn_like(parameter) / 3)
    write_model(Bundle(recipe, task, model), tmp_path, "float32")
    if changes.get("positions") != "learned":  # which a conversion has a table of
        read = read_parameters(model, tmp_path / "model.bin")
        assert read.keys() == parameters_of(model).keys()
        assert all(read[name].equal(one) for name, one in parameters_of(model).items())

    chance = np.random.default_rng(1)
    texts = [
        [" ".join(map(str, chance.integers(3, 37, length))) for length in (1, 5, 11, 14)]
        for _ in range(2)
    ]
    tokens = [[text.split() for text in side] for side in texts]
    scored = ctranslate2.Translator(str(tmp_path)).score_batch(*tokens)
    own = task.score(model, *texts, torch.device("cpu"))
    assert [math.fsum(one.log_probs) for one in scored] == pytest.approx(own, rel=1e-5)


def test_what_ctranslate2_lacks_is_named():
    for changes in ({"positions": "alibi"}, {"query_key_norm": True}, {"attention": "window"}):
        model = load_recipe("tiny", {f"model.{k}": v for k, v in changes.items()}).model
        assert next(iter(changes)) in reason_against(model)
    assert reason_against(load_recipe("demo-gru", {}).model) == "model.kind = 'recurrent'"


# -- translating

SEARCHES = {
    "greedy": ({"strategy": "greedy"}, 1),
    "beam": ({"beam": 4}, 1),
    "n best, long outputs preferred": ({"beam": 3, "alpha": 1.5}, 3),
    "n best, no penalty": ({"beam": 5, "alpha": 0.0}, 2),
}


@pytest.mark.parametrize(("options", "n_best"), SEARCHES.values(), ids=SEARCHES)
def test_translations_and_scores_are_those_of_pytorch(
    options, n_best, run, torch_translator, pairs
):
    texts = [f"{one.source}  {other.source}" for one, other in pairwise(pairs[:12])]
    texts += ["", *(pair.source for pair in pairs[12:40])]
    other = load_translator(run, engine="ctranslate2", precision="float32")
    for ours, theirs in zip(
        torch_translator.translations(texts, n_best=n_best, **options),
        other.translations(texts, n_best=n_best, batch_size=7, **options),
        strict=True,
    ):
        assert [one.text for one in theirs] == [one.text for one in ours]
        assert [one.score for one in theirs] == pytest.approx(
            [one.score for one in ours], rel=1e-3, abs=1e-4
        )
        assert [one[2:] for one in map(_values, theirs)] == [one[2:] for one in map(_values, ours)]


def _values(one):
    return one.text, one.score, one.finished, one.n_segments


def test_forced_prefixes_are_scored_too(run, torch_translator, pairs):
    texts = [pair.source for pair in pairs[:6]]
    prefixes = ["Ein alter", "", "Gestern", "Wir", "", "Das ist"]
    other = load_translator(run, engine="ctranslate2", precision="float32")
    for beam in (1, 4):
        ours = torch_translator.translations(texts, prefixes=prefixes, beam=beam)
        theirs = other.translations(texts, prefixes=prefixes, beam=beam)
        assert [one[0].text for one in theirs] == [one[0].text for one in ours]
        assert [one[0].score for one in theirs] == pytest.approx(
            [one[0].score for one in ours], rel=1e-4, abs=1e-4
        )


def test_greedy_outputs_are_cut_at_the_same_places(run, torch_translator):
    other = load_translator(run, engine="ctranslate2", precision="float32")
    texts = ["dog " * 9, "xylophone qwerty uiop", "of of of the the"]
    for options in ({"max_extra": 1}, {"max_loops": 2}, {"max_loops": 0, "max_extra": 30}):
        chosen = {"strategy": "greedy", **options}
        ours = torch_translator.translations(texts, **chosen)
        theirs = other.translations(texts, **chosen)
        assert [_values(one[0])[::2] for one in theirs] == [_values(one[0])[::2] for one in ours]
        assert [one[0].score for one in theirs] == pytest.approx(
            [one[0].score for one in ours], rel=1e-4
        )


@pytest.mark.parametrize(
    ("tokens", "end"),
    [
        ([1, 2, 3], None),
        ([9, 1, 1, 1, 4], 4),
        ([1, 2, 1, 2, 1, 2, 5], 6),
        ([1, 1, 2, 1, 1, 2], None),
    ],
)
def test_the_first_loop_of_three_is_found(tokens, end):
    assert find_loop(tokens, 0, 3) == end
    assert find_loop([7, 7, *tokens], 2, 3) == (None if end is None else end + 2)


def test_tokens_that_no_text_has_are_never_chosen(run, torch_translator, tmp_path):
    """A model that prefers <s> to everything else."""
    task, model = torch_translator.task, torch_translator.model
    changed = Translation(task.source, task.target, task.max_length).build(
        torch_translator.recipe.model.model_copy(update={"output_bias": True})
    )
    changed.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        changed.output.bias.zero_()
        changed.output.bias[task.target.specials.bos] = 100.0
    recipe = torch_translator.recipe.model_copy(
        update={"model": torch_translator.recipe.model.model_copy(update={"output_bias": True})}
    )
    bundle = Bundle(recipe, task, changed.eval())
    write_model(bundle, tmp_path, "float32")
    converted = Converted(tmp_path, (task.source, task.target), task.max_length, 200)
    greedy = DecodingConfig(strategy="greedy")
    found = list(converted.stream([("The dog sleeps.", "")], greedy))
    expected = Translator(bundle).translations(["The dog sleeps."], strategy="greedy")
    assert found[0][0].text == expected[0][0].text == "Der Hund schläft."


def test_what_a_search_of_ctranslate2_lacks_is_done_by_pytorch(run, torch_translator, pairs):
    messages = Messages()
    other = load_translator(run, engine="ctranslate2", reporter=messages)
    text = pairs[0].source
    for options in ({"strategy": "sample", "seed": 3}, {"no_repeat_ngram": 1}, {"max_extra": 9000}):
        if "max_extra" not in options:
            assert other.translate(text, **options) == torch_translator.translate(text, **options)
        assert other.converted.lacks(other._decoding(options))
    other.translate(text, strategy="sample")
    assert len(messages.lines) == 2  # each once
    assert all("using PyTorch" in line for line in messages.lines)
    long = "dog " * 150  # longer than the positions that were converted
    assert other.translations([text], prefixes=[long[:400]])[0][0].text.startswith("dog dog")
    with pytest.raises(ConfigError, match="shorten it"):
        other.translations([text], prefixes=[2 * long])
    with pytest.raises(ConfigError, match="can find"):
        other.translations(text, n_best=5, beam=4)


# -- conversions are made once, checked, and made again when they must be


def test_int8_is_used_because_it_has_been_measured(run):
    found = find_conversion(run)
    assert (found.sentences, found.compared) == (100, 32)
    assert found.bleu["float32"] > 95
    assert found.lost <= MOST_LOST
    assert load_translator(run).precision == "int8"
    assert load_translator(run, precision="float32").precision == "float32"


def test_bfloat16_is_for_pytorch(run, torch_translator):
    texts = ["The old dog sleeps.", "The brothers sell the house."]
    other = load_translator(run, precision="bfloat16", device="cpu")
    assert (type(other), other.precision) == (Translator, "bfloat16")
    assert next(other.model.parameters()).dtype == torch.bfloat16
    assert other.translate(texts) == torch_translator.translate(texts)


def test_what_was_measured_is_in_the_score_card(run):
    record, card = find_conversion(run), read_score_card(run)
    assert card["conversion"] == {
        "precision": "int8",
        "sentences": 100,
        "bleu": record.bleu,
        "difference": round(record.bleu["int8"] - record.bleu["float32"], 4),
    }
    assert card["bleu"] == read_score_card(Path(str(SHIPPED)))["bleu"], "the rest is kept"
    assert attendo.load_score_card(run)["conversion"]["precision"] == "int8"


def test_a_run_without_validation_pairs_says_so_in_its_score_card(run, tmp_path):
    folder = copy(run, tmp_path / "run")
    for name in (FOLDER, "state"):
        shutil.rmtree(folder / name)
    load_translator(folder)
    expected = {"precision": "float32", "sentences": 0, "bleu": {}, "difference": None}
    assert read_score_card(folder)["conversion"] == expected


def test_evaluating_completes_the_score_card_of_an_older_version(run, pairs, tmp_path):
    folder = copy(run, tmp_path / "run")
    card = read_score_card(folder)
    expected = card.pop("conversion")
    write_json(folder / "scorecard.json", card)
    assert "conversion" not in read_score_card(folder)
    words = evaluation(folder, pairs, tmp_path)
    for options in ([], ["--json"]):
        done = CliRunner().invoke(app, [*words, *options])
        assert done.exit_code == 0, done.exception
        assert "BLEU" in done.stdout or json.loads(done.stdout)["conversion"] == expected
    assert read_score_card(folder)["conversion"] == expected


def test_a_score_card_is_about_the_present_parameters(tmp_path):
    assert "conversion" not in small_run(tmp_path)
    load_translator(tmp_path, engine="ctranslate2")
    conversion = read_score_card(tmp_path)["conversion"]
    assert conversion["sentences"] == 7
    (tmp_path / "scorecard.json").unlink()
    card = small_run(tmp_path, resume=True)
    # The parameters are the same; the header of their file may have another order.
    assert card.get("conversion") == (conversion if find_conversion(tmp_path) else None)
    assert "conversion" not in small_run(tmp_path, {"training.steps": 15}, resume=True)


def test_a_damaged_score_card_does_not_prevent_translating(run, tmp_path):
    folder = copy(run, tmp_path / "run")
    shutil.rmtree(folder / FOLDER)
    (folder / "scorecard.json").write_text("{")
    messages = Messages()
    assert load_translator(folder, reporter=messages).precision == "int8"
    (line,) = (line for line in messages.lines if "score card" in line)
    assert "remove it to write a new one" in line
    for conversion in ({"precision": "int8"}, {"bleu": {"int8": "high"}}, 3):
        write_json(folder / "scorecard.json", {"conversion": conversion})
        with pytest.raises(BundleError, match="cannot be read: conversion"):
            read_score_card(folder)


def evaluation(run: Path, pairs: list[Pair], folder: Path) -> list[str]:
    """Return the words of a command that scores a run on some pairs."""
    paths = [folder / "test.en", folder / "test.de"]
    for path, side in zip(paths, zip(*pairs[:30], strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return ["evaluate", str(run), "--source", str(paths[0]), "--target", str(paths[1])]


def test_translating_does_not_import_torch(run):
    program = (
        "import sys; from attendo.cli import main\n"
        f"sys.argv = ['attendo', 'translate', {str(run)!r}, 'The old dog sleeps.']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'jaxtyping') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["Der alte Hund schläft.", "[]"], done.stderr


def test_other_parameters_are_converted_again(run, tmp_path):
    folder = copy(run, tmp_path / "run")
    record = (folder / FOLDER / RECORD).read_text()
    os.utime(folder / "model.safetensors")
    assert find_conversion(folder)  # the same content, whatever the time
    change_parameters(folder, lambda name, tensor: tensor * 1.001)
    assert find_conversion(folder) is None
    load_translator(folder)
    assert find_conversion(folder)
    assert (folder / FOLDER / RECORD).read_text() != record
    (folder / FOLDER / RECORD).write_text("{")
    assert find_conversion(folder) is None


@pytest.fixture
def small(run, tmp_path) -> Path:
    """A run whose parameters exist in int8 only."""
    folder = copy(run, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    shutil.rmtree(folder / "state")
    shutil.rmtree(folder / FOLDER / "float32")
    return folder


def test_a_conversion_is_enough(small):
    assert load_translator(small).translate("The old dog sleeps.") == "Der alte Hund schläft."
    with pytest.raises(ConfigError, match="use --precision int8"):
        load_translator(small, precision="float32")


def test_pytorch_reads_the_parameters_of_a_conversion(small, run):
    assert attendo.load(small, "cpu").translate("The old dog sleeps.") == "Der alte Hund schläft."
    read, full = (parameters_of(attendo.load(one, "cpu").model) for one in (small, run))
    assert read.keys() == full.keys()
    for name, tensor in full.items():
        # In int8 a row has 255 steps; what is no matrix is not rounded.
        step = tensor.abs().amax(dim=-1, keepdim=True) / 127 if tensor.ndim == 2 else 1e-6
        assert ((read[name] - tensor).abs() <= 0.51 * step + 1e-7).all(), name


def test_a_conversion_is_not_trained_over(small):
    before = {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="already holds a run"):
        attendo.train("tiny", out=small, settings={"data.builtin": 60}, device="cpu")
    messages = Messages()
    train_run("auto", {}, small, torch.device("cpu"), resume=True, reporter=messages)
    assert "without its state/ it cannot be trained further" in messages.lines[-1]
    assert {path: path.read_bytes() for path in small.rglob("*") if path.is_file()} == before


def test_a_conversion_is_evaluated_as_it_is(small, pairs, tmp_path):
    done = CliRunner().invoke(app, [*evaluation(small, pairs, tmp_path), "--json"])
    assert json.loads(done.stdout)["precision"] == "int8"


def test_a_conversion_with_another_tokenizer_is_refused(small):
    path = small / FOLDER / "int8" / "shared_vocabulary.json"
    tokens = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps([*tokens[1:], tokens[0]]), encoding="utf-8")
    with pytest.raises(BundleError, match="converted with another tokenizer"):
        attendo.load(small, "cpu")
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(BundleError, match="converted with another tokenizer"):
        attendo.load(small, "cpu")
    path.unlink()
    with pytest.raises(BundleError, match="cannot be read"):
        attendo.load(small, "cpu")


def test_training_continues_from_a_conversion(small, tmp_path):
    settings = {"training.steps": 2, "data.builtin": 60, "training.batch_tokens": 256}
    attendo.train(out=tmp_path / "more", from_run=small, settings=settings, device="cpu")
    assert (tmp_path / "more" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-9], "is damaged: it ends too early"),
        (lambda content: b"\x09" + content[1:], "version 9 of the format"),
        (lambda content: content[:40] + b"\xff" * 400, "is damaged"),
        (lambda content: content.replace(b"/ffn/", b"/fun/"), "'encoder/layer_0/ffn/linear_0/weig"),
    ],
)
def test_a_damaged_conversion_is_refused(small, change, message):
    path = small / FOLDER / "int8" / "model.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BundleError, match=message):
        attendo.load(small, "cpu")


def spoil(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Make rows of a matrix so uneven that their small values vanish in int8, and undo it after.

    Multiplying a hidden coordinate of a ReLU network and dividing what reads it changes nothing.
    """
    factor = torch.ones(tensor.shape[0] if "inner" in name else tensor.shape[-1])
    factor[::2] = 1e4
    if "feed_forward.inner" in name:
        return tensor * (factor[:, None] if tensor.ndim == 2 else factor)
    if "feed_forward.outer.weight" in name:
        return tensor / factor
    return tensor


@pytest.fixture(scope="module")
def fragile(run, tmp_path_factory) -> Path:
    """The same function with other parameters, which int8 ruins."""
    folder = copy(run, tmp_path_factory.mktemp("fragile") / "run")
    shutil.rmtree(folder / FOLDER)
    change_parameters(folder, spoil)
    return folder


def test_int8_is_not_used_where_it_loses_too_much(fragile, tmp_path):
    folder, messages = copy(fragile, tmp_path / "run"), Messages()
    translator = load_translator(folder, reporter=messages)
    assert translator.precision == "float32"
    assert "int8 is not used" in messages.lines[-1]
    assert translator.conversion.bleu["float32"] > 95
    assert translator.conversion.lost > 1
    card = read_score_card(folder)["conversion"]
    assert (card["precision"], card["bleu"]) == ("float32", translator.conversion.bleu)
    assert card["difference"] < -1
    with pytest.raises(ConfigError, match=r"costs .* BLEU"):
        load_translator(folder, precision="int8")


def test_an_int8_export_that_loses_too_much_is_refused(fragile, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(BundleError, match=r"less than float32 .* accept more with --max-loss"):
        export_ctranslate2(fragile, out, "int8")
    assert not list(tmp_path.iterdir())
    export_ctranslate2(fragile, out, "int8", most_lost=100.0)
    assert (out / "model.bin").is_file()


def test_a_conversion_that_translates_otherwise_is_not_used(run, tmp_path, monkeypatch):
    folder = copy(run, tmp_path / "run")
    shutil.rmtree(folder / FOLDER)
    from attendo.interop import converting

    def write_other(bundle, place, precision):
        changed = torch.nn.Module.state_dict(bundle.model)
        before = changed["target_embedding.weight"].clone()
        changed["target_embedding.weight"].copy_(before.flip(0))
        write_model(bundle, place, precision)
        changed["target_embedding.weight"].copy_(before)

    monkeypatch.setattr(converting, "write_model", write_other)
    messages = Messages()
    assert isinstance(load_translator(folder, reporter=messages), Translator)
    assert "using PyTorch" in messages.lines[-1]
    assert not (folder / FOLDER).exists()
    with pytest.raises(ConfigError, match="use --engine torch"):
        load_translator(folder, engine="ctranslate2")


def test_a_model_that_cannot_be_converted_runs_on_pytorch(tmp_path):
    recipe = load_recipe("tiny", {"model.positions": "alibi", "tokenizer.vocabulary": 300})
    task = Translation(tokenizer := numbered_tokenizer(300), tokenizer, 16)
    save_task(tmp_path, recipe, task)
    save_parameters(tmp_path, task.build(recipe.model), task)
    messages = Messages()
    assert isinstance(load_translator(tmp_path, reporter=messages), Translator)
    assert messages.lines == ["CTranslate2 has no model.positions = 'alibi': using PyTorch"]
    with pytest.raises(ConfigError, match="use --engine torch"):
        load_translator(tmp_path, engine="ctranslate2")


# -- the command line and the server


def test_both_engines_have_the_same_scores(run, pairs, tmp_path):
    scores = []
    for engine in ("torch", "auto"):
        words = [*evaluation(copy(run, tmp_path / engine), pairs, tmp_path), "--json"]
        done = CliRunner().invoke(app, [*words, "--engine", engine])
        scores.append(json.loads(done.stdout))
    assert scores[0]["bleu"] == scores[1]["bleu"] > 90
    done = CliRunner().invoke(app, [*words, "--precision", "int8"])
    assert json.loads(done.stdout)["precision"] == "int8"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "ctranslat2"], "did you mean 'ctranslate2'?"),
        (["--precision", "int4"], "did you mean 'int8'?"),
        (["--engine", "torch", "--precision", "int8"], "needs --engine ctranslate2"),
        (["--engine", "ctranslate2", "--precision", "bfloat16"], "is for --engine torch"),
        (["--engine", "ctranslate2", "--device", "cuda"], "is for the CPU"),
    ],
)
def test_wrong_options_are_explained(run, words, message):
    done = CliRunner().invoke(app, ["translate", str(run), "Hello.", *words])
    assert message in str(done.exception)


def test_the_server_translates_with_ctranslate2_and_ablates_with_pytorch(run):
    library = Library([str(run)], "cpu", engine="auto")
    assert isinstance(library.translator("", []), CTranslate2Translator)
    assert isinstance(library.translator("walk", ["cross.0.1"]), Translator)
    assert isinstance(Library([str(run)], "cpu").translator("", []), Translator)


# -- exports, by what others have


def test_an_export_works_with_ctranslate2_alone(run, torch_translator, pairs, tmp_path):
    out = tmp_path / "out"
    exported = export_ctranslate2(run, out, "int8")
    assert exported.n_pairs == 100
    backend = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    texts = [pair.source for pair in pairs[:20]]
    encoded = [backend.encode(text, add_special_tokens=False).tokens for text in texts]
    found = ctranslate2.Translator(str(out)).translate_batch(encoded, beam_size=1)
    decoded = [
        backend.decode([backend.token_to_id(token) for token in one.hypotheses[0]]) for one in found
    ]
    expected = torch_translator.translate(texts, strategy="greedy")
    assert sum(one == other for one, other in zip(decoded, expected, strict=True)) >= 18
    with pytest.raises(ConfigError, match="exists already"):
        export_ctranslate2(run, out)


def test_an_export_without_pairs_to_measure_it_on_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="give some with --source and --target"):
        export_ctranslate2(Path(str(SHIPPED)), tmp_path / "out", "int8")


def test_an_export_works_with_onnxruntime_alone(run, torch_translator, pairs, tmp_path):
    """The command runs in a process of its own: shape checks cannot be traced."""
    out = tmp_path / "out"
    words = ["export", str(run), "--to", "onnx", "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "attendo", *words], capture_output=True, text=True)
    assert "the same choices" in done.stdout, done.stderr
    assert not done.stderr
    special = json.loads((out / "config.json").read_text())["target_special_tokens"]
    encoder, decoder = (
        onnxruntime.InferenceSession(str(out / f"{name}.onnx")) for name in ("encoder", "decoder")
    )
    backend = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    for pair in pairs[:3]:
        ids = backend.encode(pair.source, add_special_tokens=False).ids
        expected = torch_translator.translate(pair.source, strategy="greedy")
        assert backend.decode(generate(encoder, decoder, ids, special)) == expected


@pytest.mark.parametrize("layout", ["stream", "packed"])
def test_an_exported_language_model_names_the_token_that_begins_a_text(layout):
    recipe = load_recipe("language-model", {"data.layout": layout})
    task = LanguageModel(train_tokenizer("bpe", ["The dog sleeps."], 300), recipe.data)
    described = describe_export(Bundle(recipe, task, None))
    assert described["target_special_tokens"] == task.specials._asdict()
    is_end = task.specials.bos == task.specials.eos
    assert is_end == (layout == "stream")


@pytest.mark.parametrize("recipe", ["parsing", "parsing-spans", "mnist", "spoken-digits"])
def test_tasks_that_cannot_be_exported_to_onnx_are_named(recipe):
    with pytest.raises(ConfigError, match="cannot be exported to onnx; expected one of: trans"):
        make_graphs(Bundle(load_recipe(recipe), None, None))


def generate(encoder, decoder, ids: list[int], special: dict[str, int]) -> list[int]:
    source = np.array([[*ids, special["eos"]]])
    given = {"source": source, "source_mask": np.ones_like(source)}
    names = [one.name for one in encoder.get_outputs()]
    memory = dict(zip(names, encoder.run(names, given), strict=True))
    past = {
        one.name: np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32)
        for one in decoder.get_inputs()
        if one.name.startswith("past")
    }
    tokens = [special["bos"]]
    while tokens[-1] != special["eos"] and len(tokens) < 60:
        given = {"token": np.array(tokens[-1:]), **past, **memory}
        given["source_mask"] = np.ones_like(source)
        logits, *present = decoder.run(None, given)
        past = dict(zip(past, present, strict=True))
        tokens.append(int(logits[0].argmax()))
    return tokens[1:-1]


def test_pairs_in_one_file_are_evaluated_with_the_requested_engine(run, tmp_path):
    folder = copy(run, tmp_path / "run")
    path = tmp_path / "pairs.tsv"
    path.write_text("The old dog sleeps.\tDer alte Hund schläft.\nno tab\n", encoding="utf-8")
    messages, scored = Messages(), {}
    for precision in ("int8", "bfloat16", None):
        how = Evaluation({"beam": 1}, "cpu", precision=precision)
        scored[precision] = evaluate_files(folder, [str(path)], how, messages)
    assert scored["int8"]["precision"] == "int8"
    evaluations = json.loads((folder / "scorecard.json").read_text("utf-8"))["evaluations"]
    assert [one.get("precision") for one in evaluations] == ["int8", "bfloat16", None]
    assert all(one["bleu"] > 99 for one in evaluations)
    assert any(f"left out 1 of 2 lines of {path}" in line for line in messages.lines)


def test_what_pytorch_translates_is_not_int8(run):
    translator = load_translator(run, engine="ctranslate2", precision="int8")
    assert translator.precision_of(beam=2) == "int8"
    assert translator.precision_of(no_repeat_ngram=3) == "float32"


def test_engines_are_for_translations_only():
    how = Evaluation(precision="int8")
    with pytest.raises(ConfigError, match="--engine and --precision are for translations"):
        evaluate_files(SHIPPED.parent / "walk-gpt", ["text.txt"], how, Reporter())
