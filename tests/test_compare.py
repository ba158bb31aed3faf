"""Comparison: equal conditions for all, tested claims, and continuation wherever it was stopped."""

import fcntl
import io
import itertools
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attendo.bundle import parameters_of, read_score_card, read_tensors
from attendo.cli import main
from attendo.config import (
    FAMILIES,
    AnyModelConfig,
    ConvolutionalConfig,
    RecurrentConfig,
    TrainingConfig,
    TransformerConfig,
    load_recipe,
    presets,
)
from attendo.config import write_recipe as recipe_text
from attendo.data.builtin import lexicon, sentences
from attendo.data.builtin.constructs import statement
from attendo.data.builtin.phrases import (
    Clause,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    Property,
    RelativeClause,
    Subordinate,
    pronoun_for,
)
from attendo.errors import ConfigError
from attendo.lab.clock import estimate_energy, mean_watts, power_meter
from attendo.lab.compare.comparison import Compared, compare
from attendo.lab.compare.dependencies import Dependency, find_dependencies
from attendo.lab.compare.families import chains_of, model_in_words
from attendo.lab.compare.findings import Findings, by_length, make_buckets, wilson
from attendo.lab.compare.folders import resized
from attendo.lab.compare.measure import learning_curve, learning_seconds, training_speed
from attendo.lab.compare.plan import (
    DEFAULT_BUDGET,
    DEFAULT_RECIPES,
    OWN_STEPS,
    VALIDATIONS,
    Budget,
    check_folder,
    choose_budget,
    fitted,
    keep_plan,
    make_plan,
)
from attendo.lab.compare.report import mark
from attendo.lab.compare.significance import (
    FEWEST,
    LEVEL,
    RESAMPLES,
    compare_all,
    count_resamples,
    has_learned,
    measure_quality,
)
from attendo.lab.compare.summary import summarise
from attendo.lab.compare.tables import main_table, significance_table
from attendo.lab.report.document import counted, listed, printable, short_names, timed
from attendo.lab.report.svg import apart
from attendo.models import CausalLM, Encoder, build_model
from attendo.reporter import Reporter
from attendo.training.log import read_log
from attendo.training.optimization import SCHEDULES
from conftest import make_once
from servers import DRIVER, browsing, emulate, fits_the_screen, send
from small_runs import CPU, command, same_tensors, small_run, start

# -- budgets -------------------------------------------------------------------------------------


def highest_rate(training: TrainingConfig, d_model: int = 16) -> float:
    schedule = SCHEDULES[training.schedule]
    rates = [schedule(step, training, d_model) for step in range(1, training.steps + 1)]
    return training.learning_rate * max(rates)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [20, 333, 10_000])
def test_a_schedule_that_is_fitted_keeps_its_shape(schedule, steps):
    before = TrainingConfig(steps=1000, warmup_steps=100, schedule=schedule, learning_rate=0.5)
    settings = {key.split(".")[1]: value for key, value in fitted(before, steps).items()}
    after = TrainingConfig.model_validate({**before.model_dump(), **settings})
    assert after.steps == steps
    assert after.warmup_steps / steps == pytest.approx(0.1, rel=0.05)
    assert highest_rate(after) == pytest.approx(highest_rate(before), rel=0.02)
    assert steps / after.validate_every >= min(steps, VALIDATIONS) * 0.8
    assert after.save_every <= steps


def test_a_recipe_that_fits_already_is_left_alone():
    assert fitted(TrainingConfig(steps=7), 7) == {}
    assert fitted(TrainingConfig(warmup_steps=0), 5)["training.warmup_steps"] == 0


def test_a_budget_decides_when_a_training_ends():
    training = TrainingConfig(batch_tokens=1000, steps=9, validate_every=9)
    assert Budget().settings("a", training) == {}
    assert Budget("tokens", 3999).settings("a", training)["training.steps"] == 3
    by_clock = Budget("seconds", 10).settings("a", training)
    assert by_clock["training.seconds"] == 10
    assert by_clock["training.validate_every"] == 2  # of 9 parts, whatever a step takes
    assert "training.steps" not in by_clock


def test_a_recipe_with_a_limit_of_seconds_loses_it_to_a_budget_of_tokens():
    training = TrainingConfig(batch_tokens=1000, seconds=5)
    assert Budget("tokens", 3000).settings("a", training)["training.seconds"] == 0
    assert "training.seconds" not in Budget().settings("a", training)


def test_a_budget_must_be_enough_for_a_step():
    with pytest.raises(ConfigError, match="--budget-tokens 999 is too little for 'a': one step"):
        Budget("tokens", 999).settings("a", TrainingConfig(batch_tokens=1000))


# -- the clock -----------------------------------------------------------------------------------


class SlowStart(Reporter):
    """A clock by which the first steps take long, as with memory and compilers."""

    def __init__(self, n_steps: int, seconds: float) -> None:
        self.n_left = n_steps
        self.seconds = seconds
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        def advance(n: int, remark: str) -> None:
            if title == "training" and not remark:
                self.now += self.seconds if self.n_left else 0.1
                self.n_left = max(0, self.n_left - 1)

        yield advance


def reports_of(run: Path) -> list[dict[str, Any]]:
    return [entry for entry in read_log(run / "log.jsonl") if "loss" in entry]


@pytest.mark.parametrize("schedule", ["paper", "cosine"])
def test_seconds_end_a_training_however_slow_its_first_steps_were(tmp_path, schedule, monkeypatch):
    changes = {"training.seconds": 2.5, "training.schedule": schedule}
    clock = SlowStart(2, 0.8)
    monkeypatch.setattr("attendo.training.trainer.time", clock)
    card = small_run(tmp_path, changes, reporter=clock)
    reports = reports_of(tmp_path)
    assert card["steps"] > 4, "more than at the pace of the first steps"
    assert 2.5 <= reports[-1]["learning_seconds"] < 2.7
    assert reports[-1]["learning_seconds"] <= card["training_seconds"] + 0.06, "it is rounded"
    # The whole schedule of 12 steps was passed through, with its highest rate and its last.
    config = TrainingConfig(steps=12, warmup_steps=3, schedule=schedule)
    rates = [config.learning_rate * SCHEDULES[schedule](step, config, 16) for step in range(1, 13)]
    given = load_recipe("demo", {}).training.learning_rate / config.learning_rate
    seen = [report["learning_rate"] / given for report in reports]
    assert seen[-1] == pytest.approx(rates[-1])
    assert max(seen) <= max(rates) * 1.001
    validations = [one for one in read_log(tmp_path / "log.jsonl") if "valid_loss" in one]
    assert 1 <= len(validations) <= 3, "after 4, 8 and 12 of 12 parts, unless a step takes two"


def test_a_training_of_no_time_makes_one_step(tmp_path):
    assert small_run(tmp_path, {"training.seconds": 1e-9})["steps"] == 1


