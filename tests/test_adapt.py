"""A training that starts from another run: what it takes over, keeps, gains and loses."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import attendo
from attendo.bundle import read_score_card, read_tensors
from attendo.cli.output import print_scores
from attendo.config import load_recipe
from attendo.data.readers import Pair
from attendo.data.texts import open_texts
from attendo.engines.files import Evaluation, evaluate_files
from attendo.errors import AttendoError, BundleError, ConfigError
from attendo.lab.compare.plan import choose_budget, make_plan
from attendo.reporter import Reporter
from attendo.training.adapt import open_start
from attendo.training.auto import choose_adaptation
from attendo.training.complete import Interrupted
from attendo.training.learner import Validator
from attendo.training.log import read_log
from attendo.training.run import train_run
from small_runs import CPU, AfterSteps, assert_same_run, same_tensors, small_run

UND = " ".join(["und"] * 4)
GENTLE: dict[str, Any] = {"training.learning_rate": 1e-3, "training.steps": 9}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "run"
    small_run(folder, {"training.average": 1})
    return folder


def adapt(folder: Path, base: Path, changes: dict[str, Any] | None = None, **how) -> dict[str, Any]:
    return small_run(folder, {"start": str(base), **GENTLE, **(changes or {})}, **how)


def interrupted_after(n_steps: int) -> AfterSteps:
    return AfterSteps(n_steps, lambda: signal.raise_signal(signal.SIGINT))


class Listening(AfterSteps):
    """Records all messages."""

    def __init__(self) -> None:
        super().__init__(0, lambda: None)
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


def test_it_begins_where_the_other_run_ended(base, tmp_path):
    adapt(tmp_path / "run", base)
    before = [
        entry["valid_loss"] for entry in read_log(base / "log.jsonl") if "valid_loss" in entry
    ]
    first = read_log(tmp_path / "run" / "log.jsonl")[0]
    assert first == {"step": 0, "valid_loss": min(before)}
    for name in ("tokenizer.json",):
        assert (tmp_path / "run" / name).read_text() == (base / name).read_text()


def test_if_nothing_is_gained_the_weights_stay_what_they_were(base, tmp_path):
    card = adapt(tmp_path / "run", base, {"training.learning_rate": 5.0, "training.average": 3})
    assert card["checkpoint"] == "start"
    assert card["start"]["kept"] is True
    assert card["start"]["valid_loss"] == card["start"]["valid_loss_before"]
    weights = read_tensors(tmp_path / "run" / "model.safetensors")
    assert same_tensors(weights, read_tensors(base / "model.safetensors"))
    assert card["start"]["before"] == card["bleu"]
    assert card["start"]["own_before"] == card["start"]["own_after"]


@pytest.mark.parametrize(
    ("bleus", "chosen"),
    [
        ([30.0, 29.0, 28.0], "start"),
        ([30.0, 29.0, 30.0], "step 8"),
        ([30.0, 31.0], "step 9"),
    ],
)
def test_a_lower_loss_with_a_lower_bleu_is_no_gain(base, tmp_path, monkeypatch, bleus, chosen):
    judged = iter(bleus)
    # The last step is validated too: step 8 has the best loss, and 9 and 8 are the candidates.
    script = iter([3.0, 2.5, 2.1, 2.4, 2.2, 2.3, 3.0])
    monkeypatch.setattr(Validator, "loss", lambda self, model: next(script))
    monkeypatch.setattr(Validator, "score", lambda self, model, records=None: next(judged))
    reporter = Listening()
    changes = {"training.average": 1, "training.validate_every": 4, "training.steps": 9}
    card = adapt(tmp_path / "run", base, changes, reporter=reporter)
    assert card["checkpoint"] == chosen
    assert card["start"]["kept"] is (chosen == "start")
    assert card["start"]["valid_bleu_before"] == 30.0
    is_said = any("the new records did not help" in message for message in reporter.said)
    assert is_said is (chosen == "start")
    tensors = read_tensors(tmp_path / "run" / "model.safetensors")
    is_same = same_tensors(tensors, read_tensors(base / "model.safetensors"))
    assert is_same is (chosen == "start")


@pytest.mark.usefixtures("unchecked")
def test_gain_and_loss_are_scores_on_the_new_and_on_the_old_test_pairs(trained, tmp_path, capsys):
    """Adapted to translations that start with "und und und und", it gains there and loses here.

    Its start is trained so little that a smaller change would be made up for by more training.
    """
    pairs = open_texts(builtin(1000)).train()
    file = tmp_path / "and.tsv"
    file.write_text("".join(f"{pair.source}\t{UND} {pair.target}\n" for pair in pairs))
    settings = {
        "data.remember": 0,
        "training.steps": 80,
        "training.batch_tokens": 2048,
        "training.average": 1,
    }
    run = tmp_path / "run"
    attendo.train(from_run=trained, pairs=str(file), out=run, device="cpu", settings=settings)
    card = read_score_card(run)
    start = card["start"]
    assert start["run"] == str(trained)
    assert start["own_before"] == read_score_card(trained)["bleu"]
    assert start["before"] < card["bleu"]
    assert start["own_after"] < start["own_before"]

    print_scores(card, as_json=False)
    printed = capsys.readouterr().out
    assert (
        f"before    {start['before']:.2f}  (+{card['bleu'] - start['before']:.2f} BLEU)" in printed
    )
    assert f"on the test data of {trained}: {start['own_after']:.2f}  (-" in printed


def builtin(n: int):
    return load_recipe("demo", {"data.builtin": n, "data.hold_out": 10}).data


def test_the_scores_before_are_those_that_evaluate_finds(base, tmp_path):
    file = tmp_path / "other.tsv"
    pairs = list(open_texts(builtin(60)).train())
    file.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))
    changes = {"data.test_pairs": str(file)}
    card = adapt(tmp_path / "run", base, changes)
    translator = attendo.load(base, device="cpu")
    sources, targets = zip(*pairs, strict=True)
    found = translator.evaluate(list(sources), list(targets))
    assert card["start"]["before"] == pytest.approx(found.bleu, abs=0.01)


@pytest.mark.parametrize("dropout", [0.0, 0.2], ids=["", "bpe-dropout"])
def test_pairs_of_the_other_run_are_mixed_in(tmp_path, dropout):
    small_run(tmp_path / "base", {"tokenizer.dropout": dropout})
    recipe = load_recipe(str(tmp_path / "base" / "recipe.toml"))
    known = {*open_texts(recipe.data).train()}
    other = load_recipe("demo", {"data.builtin": 30, "data.hold_out": 5})
    new = open_texts(other.data)
    start = open_start(tmp_path / "base")
    both = start.mix(new, 2.0)
    pairs = list(both.train())
    assert pairs[:30] == list(new.train())
    assert {*pairs[30:]} <= known
    assert len({*pairs[30:]}) > 50  # some were there twice
    assert (both.n_train, both.n_remembered, len(pairs)) == (90, 60, 90)
    assert list(both.train()) == pairs
    assert list(start.mix(new, 0.0).train()) == list(new.train())
    assert len(list(start.mix(new, 1e308).train())) == 30 + 120


def test_interrupted_it_ends_as_if_it_never_had_been(base, tmp_path):
    adapt(tmp_path / "whole", base)
    for step in (1, 7):
        folder = tmp_path / f"stopped-{step}"
        with pytest.raises(Interrupted):
            adapt(folder, base, reporter=interrupted_after(step))
        adapt(folder, base, resume=True)
        assert_same_run(tmp_path / "whole", folder)


def test_when_the_other_run_is_gone_a_begun_one_still_ends(base, tmp_path):
    copy, run, reporter = tmp_path / "copy", tmp_path / "run", Listening()
    shutil.copytree(base, copy)
    with pytest.raises(Interrupted):
        adapt(run, copy, reporter=interrupted_after(5))
    shutil.rmtree(copy)
    card = adapt(run, copy, resume=True, reporter=reporter)
    assert card["start"].keys().isdisjoint({"before", "own_before", "own_after"})
    assert "valid_bleu_before" in card["start"]  # its parameters are in the state
    assert any("no comparison with the start" in message for message in reporter.said)


def test_a_bundle_without_its_state_will_do(base, tmp_path):
    shutil.copytree(base, tmp_path / "bundle", ignore=shutil.ignore_patterns("state"))
    reporter = Listening()
    card = adapt(tmp_path / "run", tmp_path / "bundle", reporter=reporter)
    message = "mixes in 0 of its training pairs: they were in its state/, which is missing"
    assert message in reporter.said
    assert "before" in card["start"]
    assert "own_after" not in card["start"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model.kind": "recurrent", "model.tied": "output"},
        {"tokenizer.shared": False, "model.tied": "output"},
    ],
    ids=["recurrent", "two vocabularies"],
)
def test_any_model_can_be_begun_with(tmp_path, changes):
    settings = {
        "data.builtin": 120,
        "data.hold_out": 7,
        "tokenizer.vocabulary": 350,
        "model.d_model": 16,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "training.steps": 4,
        "training.batch_tokens": 768,
        "decoding.strategy": "greedy",
        "decoding.max_extra": 1,
        **changes,
    }
    train_run("auto", settings, tmp_path / "base", CPU)
    again = {
        "start": str(tmp_path / "base"),
        "data.builtin": 60,
        "data.hold_out": 7,
        "training.steps": 3,
    }
    card = train_run("auto", again, tmp_path / "run", CPU)
    assert card["steps"] == 3
    recipe, before = (load_recipe(str(tmp_path / run / "recipe.toml")) for run in ("run", "base"))
    assert recipe.model == before.model
    assert recipe.tokenizer.shared == before.tokenizer.shared


# -- settings ------------------------------------------------------------------------------------


def test_what_the_weights_depend_on_cannot_be_changed(base, tmp_path):
    with pytest.raises(
        ConfigError, match=r"model\.d_ff = 48 does not fit the parameters of .*with 32"
    ):
        adapt(tmp_path / "run", base, {"model.d_ff": 48})
    with pytest.raises(ConfigError, match=r"tokenizer\.vocabulary = 400 does not fit"):
        adapt(tmp_path / "run", base, {"tokenizer.vocabulary": 400})
    assert not (tmp_path / "run").exists()


def test_dropout_can_be_changed(base, tmp_path):
    adapt(tmp_path / "run", base, {"model.p_drop": 0.4, "tokenizer.dropout": 0.1})
    recipe = load_recipe(str(tmp_path / "run" / "recipe.toml"))
    assert (recipe.model.p_drop, recipe.tokenizer.dropout) == (0.4, 0.1)


def test_auto_learns_gently_and_leaves_the_rest_as_it_was(base):
    other = {"start": str(base), "data.builtin": 2000, "training.seed": 5}
    start = open_start(base)
    recipe = start.hand_over(load_recipe("auto", other))
    chosen, choices = choose_adaptation(recipe, start.recipe, 2000, 10.0)
    before = start.recipe
    assert chosen.model == before.model
    assert chosen.decoding == before.decoding
    assert chosen.data.max_length == before.data.max_length
    assert chosen.training.seed == 5
    assert chosen.training.optimizer == before.training.optimizer
    assert chosen.training.learning_rate < before.training.learning_rate
    assert {choice.key.split(".")[0] for choice in choices} == {"training"}


@pytest.mark.parametrize(("steps", "highest_step"), [(5000, 400), (40, 40)])
def test_the_rate_is_a_share_of_the_highest_one_there_was(base, steps, highest_step):
    paper = {"training.schedule": "paper", "training.learning_rate": 2.0}
    paper |= {"training.warmup_steps": 400, "training.steps": steps}
    before = load_recipe(str(base / "recipe.toml"), paper)
    d_model = before.model.d_model
    highest = 2.0 * d_model**-0.5 * highest_step * 400**-1.5
    chosen, _ = choose_adaptation(load_recipe("auto"), before, 2000, 10.0)
    assert chosen.training.learning_rate == pytest.approx(highest / 3, rel=0.1)
    again = load_recipe("auto", {"training.schedule": "paper", "training.warmup_steps": 25})
    chosen, _ = choose_adaptation(again, before, 2000, 10.0)
    assert chosen.training.learning_rate * (25 * d_model) ** -0.5 == pytest.approx(
        highest / 3, rel=0.1
    )


def test_a_recipe_can_name_its_start_and_leave_the_rest_open(base, tmp_path):
    recipe = tmp_path / "more.toml"
    recipe.write_text(f'start = "{base}"\n[data]\nbuiltin = 60\nhold_out = 7\n')
    card = train_run(str(recipe), {"training.validation_bleu": 0}, tmp_path / "run", CPU)
    chosen = load_recipe(str(tmp_path / "run" / "recipe.toml"))
    assert card["steps"] == chosen.training.steps < 100
    assert chosen.training.schedule == "cosine"
    train_run(str(tmp_path / "run" / "recipe.toml"), {}, tmp_path / "again", CPU)
    assert_same_run(tmp_path / "run", tmp_path / "again")


def test_nothing_that_either_run_is_tested_with_is_trained_on(tmp_path):
    pairs = [Pair(f"one {n} two", f"eins {n} zwei") for n in range(200)]
    write_pairs(tmp_path / "all.tsv", pairs)
    write_pairs(tmp_path / "some.tsv", pairs[:100])
    files = {"data.builtin": 0, "data.pairs": str(tmp_path / "all.tsv")}
    small_run(tmp_path / "base", files)
    start = open_start(tmp_path / "base")
    data = start.prepared()
    assert data is not None
    new = open_texts(load_recipe("demo", {**files, "data.pairs": str(tmp_path / "some.tsv")}).data)
    both = start.mix(new, 100.0)
    trained = {pair.source for pair in both.train()}
    tested = {*data.valid_texts, *data.test_texts, *new.valid, *new.test}
    assert not trained & {pair.source for pair in tested}
    assert len(list(both.train())) == both.n_train
    assert sum(both.report.dropped.values()) + both.n_train - both.n_remembered == new.n_train


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))


def test_scores_on_other_pairs_say_nothing_of_gains(base, tmp_path):
    adapt(tmp_path / "run", base)
    for name, text in (("a.en", "The dog sleeps."), ("a.de", "Der Hund schläft.")):
        (tmp_path / name).write_text(text + "\n")
    files = [str(tmp_path / name) for name in ("a.en", "a.de")]
    scores = evaluate_files(tmp_path / "run", files, Evaluation(device="cpu"), Reporter())
    assert "start" not in scores
    assert "before" in read_score_card(tmp_path / "run")["start"]


def test_a_comparison_begins_all_systems_anew(base, tmp_path):
    recipe = tmp_path / "more.toml"
    recipe.write_text(f'start = "{base}"\n[data]\nbuiltin = 60\n')
    with pytest.raises(ConfigError, match=r"starts with the parameters .*remove 'start' from it"):
        make_plan([str(recipe)], {}, choose_budget(None, None, None), "cpu")


def test_it_can_be_resumed_from_anywhere(base, tmp_path, monkeypatch):
    monkeypatch.chdir(base.parent)
    settings = {"start": f"{base.name}/", **GENTLE}
    with pytest.raises(Interrupted):
        small_run(tmp_path / "run", settings, reporter=interrupted_after(2))
    monkeypatch.chdir(tmp_path)
    card = train_run("auto", {}, tmp_path / "run", CPU, resume=True)
    assert card["start"]["run"] == str(base)
    assert "before" in card["start"]


def test_begun_again_before_anything_was_saved_its_log_begins_anew(base, tmp_path):
    def die() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        adapt(tmp_path / "run", base, reporter=AfterSteps(2, die))
    adapt(tmp_path / "run", base, resume=True)
    assert [entry["step"] for entry in read_log(tmp_path / "run" / "log.jsonl")].count(0) == 1


def test_damaged_weights_are_noticed_before_anything_is_made(base, tmp_path):
    shutil.copytree(base, tmp_path / "copy")
    whole = (base / "model.safetensors").read_bytes()
    (tmp_path / "copy" / "model.safetensors").write_bytes(whole[:1000])
    with pytest.raises(BundleError, match="is damaged"):
        adapt(tmp_path / "run", tmp_path / "copy")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_begun_with_is_named(base, tmp_path):
    with pytest.raises(BundleError, match="/lost' is not a folder"):
        adapt(tmp_path / "run", Path("lost"))
    unfinished = tmp_path / "unfinished"
    with pytest.raises(Interrupted):
        small_run(unfinished, reporter=interrupted_after(2))
    with pytest.raises(BundleError, match=r"its training has not ended.*--resume"):
        adapt(tmp_path / "run", unfinished)
    assert not (tmp_path / "run").exists()


def test_a_run_cannot_be_resumed_with_another_start(base, tmp_path):
    adapt(tmp_path / "run", base)
    with pytest.raises(AttendoError, match=r"other settings in \[start\]"):
        adapt(tmp_path / "run", Path("elsewhere"), resume=True)
