"""Starting from a run of another task, and ways to fine-tune: frozen, layer by layer, LoRA."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attendo.bundle import load_bundle, parameters_of, put_tensors, read_score_card, read_tensors
from attendo.config import (
    FinetuningConfig,
    Recipe,
    TrainingConfig,
    given_settings,
    load_recipe,
    make_recipe,
)
from attendo.data.packing import pad_grid
from attendo.errors import AttendoError, BundleError, ConfigError
from attendo.models import CausalLM, Encoder, build_model
from attendo.models.classifier import Classifier
from attendo.nn.lora import LoraLinear, add_lora, merge_lora
from attendo.nn.stack import Stack
from attendo.reporter import Reporter
from attendo.tasks import Classification
from attendo.training.adapt import Start, open_start
from attendo.training.auto import choose_finetuning
from attendo.training.complete import Interrupted
from attendo.training.finetuning import rate_scales, set_trained
from attendo.training.learner import Learner, Validation
from attendo.training.optimization import OPTIMIZERS, build_optimizers
from attendo.training.run import train_run
from conftest import small_config, without_checks
from small_runs import CPU, AfterSteps, assert_same_run, same_tensors

SMALL: dict[str, Any] = {
    "data.builtin": 120,
    "data.hold_out": 7,
    "data.max_length": 40,
    "training.steps": 9,
    "training.batch_tokens": 512,
    "training.log_every": 3,
    "training.validate_every": 2,
    "training.save_every": 4,
    "training.validation_bleu": 0,
}

BODY: dict[str, Any] = {
    "tokenizer.vocabulary": 350,
    "model.d_model": 16,
    "model.d_ff": 24,
    "model.n_heads": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 1,
}


def pretrain(folder: Path, recipe: str, changes: dict[str, Any] | None = None) -> Path:
    with without_checks():
        train_run(recipe, {**SMALL, **BODY, **(changes or {})}, folder, CPU)
    return folder


def finetune(folder: Path, start: Path, changes: dict[str, Any] | None = None, **how: Any) -> Any:
    settings = {"start": str(start), **SMALL, "training.learning_rate": 1e-2, **(changes or {})}
    with without_checks():
        return train_run("classification", settings, folder, CPU, **how)


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> Path:
    return pretrain(tmp_path_factory.mktemp("masked") / "run", "masked-language-model")


@pytest.fixture(scope="module")
def language_model(tmp_path_factory) -> Path:
    changes = {"training.steps": 2}
    return pretrain(tmp_path_factory.mktemp("lm") / "run", "language-model", changes)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, masked) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "run"
    finetune(folder, masked)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors")


def body_of(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith("body.")}


def handed(start: Start, name: str, changes: dict[str, Any] | None = None) -> Recipe:
    """Hand the settings of a start over, as a run does."""
    overrides = {"start": str(start.folder), **(changes or {})}
    return start.hand_over(load_recipe(name, overrides), given_settings(name, overrides))


# -- across tasks --------------------------------------------------------------------------------


def test_the_body_is_copied_exactly_and_the_head_is_new(masked):
    start = open_start(masked)
    task = Classification(start.task.tokenizer, ["a", "b", "c"], 40)
    model = task.build(start.recipe.model)
    torch.nn.init.ones_(model.output.weight)
    start.load_parameters(model, task)
    assert same_tensors(body_of(parameters_of(model)), body_of(weights(masked)))
    assert len(body_of(parameters_of(model))) > 20
    assert torch.equal(model.output.weight, torch.ones_like(model.output.weight))


def test_a_run_of_another_task_takes_vocabulary_and_model_settings(masked, classifier):
    assert (classifier / "tokenizer.json").read_text() == (masked / "tokenizer.json").read_text()
    recipe, before = (load_recipe(str(run / "recipe.toml")) for run in (classifier, masked))
    assert recipe.task == "classification"
    assert recipe.model == before.model  # not the preset's width and dropout
    card = read_score_card(classifier)
    assert card["start"] == {"run": str(masked)}  # no scores of another task
    assert card["training_pairs"] == 120  # and no texts of it


def test_a_preset_gives_way_to_the_start_and_the_user_does_not(masked, tmp_path):
    start = open_start(masked)
    recipe = handed(start, "classification")
    assert recipe.model.d_model == 16
    assert recipe.training.label_smoothing == 0.0  # of the preset
    assert "learning_rate" not in recipe.training.model_fields_set  # has to be chosen
    assert handed(start, "classification", {"model.p_drop": 0.4}).model.p_drop == 0.4
    with pytest.raises(ConfigError, match=r"model\.d_model = 64 does not fit .*trained with 16"):
        handed(start, "classification", {"model.d_model": 64})
    own = tmp_path / "own.toml"
    own.write_text('like = "classification"\n[training]\nsteps = 77\n')
    assert handed(start, str(own)).training.steps == 77
    own.write_text('like = "classification"\n[model]\nd_model = 64\n')
    with pytest.raises(ConfigError, match=r"model\.d_model = 64 does not fit"):
        handed(start, str(own))


@pytest.mark.parametrize(
    ("kind", "recipe", "message"),
    [
        (
            "language-model",
            "classification",
            "is a decoder (task 'language-model'), but the task 'classification' needs an encoder; "
            "start from a run of one of these tasks: masked-language-model, classification",
        ),
        ("masked-language-model", "language-model", "needs a decoder; start from a run of one"),
        ("language-model", "small", "needs an encoder with a decoder; start from"),
    ],
)
def test_another_kind_of_body_is_refused_in_one_line(
    kind, recipe, message, masked, language_model, tmp_path
):
    start = language_model if kind == "language-model" else masked
    settings = {"start": str(start), "data.builtin": 60, "task": load_recipe(recipe).task}
    with pytest.raises(ConfigError) as caught:
        train_run(recipe, settings, tmp_path / "run", CPU)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_encoder_of_cells_cannot_be_half_of_a_model(tmp_path):
    changes = {"model": {"kind": "recurrent", "d_model": 16}, "training.steps": 1}
    own = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
    train_run("masked-language-model", {**own, **changes}, tmp_path / "cells", CPU)
    settings = {"start": str(tmp_path / "cells"), "data.builtin": 60, "task": "translation"}
    with pytest.raises(ConfigError, match="needs an encoder with a decoder; start from"):
        train_run("small", settings, tmp_path / "run", CPU)


def test_a_body_of_another_shape_is_named(masked):
    start = open_start(masked)
    task = Classification(start.task.tokenizer, ["a", "b"], 40)
    deeper = start.recipe.model.model_copy(update={"encoder_layers": 3})
    with pytest.raises(BundleError, match=r"16 parameters .*'encoder\.layers\.2\..*missing, exp"):
        start.load_parameters(task.build(deeper), task)


# -- an encoder under a new decoder --------------------------------------------------------------


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> Path:
    """Return an encoder as imported ones are: with token types, whose norm is after the sum."""
    changes = {
        "model.token_types": 2,
        "model.separator": 2,
        "model.norm_order": "post",
        "model.embedding_norm": True,
        "training.steps": 2,
    }
    return pretrain(tmp_path_factory.mktemp("typed") / "run", "masked-language-model", changes)


@pytest.mark.parametrize("kind", ["masked", "typed"])
@pytest.mark.parametrize("recipe", ["parsing", "tiny"])
def test_an_encoder_encodes_the_same_under_a_new_decoder(kind, recipe, request, tmp_path):
    folder = request.getfixturevalue(kind)
    settings = {"start": str(folder), **SMALL, "training.steps": 1, "model.decoder_layers": 3}
    settings |= {"task": load_recipe(recipe).task, "data.max_length": 200}
    with without_checks():
        train_run(recipe, {**settings, "training.learning_rate": 1e-12}, tmp_path / "run", CPU)
    own, other = load_bundle(folder, CPU), load_bundle(tmp_path / "run", CPU)
    assert own.task.tokenizer.fingerprint() in other.task.fingerprints().values()
    assert len(other.model.decoder.layers) == 3
    grid = pad_grid([own.task.tokenizer.encode("The old dog sleeps.")], 0)
    with torch.inference_mode():
        torch.testing.assert_close(other.model.encode(grid).hidden, own.model.encode(grid).hidden)


def test_the_settings_of_a_new_decoder_are_free_and_its_rate_is_the_whole_rate(typed, tmp_path):
    recipe = handed(open_start(typed), "parsing")
    assert recipe.model.decoder_layers == load_recipe("parsing").model.decoder_layers
    assert recipe.finetuning.encoder_only
    chosen, choices = choose_finetuning(recipe, 1000, 20.0)
    assert chosen.finetuning.layer_decay == 0.8
    assert any("for a new decoder" in choice.reason for choice in choices)
    settings = {"start": str(typed), **SMALL, "finetuning.frozen": True, "training.steps": 3}
    with without_checks():
        train_run("parsing", settings, tmp_path / "run", CPU)
    bundle = load_bundle(tmp_path / "run", CPU)
    scales = rate_scales(
        bundle.model, bundle.model, FinetuningConfig(encoder_only=True, layer_decay=0.5)
    )
    layers = bundle.model.encoder.layers
    assert scales[layers[1].feed_forward.inner.weight] == 0.5
    assert scales[layers[0].feed_forward.inner.weight] == 0.25
    decoder = [*bundle.model.decoder.parameters(), bundle.model.output.weight]
    assert {scales[parameter] for parameter in decoder} == {1.0}
    before, after = weights(typed), parameters_of(bundle.model.as_encoder())
    assert torch.equal(
        after["encoder.layers.0.feed_forward.inner.weight"],
        before["body.encoder.layers.0.feed_forward.inner.weight"],
    )


def test_an_encoder_of_text_is_none_of_recordings(masked, tmp_path):
    settings = {"start": str(masked), "data.builtin": 20}
    with pytest.raises(ConfigError, match="'speech-recognition' needs an encoder with a decoder"):
        train_run("sounds", settings, tmp_path / "run", CPU)


def test_texts_may_be_longer_unless_positions_are_learned(masked, tmp_path):
    start = open_start(masked)
    assert handed(start, "classification").data.max_length == 256  # of the preset
    assert handed(start, "classification", {"data.max_length": 99}).data.max_length == 99
    learned = start.recipe.model.model_copy(update={"positions": "learned", "max_positions": 64})
    limited = Start(start.folder, start.recipe.model_copy(update={"model": learned}), start.task)
    assert handed(limited, "classification").data.max_length == 64
    with pytest.raises(ConfigError, match=r"has learned 64 positions; set data\.max_length to at"):
        handed(limited, "classification", {"data.max_length": 65})


def test_the_same_labels_continue_the_head_and_others_have_a_new_one(classifier, tmp_path):
    texts = [f"This is text {n} of some." for n in range(40)]
    for labels in (("English", "English"), ("long", "short")):
        file = tmp_path / f"{labels[0]}.tsv"
        file.write_text("".join(f"{text}\t{labels[n % 2]}\n" for n, text in enumerate(texts)))
    changes = {"data.builtin": 0, "training.steps": 2, "training.learning_rate": 1e-6}
    same = {**changes, "data.files": str(tmp_path / "English.tsv")}
    card = finetune(tmp_path / "same", classifier, same)
    assert {"before", "own_before", "own_after", "kept"} <= card["start"].keys()
    assert card["training_pairs"] > 40  # with texts of the start
    assert load_bundle(tmp_path / "same", CPU).task.labels == ("English", "German")
    head = weights(tmp_path / "same")["output.weight"]
    torch.testing.assert_close(head, weights(classifier)["output.weight"], atol=1e-4, rtol=0)
    other = {**changes, "data.files": str(tmp_path / "long.tsv")}
    card = finetune(tmp_path / "other", classifier, other)
    assert card["start"].keys() == {"run"}
    assert load_bundle(tmp_path / "other", CPU).task.labels == ("long", "short")
    assert weights(tmp_path / "other")["output.weight"].abs().max() < 1e-4


# -- what is trained -----------------------------------------------------------------------------


def test_frozen_parameters_stay_bit_for_bit(masked, tmp_path):
    card = finetune(tmp_path / "run", masked, {"finetuning.frozen": True, "training.ema": 0.5})
    assert same_tensors(body_of(weights(tmp_path / "run")), body_of(weights(masked)))
    assert weights(tmp_path / "run")["output.weight"].abs().max() > 0
    assert card["trained_parameters"] == 2 * 16 < card["parameters"]
    for path in (tmp_path / "run" / "state").rglob("*.safetensors"):
        if path.name.startswith(("weights", "ema", "best")):
            assert same_tensors(body_of(read_tensors(path)), body_of(weights(masked))), path


def test_an_average_leaves_frozen_parameters_alone(masked, tmp_path, monkeypatch):
    """The sum of three equal numbers, divided by three, is not always the number."""
    monkeypatch.setattr(  # the average is chosen
        "attendo.training.selection._measure",
        lambda trainer, name, _: Validation(float("average" not in name), None),
    )
    changes = {"finetuning.frozen": True, "training.average": 3}
    card = finetune(tmp_path / "run", masked, changes)
    assert "average" in card["checkpoint"]
    assert same_tensors(body_of(weights(tmp_path / "run")), body_of(weights(masked)))


def test_frozen_layers_are_embeddings_and_the_first_layers(masked, tmp_path):
    finetune(tmp_path / "run", masked, {"finetuning.frozen_layers": 1})
    after, before = weights(tmp_path / "run"), body_of(weights(masked))
    same = {name for name in before if torch.equal(before[name], after[name])}
    # A bias of keys shifts all scores of a query alike, and so has no gradient.
    frozen = {name for name in before if "embedding" in name or "layers.0." in name}
    assert frozen <= same
    assert {name for name in same - frozen if "key.bias" not in name} == set()


def test_what_cannot_be_frozen_is_named(masked, language_model, tmp_path):
    with pytest.raises(ConfigError, match=r"frozen_layers = 3: the model has 2 layers"):
        finetune(tmp_path / "run", masked, {"finetuning.frozen_layers": 3})
    settings = {**SMALL, "start": str(language_model), "finetuning.frozen": True}
    with pytest.raises(ConfigError, match=r"frozen = true leaves nothing to train"):
        train_run("language-model", settings, tmp_path / "lm", CPU)
    recurrent = build_model(make_recipe({"model": {"kind": "recurrent"}}).model, 41, 41)
    with pytest.raises(ConfigError, match="are for Transformers"):
        rate_scales(recurrent, recurrent, FinetuningConfig(layer_decay=0.9))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"start": "x", "finetuning.frozen": True, "finetuning.lora_rank": 2},
            "frozen and lora_rank cannot be combined",
        ),
        ({"start": "x", "finetuning.layer_decay": 0}, "greater than 0"),
        ({"start": "x", "finetuning.lora_projections": ["query", "queue"]}, "input should be"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("classification", changes)


def test_a_run_keeps_what_it_trains(classifier, masked):
    with pytest.raises(AttendoError, match=r"other settings in \[finetuning\]"):
        finetune(classifier, masked, {"finetuning.frozen": True}, resume=True)


# -- learning rates ------------------------------------------------------------------------------


def make_classifier(**changes: Any) -> Classifier:
    config = small_config(norm_order="pre", **changes)
    return Classifier(build_model(config, 41, promise=Encoder), config.d_model, 3)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_layer_has_a_share_of_the_rate_of_the_one_above(optimizer):
    model = make_classifier(encoder_layers=3, positions="learned")
    scales = rate_scales(model, model.body, FinetuningConfig(layer_decay=0.5))
    config = TrainingConfig(optimizer=optimizer, schedule="constant", warmup_steps=0)
    learner = Learner(model, Classification.loss, config, 50, scales)
    learner._set_rate(0.8)
    rates = {
        parameter: group["lr"]
        for one in learner.optimizers
        for group in one.param_groups
        for parameter in group["params"]
    }
    assert len(rates) == len(list(model.parameters()))
    expected = {
        "output.": 0.8,
        "body.encoder.norm.": 0.4,
        "body.encoder.layers.2.": 0.4,
        "body.encoder.layers.1.": 0.2,
        "body.encoder.layers.0.": 0.1,
        "body.encoder.enter.": 0.05,
        "body.embedding.": 0.05,
    }
    for name, parameter in model.named_parameters():
        rate = next(rate for prefix, rate in expected.items() if name.startswith(prefix))
        assert rates[parameter] == pytest.approx(rate), name


@pytest.mark.parametrize("tied", ["all", "none"])
def test_the_output_layer_of_a_language_model_is_its_head_if_it_is_its_own(tied):
    model = build_model(small_config(tied=tied), 41, promise=CausalLM)
    scales = rate_scales(model, model, FinetuningConfig(layer_decay=0.5))
    assert scales[model.embedding.weight] == 0.125
    assert scales[model.output.weight] == (1.0 if tied == "none" else 0.125)


def test_a_frozen_body_needs_an_optimizer_for_the_head_only():
    model = make_classifier()
    model.body.requires_grad_(False)
    for name in OPTIMIZERS:
        optimizers = build_optimizers(model, TrainingConfig(optimizer=name))
        groups = [group["params"] for one in optimizers for group in one.param_groups]
        assert groups == [[model.output.weight]]


def test_wide_models_learn_slowly_and_few_texts_are_read_more_often(masked):
    start = open_start(masked)

    def chosen(n_texts: int, d_model: int = 128, **finetuning: Any) -> TrainingConfig:
        values = handed(start, "classification").model_dump(exclude_unset=True, mode="json")
        values["model"]["d_model"] = d_model
        values["finetuning"] = finetuning
        return choose_finetuning(make_recipe(values), n_texts, 20.0)[0].training

    rates = [chosen(5000, width).learning_rate for width in (16, 64, 128, 512, 768, 4096)]
    assert rates == [1e-3, 6e-4, 3e-4, 7.5e-5, 5e-5, 3e-5]
    assert chosen(5000, lora_rank=4).learning_rate == pytest.approx(5 * 3e-4)
    assert chosen(5000, frozen=True).learning_rate == pytest.approx(100 * 3e-4)
    assert chosen(100).steps == 200
    few, many = chosen(5000), chosen(200_000)
    assert few.steps * few.batch_tokens == pytest.approx(10 * 5000 * 20, rel=0.01)
    assert many.steps * many.batch_tokens == pytest.approx(3 * 200_000 * 20, rel=0.01)
    assert 0.06 * many.steps <= many.warmup_steps <= 0.1 * many.steps
    assert many.schedule == "linear"


# -- LoRA ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["dot", "lsh"])
@pytest.mark.parametrize(
    "names", [("query", "value"), ("query", "key", "value", "output", "inner", "outer")]
)
def test_low_rank_matrices_change_nothing_at_first_and_are_merged_exactly(attention, names):
    model = make_classifier(attention=attention).eval()
    plain = dict(model.named_parameters())
    grid = pad_grid([[5, 7, 11, 13], [17, 19]], 0)
    before = model.logits(model.encode(grid).hidden + 0)
    nn.init.normal_(model.output.weight)
    before = model.logits(model.encode(grid).hidden)
    n = add_lora(model.body, names, 3, 6.0)
    assert n == sum(isinstance(module, LoraLinear) for module in model.modules())
    assert torch.equal(model.logits(model.encode(grid).hidden), before)
    for module in model.modules():
        if isinstance(module, LoraLinear):
            nn.init.normal_(module.lora_b, std=0.3)
    changed = model.logits(model.encode(grid).hidden)
    assert (changed - before).abs().max() > 0.01
    merge_lora(model)
    merged = model.logits(model.encode(grid).hidden)
    torch.testing.assert_close(merged, changed, atol=1e-5, rtol=1e-5)
    assert dict(model.named_parameters()).keys() == plain.keys()
    assert {type(one) for one in model.modules() if isinstance(one, nn.Linear)} == {nn.Linear}


def test_only_low_rank_matrices_and_the_head_learn(masked, tmp_path):
    run = tmp_path / "run"
    card = finetune(run, masked, {"finetuning.lora_rank": 3, "training.average": 1})
    state = read_tensors(next(run.glob("state/step-*/weights.safetensors")))
    low = {name for name in state if "lora_" in name}
    assert len(low) == 2 * 2 * 2  # of query and value, in two layers
    assert {name.split(".")[-2] for name in low} == {"query", "value"}
    before = weights(masked)
    assert all(torch.equal(before[name], state[name]) for name in body_of(state).keys() - low)
    assert all(state[name].abs().max() > 0 for name in {*low, "output.weight"})
    assert card["trained_parameters"] == len(low) * 3 * 16 + 2 * 16

    # What is saved is a plain model that computes the same.
    assert body_of(weights(run)).keys() == body_of(before).keys()
    bundle = load_bundle(run, CPU)
    step = next(run.glob("state/step-*/weights.safetensors"))
    if card["checkpoint"] != "step 9":
        step = next(run.glob("state/best-*.safetensors"))
    unmerged = bundle.task.build(bundle.recipe.model).eval()
    set_trained(unmerged, unmerged.body, bundle.recipe.finetuning)
    put_tensors(parameters_of(unmerged), read_tensors(step), step)
    grid = pad_grid([[5, 7, 11, 13], [17, 19]], 0)
    expected = unmerged.logits(unmerged.encode(grid).hidden)
    found = bundle.model.logits(bundle.model.encode(grid).hidden)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_language_model_learns_by_low_rank_matrices_alone(language_model, tmp_path):
    settings = {**SMALL, "start": str(language_model), "finetuning.lora_rank": 2}
    settings |= {"training.learning_rate": 0.05, "training.steps": 12}
    with without_checks():
        card = train_run("language-model", settings, tmp_path / "run", CPU)
    assert card["perplexity"] < card["start"]["before"]
    after, before = weights(tmp_path / "run"), weights(language_model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.split(".")[-2] for name in changed} == {"query", "value"}


# -- resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"finetuning.lora_rank": 2, "training.ema": 0.5},
        {"finetuning.frozen": True, "training.optimizer": "muon"},
        {"finetuning.layer_decay": 0.7, "training.optimizer": "muon"},
    ],
    ids=["lora", "frozen", "layer by layer"],
)
def test_interrupted_it_ends_as_if_it_never_had_been(masked, tmp_path, changes):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finetune(whole, masked, changes)
    stop = AfterSteps(5, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        finetune(stopped, masked, changes, reporter=stop)
    finetune(stopped, masked, changes, resume=True)
    assert_same_run(whole, stopped)


def test_a_comparison_with_new_parameters_is_resumed_with_the_run(masked, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finetune(whole, masked, compare_scratch=True)
    stop = AfterSteps(9 + 5, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        finetune(stopped, masked, reporter=stop, compare_scratch=True)
    with without_checks():
        card = train_run("auto", {}, stopped, CPU, resume=True)
    assert_same_run(whole, stopped)
    assert card["scratch"]["accuracy"] == read_score_card(stopped / "scratch")["accuracy"]
    recipe, scratch = (load_recipe(str(run / "recipe.toml")) for run in (whole, whole / "scratch"))
    assert (scratch.model, scratch.data, scratch.start) == (recipe.model, recipe.data, None)
    assert scratch.training.optimizer == "muon"  # as the preset trains new parameters
    assert scratch.training.warmup_steps == recipe.training.warmup_steps == 1
    assert (whole / "scratch" / "tokenizer.json").read_text() == (
        masked / "tokenizer.json"
    ).read_text()
    shutil.rmtree(whole / "scratch")
    with pytest.raises(ConfigError, match="was started without --compare-scratch"):
        finetune(whole, masked, resume=True, compare_scratch=True)
    with pytest.raises(ConfigError, match="give --from"):
        train_run("classification", SMALL, tmp_path / "new", CPU, compare_scratch=True)
    with pytest.raises(ConfigError, match=r"\[finetuning\] is for .*: give --from"):
        train_run("classification", {**SMALL, "finetuning.frozen": True}, tmp_path / "new", CPU)


class WhileEncoding(Reporter):
    """Interrupts the preparation of the data, as Ctrl-C does."""

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        if title == "encoding":
            raise KeyboardInterrupt
        yield lambda n, remark: None


def test_a_start_that_failed_leaves_no_comparison_to_the_next_one(masked, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        finetune(run, masked, reporter=WhileEncoding(), compare_scratch=True)
    card = finetune(run, masked)
    assert "scratch" not in card
    assert not (run / "scratch").exists()


# -- the command line ----------------------------------------------------------------------------


def attendo(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "attendo", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_from_pretraining_to_evaluation_on_the_command_line(masked, tmp_path):
    small = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    run = str(tmp_path / "run")
    trained = attendo(
        "train", "classification", "--from", str(masked), "--out", run, "--device", "cpu", *small,
        "--set", "finetuning.lora_rank=2", "--set", 'finetuning.lora_projections=["key","inner"]',
        "--compare-scratch",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    card = read_score_card(Path(run))
    gain = card["accuracy"] - card["scratch"]["accuracy"]
    assert card["scratch"]["difference"] == pytest.approx(gain)
    line = f"from scratch {card['scratch']['accuracy']:.2f}  ({gain:+.2f} accuracy with the start)"
    assert line in trained.stdout
    assert f"the body of {masked}, with a new head" in trained.stderr
    file = tmp_path / "test.tsv"
    file.write_text("The dog sleeps.\tEnglish\nDer Hund schläft.\tGerman\n")
    evaluated = attendo("evaluate", run, "--data", str(file), "--device", "cpu")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "accuracy" in evaluated.stdout


def test_stacks_hold_all_low_rank_matrices():
    model = build_model(small_config(), 41, promise=CausalLM)
    names = ("query", "key", "value", "output", "inner", "outer")
    assert sum(add_lora(one, names, 2, 4.0) for one in model.modules() if type(one) is Stack) == 12
    assert type(model.output) is nn.Linear