@pytest.mark.slow
def test_a_training_by_the_clock_continues_with_the_seconds_that_are_left(tmp_path):
    words = command(tmp_path, {"training.seconds": 4.0})
    process = start(words)
    wait_for(lambda: (tmp_path / "log.jsonl").exists() and reports_of(tmp_path))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    [saved] = (tmp_path / "state").glob("step-*/progress.json")
    before = json.loads(saved.read_text(encoding="utf-8"))
    assert 0 < before["learning_seconds"] < 4
    _, said = start(words).communicate(timeout=180)
    [saved] = (tmp_path / "state").glob("step-*/progress.json")
    after = json.loads(saved.read_text(encoding="utf-8"))
    assert after["step"] > before["step"], said
    assert 4 <= after["learning_seconds"] < 8
    seconds = [report["learning_seconds"] for report in reports_of(tmp_path)]
    assert seconds == sorted(seconds)
    assert read_score_card(tmp_path)["steps"] == after["step"]
    reporter, messages = Reporter(), []
    reporter.say = messages.append
    small_run(tmp_path, {"training.seconds": 4.0}, resume=True, reporter=reporter)
    assert messages[-1].endswith("is complete")
    assert json.loads(saved.read_text(encoding="utf-8")) == after


# -- plans ---------------------------------------------------------------------------------------

COMMON: dict[str, Any] = {
    "data": {"builtin": 300, "hold_out": 40, "max_length": 128},
    "tokenizer": {"vocabulary": 400},
    "training": {
        "steps": 12,
        "batch_tokens": 1024,
        "optimizer": "adamw",
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup_steps": 2,
        "log_every": 3,
        "validate_every": 4,
        "save_every": 5,
        "validation_bleu": 5,
    },
    "decoding": {"strategy": "greedy", "max_extra": 1, "batch_size": 16},
}
LAYERS = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
MODELS: dict[str, dict[str, Any]] = {
    "tiny-transformer": {**LAYERS, "d_ff": 32, "n_heads": 2},
    "tiny-gru": {**LAYERS, "kind": "recurrent", "cell": "gru", "attention": "none"},
    "tiny-conv": {**LAYERS, "kind": "convolutional"},
}


def write_recipe(folder: Path, name: str, **changes: Any) -> str:
    import tomli_w

    values = {**COMMON, "description": f"a small {name}", "model": MODELS[name]}
    for key, inner in changes.items():
        values[key] = {**values.get(key, {}), **inner}
    path = folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
    return str(path)


@pytest.fixture
def recipes(tmp_path) -> list[str]:
    folder = tmp_path / "recipes"
    folder.mkdir()
    return [write_recipe(folder, name) for name in MODELS]


def test_without_names_the_default_recipes_are_compared():
    plan = make_plan([], {}, OWN_STEPS, "cpu")
    assert plan.budget == DEFAULT_BUDGET
    small = make_plan([], {}, Budget(n_parameters=500_000), "cpu")
    assert small.budget == DEFAULT_BUDGET._replace(n_parameters=500_000)
    assert make_plan(["demo", "demo-rnn"], {}, OWN_STEPS, "cpu").budget == OWN_STEPS
    assert [system.name for system in plan.systems] == list(DEFAULT_RECIPES)
    assert {system.recipe.model.kind for system in plan.systems} == set(FAMILIES)


@pytest.mark.parametrize(
    ("names", "overrides", "budget", "expected"),
    [
        (["demo", "dmo"], {}, Budget(), "no recipe is called 'dmo'; did you mean 'demo'"),
        (["demo"], {}, Budget(), "'demo' alone cannot be compared: give two recipes or more"),
        (["demo", "walk", "demo"], {}, Budget(), "'demo', 'demo' would all be called 'demo'"),
        (["demo", "auto"], {}, Budget(), "'auto' chooses its settings from the data"),
        (["demo", "walk"], {}, Budget(), "data.builtin is 60000 in one and 200000 in the other"),
        (
            ["demo", "walk"],
            {"data.builtin": 50, "model.nose": 1},
            Budget(),
            "unknown key 'model.nose'",
        ),
        (
            ["demo", "walk"],
            {"data.builtin": 50, "training.steps": 3},
            Budget("tokens", 1e6),
            "--budget-tokens and --set training.steps contradict each other",
        ),
        (
            ["demo", "walk"],
            {"data.builtin": 50, "training.seconds": 3},
            Budget("seconds", 9),
            "--budget-seconds and --set training.seconds contradict each other",
        ),
        (
            ["demo", "walk"],
            {"data.builtin": 50, "model.d_model": 64},
            Budget(n_parameters=500_000),
            "--budget-parameters and --set model.d_model contradict each other",
        ),
        (
            ["demo", "walk"],
            {"data.builtin": 50},
            Budget("tokens", 100),
            "--budget-tokens 100 is too little for 'demo'",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    names, overrides, budget, expected
):
    with pytest.raises(ConfigError) as caught:
        make_plan(names, overrides, budget, "cpu")
    assert expected in str(caught.value)


def test_two_files_of_one_name_cannot_be_told_apart(recipes, tmp_path):
    other = shutil.copy(recipes[0], tmp_path)
    with pytest.raises(ConfigError, match="would all be called 'tiny-transformer'"):
        make_plan([recipes[0], str(other)], {}, Budget(), "cpu")


def test_files_come_before_the_built_in_corpus(recipes):
    plan = make_plan(recipes, {"data.pairs": ["mine.tsv"]}, Budget(), "cpu")
    assert plan.data.builtin == 0
    assert plan.data.pairs == ("mine.tsv",)


def test_two_budgets_are_one_too_many():
    assert choose_budget(None, None, None) == OWN_STEPS
    assert choose_budget(5, None, None) == Budget("tokens", 5)
    assert choose_budget(None, 1.0, 500) == Budget("seconds", 1, 500)
    with pytest.raises(ConfigError, match="give one of them, not both"):
        choose_budget(5, 1.0, None)
    for seconds in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="give a number of seconds above 0"):
            choose_budget(None, seconds, None)


# So many layers as those of demo-deep cannot be that small.
DEMOS = sorted(name for name in presets() if name.startswith("demo") and name != "demo-deep")


@pytest.mark.parametrize("name", DEMOS)
@pytest.mark.parametrize("n_parameters", [100_000, 300_000, 1_000_000, 20_000_000])
def test_models_get_the_size_they_are_to_have(name, n_parameters):
    before = load_recipe(name, {}).model

    def count(config: AnyModelConfig) -> int:
        with torch.device("meta"):
            model = build_model(config, 2000, 2000)
        return sum(weight.numel() for weight in parameters_of(model).values())

    after = resized(name, before, n_parameters, count)
    # The narrower, the larger a step from one width to the next.
    assert count(after) == pytest.approx(n_parameters, rel=0.08 if n_parameters < 200_000 else 0.04)
    unchanged = after.model_dump().keys() - {"d_model", "d_ff"}
    assert after.model_dump(include=unchanged) == before.model_dump(include=unchanged)
    if isinstance(after, TransformerConfig):
        assert after.d_ff / after.d_model == pytest.approx(
            before.d_ff / before.d_model, rel=0.6
        )  # it is rounded, too
    with pytest.raises(ConfigError, match=f"--budget-parameters 1000 is too little for '{name}'"):
        resized(name, before, 1000, count)


def test_no_width_gives_a_model_more_weights_than_anybody_could_keep():
    def count(config: AnyModelConfig) -> int:
        return config.d_model**2

    with pytest.raises(ConfigError, match="is too much for 'a', which has 268,435,456 parameters"):
        resized("a", RecurrentConfig(), 10**9, count)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"names": slice(2)}, "it compares tiny-transformer, tiny-gru, tiny-conv, not"),
        ({"overrides": {"training.steps": 13}}, "had another training.steps"),
        (
            {"budget": Budget("tokens", 5000)},
            "its budget was the steps of each recipe",
        ),
        ({"budget": Budget(n_parameters=5000)}, "recipe, and about 5,000 parameters each"),
        ({"device": "cuda"}, "its device was cpu, not cuda"),
    ],
)
def test_a_folder_holds_one_comparison(recipes, tmp_path, changes, expected):
    folder = tmp_path / "report"
    folder.mkdir()
    keep_plan(make_plan(recipes, {}, Budget(), "cpu"), folder)
    keep_plan(make_plan(recipes, {}, Budget(), "cpu"), folder)
    other = make_plan(
        recipes[changes.get("names", slice(None))],
        changes.get("overrides", {}),
        changes.get("budget", Budget()),
        changes.get("device", "cpu"),
    )
    log = folder / "runs" / "tiny-gru" / "log.jsonl"
    log.parent.mkdir(parents=True)
    keep_plan(other, folder)  # nothing has been learned yet
    assert not log.parent.exists(), "what was prepared for the other one"
    keep_plan(make_plan(recipes, {}, Budget(), "cpu"), folder)
    log.parent.mkdir(parents=True)
    log.touch()
    with pytest.raises(ConfigError, match="holds another comparison") as caught:
        keep_plan(other, folder)
    assert expected in str(caught.value)
    assert log.exists()


def test_a_comparison_of_an_earlier_version_can_be_continued(recipes, tmp_path):
    plan = make_plan(recipes, {}, Budget(n_parameters=5000), "cpu")
    earlier = plan.to_dict()
    earlier["budget"] = {"kind": "steps", "amount": 0.0, "n_weights": 5000}
    kept = tmp_path / "report" / "comparison.json"
    kept.parent.mkdir()
    kept.write_text(json.dumps(earlier), encoding="utf-8")
    (kept.parent / "runs" / "tiny-gru").mkdir(parents=True)
    (kept.parent / "runs" / "tiny-gru" / "log.jsonl").touch()
    keep_plan(plan, kept.parent)
    other = make_plan(recipes, {}, Budget(n_parameters=6000), "cpu")
    with pytest.raises(ConfigError, match="about 5,000 parameters each, not"):
        keep_plan(other, kept.parent)


def test_a_folder_of_something_else_is_left_alone(recipes, tmp_path):
    with pytest.raises(ConfigError, match="is not empty and holds no comparison"):
        check_folder(tmp_path)
    with pytest.raises(ConfigError, match="is a file; give a folder"):
        check_folder(Path(recipes[0]))
    check_folder(tmp_path / "new")


# -- groups --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(1, 6))
def test_buckets_part_all_values_into_ranges_of_about_equal_count(values, count):
    buckets = make_buckets(values, count)
    assert sorted(place for bucket in buckets for place in bucket.members) == [*range(len(values))]
    assert 1 <= len(buckets) <= count
    for bucket in buckets:
        held = [values[place] for place in bucket.members]
        assert (min(held), max(held)) == (bucket.low, bucket.high)
    assert all(before.high < after.low for before, after in pairwise(buckets))
    # An edge can miss its equal share by no more than half of the values that are alike.
    most_alike = max(Counter(values).values())
    assert max(len(b.members) for b in buckets) <= len(values) / count + most_alike


def test_buckets_have_names():
    assert [bucket.label for bucket in make_buckets([3, 3, 4, 7, 8, 9], 2)] == ["3–4", "7–9"]
    assert [bucket.label for bucket in make_buckets([5, 5], 3)] == ["5"]


def test_wilsons_interval_is_where_the_share_would_be_unusual():
    for n_right, count in ((0, 10), (3, 10), (10, 10), (40, 100)):
        for bound in wilson(n_right, count):
            share = bound / 100
            spread = 1.96 * math.sqrt(share * (1 - share) / count)
            assert abs(n_right / count - share) == pytest.approx(spread, abs=1e-9)


# -- significance --------------------------------------------------------------------------------


def worsened(texts: list[str], share: float, seed: int) -> list[str]:
    """Replace some words by one that is always wrong."""
    chance = random.Random(seed)
    return [
        " ".join("falsch" if chance.random() < share else word for word in text.split())
        for text in texts
    ]


REFERENCES = [one.target for one in islice(sentences(seed=5), 120)]


def test_the_same_translations_are_no_evidence():
    same = worsened(REFERENCES, 0.3, 1)
    for verdict in compare_all({"a": same, "b": list(same)}, REFERENCES):
        assert (verdict.difference, verdict.p) == (0, 1)
        assert not verdict.is_significant


def test_a_much_better_system_is_found_whatever_the_order():
    good, bad = worsened(REFERENCES, 0.1, 1), worsened(REFERENCES, 0.5, 2)
    for systems in ({"good": good, "bad": bad}, {"bad": bad, "good": good}):
        for verdict in compare_all(systems, REFERENCES):
            assert (verdict.better, verdict.worse) == ("good", "bad")
            assert verdict.difference > 10
            assert verdict.is_significant


def test_systems_that_differ_by_chance_alone_are_not_told_apart():
    equals = {str(seed): worsened(REFERENCES, 0.3, seed) for seed in range(3)}
    assert not [one for one in compare_all(equals, REFERENCES) if one.is_significant]


def test_false_alarms_are_as_rare_as_the_level_says():
    references, alarms = REFERENCES[:FEWEST], 0
    for seed in range(60):
        equals = {name: worsened(references, 0.4, 2 * seed + n) for n, name in enumerate("ab")}
        alarms += sum(one.is_significant for one in compare_all(equals, references))
    assert alarms <= 0.08 * 2 * 60  # by BLEU and by chrF; twice as many if only one side counted


SOURCES = [one.source for one in islice(sentences(seed=5), 120)]


@pytest.mark.parametrize(
    ("translations", "learned"),
    [
        (REFERENCES, True),
        (worsened(REFERENCES, 0.7, 1), True),
        (["Der Hund"] * 120, False),
        ([" ".join(["der"] * len(source.split())) for source in SOURCES], False),
        (worsened(REFERENCES, 1, 0), False),
        (random.Random(3).sample(REFERENCES, 120), False),
        ([""] * 120, False),
    ],
    ids=["right", "partly right", "constant", "right length", "wrong", "of others", "empty"],
)
def test_a_system_has_learned_if_its_translations_depend_on_their_sources(translations, learned):
    assert has_learned(SOURCES, translations, REFERENCES) is learned


def test_systems_that_have_learned_nothing_are_not_tested():
    one, other = ["Der Hund schläft"] * 120, ["Haus"] * 120
    outputs = {"one": one, "other": other, "good": worsened(REFERENCES, 0.3, 1)}
    tested = compare_all(outputs, REFERENCES)
    assert all(verdict.is_significant for verdict in tested if verdict.metric == "chrF")
    verdicts = compare_all(outputs, REFERENCES, untrained=["one", "other"])
    for verdict in verdicts:
        is_pair = {verdict.better, verdict.worse} == {"one", "other"}
        assert verdict.is_tested is not is_pair
        assert verdict.is_significant is not is_pair
    # Fewer tests are made, so that the others are corrected less.
    pairs = zip(tested, verdicts, strict=True)
    assert all(after.p_of_all <= before.p_of_all for before, after in pairs if after.is_tested)


def test_few_sentences_tell_nothing_apart():
    few = REFERENCES[: FEWEST - 1]
    both = {"right": few, "wrong": worsened(few, 1, 0)}
    assert [one.p for one in compare_all(both, few)] == [1, 1]


def test_chances_are_those_of_sacrebleu_and_corrected_for_their_number():
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    systems = {str(share): worsened(REFERENCES, share, 3) for share in (0.3, 0.33, 0.4)}
    verdicts = [one for one in compare_all(systems, REFERENCES) if one.metric == "BLEU"]
    _, results = PairedTest(
        [("0.3", systems["0.3"]), ("0.33", systems["0.33"])],
        {"BLEU": BLEU(references=[REFERENCES])},
        references=None,
        test_type="bs",
        n_samples=RESAMPLES,
    )()
    first = next(one for one in verdicts if {one.better, one.worse} == {"0.3", "0.33"})
    assert first.p == 2 * results["BLEU"][1].p_value  # either could have been the better one
    # Holm: the smallest chance times 3, the next times 2, the last times 1, never falling.
    ordered = sorted(verdicts, key=lambda one: one.p)
    expected = list(
        itertools.accumulate(
            (min(1, one.p * factor) for one, factor in zip(ordered, (3, 2, 1), strict=True)), max
        )
    )
    assert [one.p_of_all for one in ordered] == pytest.approx(expected)


def test_many_systems_can_still_be_told_apart():
    for n_systems in range(2, 40):
        smallest = 2 / (count_resamples(n_systems) + 1)
        assert smallest * math.comb(n_systems, 2) < LEVEL


def test_quality_counts_what_is_wholly_right():
    quality = measure_quality([*REFERENCES[:30], *worsened(REFERENCES[30:], 1, 0)], REFERENCES)
    assert quality.exact == 0.25
    assert quality.chrf_interval[0] < quality.scores.chrf < quality.chrf_interval[1]


def test_short_sentences_that_are_right_show_in_their_group():
    sources = [one.source for one in islice(sentences(seed=5), 120)]
    is_short = [len(source.split()) <= 10 for source in sources]
    mixed = [
        right if short else wrong
        for right, wrong, short in zip(
            REFERENCES, worsened(REFERENCES, 0.6, 0), is_short, strict=True
        )
    ]
    found = by_length(sources, REFERENCES, {"mixed": mixed, "right": REFERENCES})
    assert sum(found.counts) == 120
    assert found.scores["right"] == pytest.approx([100] * len(found.groups))
    assert found.scores["mixed"][0] > 99
    assert found.scores["mixed"][-1] < 60


# -- dependencies --------------------------------------------------------------------------------


def noun(name: str, determiner: str = "the", **more: Any) -> NounPhrase:
    return NounPhrase(lexicon.DETERMINERS[determiner], lexicon.NOUNS[name], **more)


def found_in(*clauses: Clause) -> list[tuple[str, int, str]]:
    said = [statement(clause) for clause in clauses]
    found = find_dependencies([one.source for one in said], [one.target for one in said])
    assert all(one.is_met(said[one.sentence].target) for one in found)
    return [(one.kind, one.distance, one.expected) for one in found]


IN_THE_GARDEN = PrepositionalPhrase(lexicon.PREPOSITIONS["in"], noun("garden"))


def because(phrase: NounPhrase, quality: str, stands_for: Any) -> Subordinate:
    state = Predicate(lexicon.BE, "present", Property(lexicon.ADJECTIVES[quality]))
    return Subordinate("because", Clause(pronoun_for(phrase), state), stands_for)


@pytest.mark.parametrize("modifier", [None, IN_THE_GARDEN])
def test_it_is_traced_to_its_noun(modifier):
    dog, lamp = noun("dog", modifier=modifier), noun("lamp")
    sees = Predicate(lexicon.VERBS["see"], "present", lamp)
    further = 3 if modifier else 0
    tired, broken = because(dog, "tired", "subject"), because(lamp, "broken", "object")
    # The dog (in the garden) sees the lamp because it is ...
    assert found_in(Clause(dog, sees, tired)) == [("pronoun", 4 + further, "er")]
    assert found_in(Clause(dog, sees, broken)) == [("pronoun", 1, "sie")]


def test_a_noun_that_is_not_certain_is_left_out():
    dog = noun("dog", modifier=PrepositionalPhrase(lexicon.PREPOSITIONS["behind"], noun("lion")))
    sees = Predicate(lexicon.VERBS["see"], "present", noun("lamp"))
    assert found_in(Clause(dog, sees, because(dog, "tired", "subject"))) == []


def test_a_pronoun_is_right_only_if_no_other_stands_beside_it():
    it = Dependency("pronoun", 0, 3, "sie")
    assert it.is_met("Die Kuh schläft, weil sie müde ist.")
    assert not it.is_met("Die Kuh schläft, weil er müde ist.")
    assert not it.is_met("Die Kuh schläft, weil sie müde ist und er nicht.")
    assert not it.is_met("")


@pytest.mark.parametrize(
    ("verb", "tense", "expected"),
    [
        ("sleep", "perfect", "geschlafen"),
        ("sleep", lexicon.MODALS["must"], "schlafen"),
        ("get up", "present", "auf"),
        ("get up", "past", "auf"),
    ],
)
def test_both_parts_of_a_verb_are_found_even_around_a_relative_clause(verb, tense, expected):
    dog = noun("dog")
    main = Predicate(lexicon.VERBS[verb], tense, None, lexicon.ADVERBS["today"])
    assert found_in(Clause(dog, main)) == [("verb", 1, expected)]
    # A verb of the same kind inside: Der Hund, der gesungen hat, hat heute geschlafen.
    inside = RelativeClause(Predicate(lexicon.VERBS["wait"], tense))
    busy = noun("dog", modifier=inside)
    assert found_in(Clause(busy, main)) == [("verb", 1, expected)]


def test_a_verb_of_one_part_is_no_dependency():
    helper = RelativeClause(Predicate(lexicon.VERBS["see"], lexicon.MODALS["must"], noun("cat")))
    dogs = noun("dog", is_plural=True, modifier=helper)
    # Die Hunde, die die Katze sehen müssen, schlafen.
    assert found_in(Clause(dogs, Predicate(lexicon.VERBS["sleep"]))) == []
    must = Predicate(lexicon.VERBS["work"], lexicon.MODALS["must"])
    tail = Subordinate("because", Clause(dogs, Predicate(lexicon.VERBS["sleep"])))
    # Der Mann muss arbeiten, weil die Hunde, ..., schlafen.
    assert found_in(Clause(noun("man"), must, tail)) == []


def test_most_sentences_with_it_are_understood_and_none_reaches_too_far():
    drawn = list(islice(sentences(seed=9), 600))
    found = find_dependencies([one.source for one in drawn], [one.target for one in drawn])
    pronouns = [one for one in found if one.kind == "pronoun"]
    with_it = [one for one in drawn if re.findall(r"\w+", one.source).count("it") == 1]
    assert len(pronouns) > 0.9 * len(with_it)
    assert all(one.is_met(drawn[one.sentence].target) for one in found)
    # The grammar itself measures the longest dependency of a sentence.
    assert all(one.distance <= drawn[one.sentence].distance for one in pronouns)


# -- sequential steps ----------------------------------------------------------------------------


def longest_chain(needs: dict[Any, list[Any]]) -> int:
    """Count the cells of the longest path through a graph, by looking at all of it."""
    depth: dict[Any, int] = {}
    waiting = dict(needs)
    while waiting:
        ready = [cell for cell in waiting if all(one in depth for one in waiting[cell])]
        for cell in ready:
            depth[cell] = 1 + max((depth[one] for one in waiting.pop(cell)), default=0)
    return max(depth.values())


def recurrent_cells(config: RecurrentConfig, n: int, m: int) -> dict[Any, list[Any]]:
    """Return for every cell of a recurrent model which others it waits for."""
    needs: dict[Any, list[Any]] = {}
    ways = (1, -1) if config.bidirectional else (1,)
    for layer in range(config.encoder_layers):
        for way in ways:
            for place in range(n):
                below = [("read", layer - 1, other, place) for other in ways] if layer else []
                before = place - way
                beside = [("read", layer, way, before)] if 0 <= before < n else []
                needs["read", layer, way, place] = below + beside
    top = config.encoder_layers - 1
    summary = [("read", top, way, n - 1 if way == 1 else 0) for way in ways]
    for place in range(m):
        for layer in range(config.decoder_layers):
            beside = [("write", layer, place - 1)] if place else summary
            below = [("write", layer - 1, place)] if layer else []
            looked = []
            if config.attention == "additive" and layer == 0 and place:
                looked = [("write", config.decoder_layers - 1, place - 1)]
            needs["write", layer, place] = below + beside + looked
    return needs


@pytest.mark.parametrize("attention", ["none", "dot", "additive"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("layers", [(1, 1), (3, 2)])
def test_the_steps_of_recurrent_models_are_the_longest_chain_of_their_cells(
    attention, bidirectional, layers
):
    config = RecurrentConfig(
        attention=attention,
        bidirectional=bidirectional,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
    )
    n, m = 7, 5
    needs, chains = recurrent_cells(config, n, m), chains_of(config)
    reading = {cell: others for cell, others in needs.items() if cell[0] == "read"}
    assert chains.encoding.steps(n, m) == longest_chain(reading)
    assert chains.training.steps(n, m) == longest_chain(needs)
    assert chains.decoding.steps(n, m) == m * layers[1]
    known = {"n": n, "m": m}
    for chain in chains:
        formula = re.sub(r"(\d) ([nm])", r"\1*\2", chain.formula)
        assert eval(formula, {}, known) == chain.steps(n, m)


def test_other_models_read_all_words_at_once():
    for config in (TransformerConfig(), ConvolutionalConfig()):
        chains = chains_of(config)
        assert [chain.formula for chain in chains] == ["6", "12", "6 m"]
        assert chains.encoding.steps(10, 10) == chains.encoding.steps(1000, 10)


def test_every_family_can_be_described():
    for config in FAMILIES.values():
        assert chains_of(config()) is not None
        assert "6 + 6" in model_in_words(config(encoder_layers=6, decoder_layers=6))
        assert "2 layers of width 512" in model_in_words(config(encoder_layers=2), Encoder)
        alone = model_in_words(config(decoder_layers=3), CausalLM)
        assert "3 layers of width 512" in alone
        assert "attention" not in alone


# -- curves, energy, words -----------------------------------------------------------------------


def test_a_curve_knows_what_was_spent_without_validations():
    log = [
        {"step": 10, "tokens_per_second": 100, "seconds": 20.0, "learning_seconds": 10.0},
        {"step": 10, "valid_loss": 4.0, "valid_bleu": 1.0},
        {"step": 20, "tokens_per_second": 200, "seconds": 99.0, "learning_seconds": 24.0},
        {"step": 15, "valid_loss": 3.0},
        {"step": 30, "tokens_per_second": 200, "seconds": 109.0, "learning_seconds": 30.0},
    ]
    curve = learning_curve(log, tokens_a_step=200.0, metric="bleu")
    assert [point.seconds for point in curve] == pytest.approx([10, 17])
    assert [(point.step, point.tokens, point.loss, point.score) for point in curve] == [
        (10, 2000, 4.0, 1.0),
        (15, 3000, 3.0, None),
    ]
    assert learning_seconds(log) == pytest.approx(30)
    assert learning_seconds([]) == 0
    older = [{"step": 10, "tokens_per_second": 100, "seconds": 20.0}]
    assert learning_seconds(older) == 20, "all that older logs say"
    assert training_speed(log) == 200
    assert training_speed(log[:1]) == 100


def test_energy_is_power_times_time_and_says_whose_power():
    known = {"device": "cpu", "n_threads": 2}
    given_watts = estimate_energy(1800.0, measured=300.0, given=100.0, **known)
    assert (given_watts.watt_hours, given_watts.watts) == (50, 100)
    assert "--watts" in given_watts.how
    assert estimate_energy(3600.0, measured=300.0, given=None, **known).watt_hours == 300
    assumed = estimate_energy(3600.0, measured=None, given=None, **known)
    assert (assumed.watt_hours, "assumed" in assumed.how) == (20, True)
    unknown = estimate_energy(1.0, measured=None, given=None, device="cuda", n_threads=2)
    assert unknown.watt_hours is None


def test_watts_are_the_mean_of_what_a_gpu_shows():
    assert mean_watts("100.0\n[N/A]\n200.5\n\n") == pytest.approx(150.25)
    assert mean_watts("[N/A]\n") is None
    with power_meter(CPU) as power:
        pass
    assert power.watts is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.09))
def test_labels_keep_their_gap_and_their_order(places, gap):
    moved = apart(places, gap)
    ordered = sorted(range(len(places)), key=places.__getitem__)
    for before, after in pairwise(ordered):
        assert moved[after] - moved[before] >= gap - 1e-9
    assert max(moved) <= 1 + 1e-9
    if all(after - before >= gap for before, after in pairwise(sorted(places))):
        assert moved == pytest.approx(places)


def test_words_that_the_reference_does_not_have_are_marked():
    words = mark("Der Hund schlafen heute .", "Der Hund schläft heute .")
    assert [word.text for word in words if not word.is_right] == ["schlafen"]
    assert mark("", "Der Hund.") == []


def test_names_and_numbers_are_said_shortly():
    assert short_names(["demo-rnn", "demo-rnn-attention"]) == {
        "demo-rnn": "rnn",
        "demo-rnn-attention": "rnn-attention",
    }
    assert short_names(["one", "other"]) == {"one": "one", "other": "other"}
    assert short_names(["a-", "a-b"]) == {"a-": "a-", "a-b": "b"}
    assert [counted(n) for n in (0, 950, 9_999, 12_345, 1_234_567, 2.5e9)] == [
        "0", "950", "9,999", "12.3 k", "1.23 M", "2.5 G",
    ]  # fmt: skip
    assert [timed(n) for n in (0.5, 99, 600, 9000)] == ["0.5 s", "99 s", "10 min", "2.5 h"]
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert printable("ä\t€𝄞 \x00\x1b\x7f\x85\ud800\uffff") == "ä\t€𝄞 ������"


# -- whole comparisons ---------------------------------------------------------------------------


class Answer(NamedTuple):
    code: int | None
    stdout: str
    stderr: str


@pytest.fixture
def call(monkeypatch, capfd):
    """Run the real entry point in this process."""

    def run(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return Answer(exit_.value.code, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def names(folder) -> list[str]:
    return [write_recipe(folder, name) for name in MODELS]


@pytest.fixture(scope="module")
def compared(folder, names, tmp_path_factory) -> Compared:
    """Compare three small systems, each in a real process on one core."""

    def run(report: Path) -> Compared:
        return compare(names, {}, report, "cpu", command="attendo compare x & y")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        make_once(tmp_path_factory.getbasetemp(), "compared", run, folder / "report")
        return run(folder / "report")  # only reported again


@pytest.mark.slow
def test_numbers_agree_with_the_runs_they_come_from(compared, folder):
    report = json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))
    assert {system["name"] for system in report["systems"]} == set(MODELS)
    for system in report["systems"]:
        run = folder / "report" / "runs" / system["name"]
        card = read_score_card(run)
        # Two ways to the same score: the end of the training, and the clocked translation.
        assert system["quality"]["scores"]["bleu"] == card["bleu"]
        assert system["quality"]["scores"]["chrf"] == card["chrf"]
        assert system["n_parameters"] == card["parameters"]
        assert system["training"]["steps"] == 12
        assert [point["step"] for point in system["curve"]] == [4, 8, 12]
        assert system["memory"]["peak_bytes"] > system["memory"]["before_bytes"] > 0
        speeds = [e["tokens_per_second"] for e in read_log(run / "log.jsonl") if "epoch" in e]
        assert min(speeds) <= system["training"]["tokens_per_second"] <= max(speeds)
        assert system["energy"]["watt_hours"] > 0
    assert len(report["sentences"]) == 40
    assert all(one["translations"].keys() == set(MODELS) for one in report["sentences"])
    assert len(report["significance"]) == 2 * 3
    assert report["is_same_budget"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "layers", "metric", "columns"),
    [
        ("language-model", "decoder_layers", "perplexity", ["perplexity", "bits/byte"]),
        (
            "masked-language-model",
            "encoder_layers",
            "pseudo_perplexity",
            ["pseudo-perplexity", "accuracy"],
        ),
    ],
)
def test_recipes_of_other_tasks_are_compared_as_well(
    tmp_path, task, layers, metric, columns, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sizes = {"tokenizer.vocabulary": 400, "model.d_ff": 32, "model.n_heads": 2, "data.builtin": 400}
    sizes |= {"data.hold_out": 20, f"model.{layers}": 1}
    steps = {"training.steps": 4, "training.validate_every": 2, "training.batch_tokens": 512}
    names = []
    for d_model in (16, 32):
        recipe = load_recipe(task, {**sizes, **steps, "model.d_model": d_model})
        path = tmp_path / f"width-{d_model}.toml"
        path.write_text(recipe_text(recipe), encoding="utf-8")
        names.append(str(path))
    found = compare(names, {}, tmp_path / "report", "cpu").findings
    assert found.metric.name == metric
    assert [one.score for one in found.systems] == sorted(
        (one.score for one in found.systems), reverse=found.metric.higher_is_better
    )
    for one in found.systems:
        card = read_score_card(tmp_path / "report" / "runs" / one.name)
        assert one.score == card[metric]
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert all(f"| {column} |" in text for column in columns)
    assert "BLEU" not in text
    assert f"Validation {found.metric.title}" in text
    with pytest.raises(ConfigError, match=rf"different tasks: {task} and translation"):
        compare([names[0], "demo"], {}, tmp_path / "other", "cpu")


@pytest.mark.slow
def test_all_systems_have_the_same_pairs_and_share_their_preparation(compared, folder):
    data = [folder / "report" / "runs" / name / "state" / "data" for name in MODELS]
    for name in ("test.jsonl", "source.ids.npy"):
        assert len({(one / name).stat().st_ino for one in data}) == 1


class Page(NamedTuple):
    text: str
    root: ElementTree.Element

    def all(self, tag: str) -> list[ElementTree.Element]:
        return [one for one in self.root.iter() if one.tag.split("}")[-1] == tag]


@pytest.fixture(scope="module")
def page(compared) -> Page:
    text = compared.page.read_text(encoding="utf-8")
    return Page(text, ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>")))


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_but_itself(page):
    assert not page.all("script")
    assert not page.all("link")
    assert not page.all("img")
    addresses = set(re.findall(r"https?://[^\"' <]+", page.text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    names = [one.attrib["id"] for one in page.root.iter() if "id" in one.attrib]
    assert len(names) == len(set(names))
    used = re.findall(r'(?:url\(#|href="#)([\w-]+)', page.text)
    assert used
    assert set(used) <= set(names)


@pytest.mark.slow
def test_the_page_shows_every_system_to_all_readers(page):
    pictures = page.all("svg")
    assert len(pictures) == 6 + 4 + 3
    for picture in pictures:
        assert picture.attrib["role"] == "img"
        assert any(name in picture.attrib["aria-label"] for name in MODELS)
    for table in page.all("table"):
        heads = [one for one in table.iter() if one.tag == "th"]
        assert {one.attrib["scope"] for one in heads} == {"col", "row"}
        assert (
            len(
                [
                    one
                    for one in page.all("figcaption")
                    if one.attrib.get("id") == table.attrib["aria-labelledby"]
                ]
            )
            == 1
        )
    shown = {one.text for one in page.all("th")} | {one.text for one in page.all("dt")}
    assert shown >= set(MODELS)
    assert "attendo compare x &amp; y" in page.text
    headings = [one.tag for one in page.root.iter() if re.fullmatch("h[1-6]", str(one.tag))]
    assert headings[0] == "h1"
    assert set(headings[1:]) == {"h2"}


@pytest.mark.slow
def test_no_colour_of_the_light_page_is_left_fixed(page):
    styles = [one.attrib.get("style", "") for svg in page.all("svg") for one in svg.iter()]
    assert [style for style in styles if re.search(r"#[0-9a-f]{6}", style)] == []
    # Without a colour, text would be black on any page.
    assert all("fill: var(--" in one.attrib["style"] for one in page.all("text"))


@pytest.mark.slow
def test_the_text_has_the_same_tables_and_its_pictures_exist(compared, folder, page):
    text = (folder / "report" / "report.md").read_text(encoding="utf-8")
    linked = re.findall(r"!\[[^\]]+\]\((plots/[\w-]+\.svg)\)", text)
    assert len(linked) == len(page.all("svg"))
    for path in linked:
        ElementTree.parse(folder / "report" / path)
    table = main_table(compared.findings)
    for row in table.rows:
        line = next(line for line in text.splitlines() if line.startswith(f"| {row[0]} |"))
        assert [cell.strip(" *") for cell in line.strip("|").split("|")] == row


@pytest.mark.slow
def test_a_finished_comparison_is_only_reported_again(compared, folder, names, call):
    report = folder / "report"
    trained = [*report.glob("runs/*/model.safetensors"), *report.glob("measured/*/*.json")]
    before = {path: path.stat().st_mtime_ns for path in trained}
    assert len(before) == 9
    (report / "report.html").unlink()
    answer = call("compare", *names, "--out", report, "--device", "cpu", "--watts", 50, "--json")
    assert answer.code is None
    numbers = json.loads(answer.stdout)
    assert {system["energy"]["watts"] for system in numbers["systems"]} == {50}
    assert {path: path.stat().st_mtime_ns for path in trained} == before
    assert "--watts 50" in (report / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_terminal_shows_the_table_and_where_the_report_is(compared, folder, names, call):
    answer = call("compare", *names, "--out", folder / "report", "--device", "cpu")
    assert all(re.search(rf"^ *{name} .*\d", answer.stdout, re.MULTILINE) for name in MODELS)
    assert "tiny-gru (2 of 3): done" in answer.stderr
    assert f"report: {folder / 'report' / 'report.html'}" in answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--set", "training.steps=13"], "holds another comparison"),
        (["--budget-tokens", "5000"], "holds another comparison: its budget was"),
        (["--budget-tokens", "5", "--budget-seconds", "1"], "give one of them, not both"),
        (["no-such.toml"], "recipe file 'no-such.toml' does not exist"),
        (["--budget-tokens", "none"], "--budget-tokens"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(compared, folder, names, call, words, expected):
    report = folder / "report"
    before = {path: path.stat().st_mtime_ns for path in report.rglob("*.*")}
    answer = call("compare", *names, "--out", report, "--device", "cpu", *words)
    assert answer.code == 2
    assert answer.stdout == ""
    assert re.fullmatch(r"error: .*\n", answer.stderr)
    assert expected in answer.stderr
    assert {path: path.stat().st_mtime_ns for path in report.rglob("*.*")} == before


def is_free(lock: Path) -> bool:
    """Return whether no process holds a lock."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait_for(condition: Any, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_comparison_that_is_interrupted_and_killed_ends_as_the_whole_one(
    compared, folder, names, tmp_path
):
    report = tmp_path / "report"
    words = [sys.executable, "-m", "attendo", "compare", *names, "--out", str(report)]
    words += ["--device", "cpu"]

    # Ctrl-C in the first training: it saves, and prints how to continue.
    process = start(words)
    wait_for((report / "runs" / "tiny-transformer" / "log.jsonl").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "stopped and saved" in said
    assert "continue with: " in said
    assert not (report / "report.html").exists()

    # A kill in the second: what it had started saves its step and goes, too.
    process, gru = start(words), report / "runs" / "tiny-gru"
    wait_for(lambda: (gru / "log.jsonl").exists() and read_log(gru / "log.jsonl"))
    process.kill()
    process.communicate()
    assert not (report / "runs" / "tiny-conv" / "log.jsonl").exists()
    wait_for(lambda: is_free(report / ".lock"))
    last = max(entry["step"] for entry in read_log(gru / "log.jsonl"))
    saved = [int(path.name.removeprefix("step-")) for path in (gru / "state").glob("step-*")]
    assert saved or (gru / "model.safetensors").exists()
    assert max(saved, default=last) >= last, "it had the time to save what it knew"

    process = start(words)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "tiny-transformer (1 of 3): done" in said
    for name in MODELS:
        own, whole = report / "runs" / name, folder / "report" / "runs" / name
        assert same_tensors(
            read_tensors(own / "model.safetensors"), read_tensors(whole / "model.safetensors")
        )


@pytest.mark.slow
def test_what_was_not_noted_in_time_is_not_made_up(compared, folder, names, tmp_path, call):
    report = tmp_path / "report"
    shutil.copytree(folder / "report", report)
    for note in (report / "measured" / "tiny-gru").glob("*.json"):
        note.unlink()
    weights = (report / "runs" / "tiny-gru" / "model.safetensors").read_bytes()
    answer = call("compare", *names, "--out", report, "--device", "cpu", "--json")
    numbers = {system["name"]: system for system in json.loads(answer.stdout)["systems"]}
    assert numbers["tiny-gru"]["memory"] == {"peak_bytes": None, "before_bytes": None}
    assert numbers["tiny-conv"]["memory"]["peak_bytes"] > 0
    assert (report / "runs" / "tiny-gru" / "model.safetensors").read_bytes() == weights
    row = next(line for line in (report / "report.md").read_text().splitlines() if "gru |" in line)
    assert "| – |" in row


@pytest.mark.slow
def test_the_clock_ends_every_training_and_a_system_that_fails_is_named(
    folder, tmp_path, monkeypatch, call
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    names = [write_recipe(tmp_path, name) for name in ("tiny-transformer", "tiny-gru")]
    names.append(
        write_recipe(tmp_path, "tiny-conv", training={"learning_rate": 1e6, "weight_decay": 100.0})
    )
    pairs = tmp_path / "mine.tsv"
    drawn = islice(sentences(seed=3), 300)
    pairs.write_text("".join(f"{one.source}\t{one.target}\n" for one in drawn), encoding="utf-8")
    report = tmp_path / "report"
    answer = call(
        "compare", *names, "--pairs", pairs, "--budget-seconds", 1, "--out", report,
        "--device", "cpu", "--json",
    )  # fmt: skip
    assert answer.code == 1  # a script is to notice
    numbers = json.loads(answer.stdout)
    assert [*numbers["failed"]] == ["tiny-conv"]
    reason = numbers["failed"]["tiny-conv"]  # whether a step or a validation is the first to see it
    assert "the loss of step" in reason or "is not finite" in reason
    settings = TrainingConfig(**COMMON["training"])
    last = settings.learning_rate * SCHEDULES["cosine"](settings.steps, settings, 16)
    for system in numbers["systems"]:
        training = system["training"]
        assert 1 <= training["seconds"] < 10  # machines are shared, and steps are short
        assert training["seconds"] < training["seconds_in_all"], "validations are not counted"
        assert len(system["curve"]) > 1, "validations have kept their places"
        entries = read_log(report / "runs" / system["name"] / "log.jsonl")
        rates = [one["learning_rate"] for one in entries if "learning_rate" in one]
        assert rates[-1] == pytest.approx(last), "the schedule has come to its end"
    page = (report / "report.html").read_text(encoding="utf-8")
    assert "dependencies are known for the built-in corpus only" in page
    assert "tiny-conv is not in this report" in page


@pytest.mark.slow
def test_models_of_one_size_are_trained_and_said_to_be(names, tmp_path, monkeypatch, call):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    report = tmp_path / "report"
    other = ["compare", *names[:2], "--out", report, "--device", "cpu"]
    words = [*other, "--budget-parameters", 40_000]
    answer = call(*words, "--json")
    assert not answer.code, answer.stderr
    numbers = json.loads(answer.stdout)
    for system in numbers["systems"]:
        assert system["n_parameters"] == pytest.approx(40_000, rel=0.08)
        assert (
            system["n_parameters"]
            == read_score_card(report / "runs" / system["name"])["parameters"]
        )
    assert "tiny-transformer: model.d_model = 36 instead of 16" in answer.stderr
    page = (report / "report.html").read_text(encoding="utf-8")
    assert "about 40,000 parameters each" in page
    assert "Models were made wider or narrower" in page
    again = call(*words)
    assert not again.code, again.stderr
    assert "model.d_model" not in again.stderr, "all is done"
    assert "holds another comparison" in call(*other).stderr


# -- what is said --------------------------------------------------------------------------------


def with_verdict(findings: Findings, p: float) -> Findings:
    """Change how sure the test is of everything."""
    verdicts = [one._replace(p_of_all=p, is_tested=True) for one in findings.verdicts]
    return replace(findings, verdicts=verdicts, untrained=[])


def with_bleu(findings: Findings, *values: float) -> Findings:
    """Give the systems, from the first to the last, other scores."""
    systems = [
        replace(system, scores={**system.scores, "bleu": value})
        for system, value in zip(findings.systems, values, strict=True)
    ]
    return replace(findings, systems=systems, untrained=[])


@pytest.mark.slow
def test_a_win_is_claimed_only_where_the_test_is_sure(compared):
    findings = with_bleu(compared.findings, 50.0, 40.0, 30.0)
    sure = " ".join(summarise(with_verdict(findings, 0.001)))
    assert f"{findings.names[0]} is best: 50.0 BLEU" in sure
    assert "The difference is significant." in sure
    first, _, last = findings.names
    but_one = [
        one._replace(p_of_all=0.4 if {one.better, one.worse} == {first, last} else 0.001)
        for one in findings.verdicts
    ]
    told = " ".join(summarise(replace(findings, verdicts=but_one)))
    assert f"but the difference from {last} (30.0) is not significant" in told
    unsure = " ".join(summarise(with_verdict(findings, 0.4)))
    assert "is best" not in unsure
    assert "is not significant" in unsure
    assert all(name in unsure for name in findings.names)


@pytest.mark.slow
def test_models_that_have_learned_nothing_are_not_praised(compared):
    told = " ".join(summarise(with_bleu(compared.findings, 3.0, 2.0, 1.0)))
    assert "No system has learned to translate well" in told
    assert "is best" not in told
    assert "long" not in told
    told = " ".join(summarise(with_bleu(compared.findings, 60.0, 2.0, 1.0)))
    assert "No system has learned" not in told


@pytest.mark.slow
def test_no_significance_is_reported_between_systems_that_learned_nothing(compared):
    findings = with_bleu(compared.findings, 3.0, 2.0, 1.0)
    first, second, third = findings.names
    verdicts = with_verdict(findings, 0.001).verdicts

    def with_untrained(*names: str) -> Findings:
        changed = [
            one._replace(p=1.0, p_of_all=1.0, is_tested=not {one.better, one.worse} <= set(names))
            if {one.better, one.worse} <= set(names)
            else one
            for one in verdicts
        ]
        return replace(findings, untrained=list(names), verdicts=changed)

    nothing = with_untrained(first, second, third)
    told = " ".join(summarise(nothing))
    assert f"{first}, {second} and {third} have learned nothing" in told
    assert "significant" not in told
    cells = [cell for row in significance_table(nothing).rows for cell in row[1:] if cell]
    assert all(cell.endswith("(–)") for cell in cells)
    some = with_untrained(second, third)
    told = " ".join(summarise(some))
    assert f"{second} and {third} have learned nothing" in told
    assert f"more than {second} (2.0). The difference is significant." in told
    [[_, *best], [_, _, last]] = significance_table(some).rows
    assert [cell.split("*")[1] for cell in best] == [" (p = 0.001)"] * 2
    assert last.endswith("(–)")


@pytest.mark.slow
def test_p_values_are_printed_in_one_place(compared, page):
    assert page.text.count("p = ") + page.text.count("p &lt; ") <= 3, "one for each pair"
    assert " p = " not in " ".join(summarise(with_verdict(compared.findings, 0.01)))


@pytest.mark.slow
def test_the_commands_of_the_report_work_as_typed(compared, folder, names, tmp_path, call):
    # A folder whose name must be quoted.
    report = tmp_path / "a report"
    shutil.copytree(folder / "report", report)
    call("compare", *names, "--out", report, "--device", "cpu")
    text = (report / "report.md").read_text(encoding="utf-8")
    again, translate, serve = text.rstrip().removesuffix("```").split("```")[-1].split("\n")[1:-1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for line in (again, translate):
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert len(shlex.split(translate)[-1].split()) > 1, "a sentence of the test pairs"
    with subprocess.Popen(
        f"exec {serve} --port 0", shell=True, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stderr
            found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stderr)))
            status, models, _ = send(found[0].rstrip("/"), "/api/models")
            assert status == 200
            assert all(name in json.dumps(models) for name in MODELS)
        finally:
            process.terminate()


@pytest.mark.slow
def test_a_time_that_was_not_kept_is_said(compared):
    findings, took = compared.findings, compared.findings.systems[0].training.seconds
    alike = [
        replace(system, training=system.training._replace(seconds=took))
        for system in findings.systems
    ]
    kept = replace(findings, systems=alike, budget=Budget("seconds", 1.1 * took))
    assert "did not have the same time" not in " ".join(summarise(kept))
    missed = replace(findings, systems=alike, budget=Budget("seconds", 1.3 * took))
    assert "did not have the same time" in " ".join(summarise(missed))


@pytest.mark.slow
def test_uneven_sizes_and_budgets_are_said(compared):
    assert compared.findings.size_ratio > 1.2
    told = " ".join(summarise(compared.findings))
    assert "The models differ in size" in told
    assert "did not have the same training budget" not in told
    told = " ".join(summarise(replace(compared.findings, is_same_budget=False)))
    assert "did not have the same training budget" in told
    alike = [replace(system, n_parameters=100) for system in compared.findings.systems]
    told = " ".join(summarise(replace(compared.findings, systems=alike)))
    assert "differ in size" not in told


# -- readers -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_found_by_an_accessibility_check(compared, theme):
    with browsing() as driver:
        emulate(driver, 1280, 1000, theme)
        driver.get(compared.page.as_uri())
        driver.execute_script((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
        found = driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run().then((found) => done(found.violations));"
        )
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver")
def test_the_page_fits_every_screen_and_wide_tables_scroll_with_a_hint(compared):
    with browsing() as driver:
        for width, least in ((390, 1), (1440, 0)):
            for theme in ("light", "dark"):
                emulate(driver, width, 900, theme)
                driver.get(compared.page.as_uri())
                assert fits_the_screen(driver) >= least
