"""Noise in training pairs: what people write, in the shares that are asked for, repeatable."""

import json
import os
import random
import shutil
import signal

import numpy as np
import pytest

from attendo.bundle import read_score_card
from attendo.cli import app
from attendo.config import NoiseConfig
from attendo.data.batches import Position, stream
from attendo.engines.files import Evaluation, evaluate_files
from attendo.errors import ConfigError
from attendo.reporter import Reporter
from attendo.tasks.noise import PairNoise
from attendo.text import NOISES, add_noise
from attendo.training.complete import Interrupted
from small_runs import AfterSteps, assert_same_run, open_workshop, small_recipe, small_run

PAIR = ("A cat sleeps on the warm roof.", "Eine Katze schläft auf dem Dach.")

EVERY = {f"noise.{kind}": 0.2 for kind in NOISES}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("caps", ("A CAT SLEEPS ON THE WARM ROOF.", "EINE KATZE SCHLÄFT AUF DEM DACH.")),
        ("title", ("A Cat Sleeps On The Warm Roof.", "Eine Katze Schläft Auf Dem Dach.")),
        ("punctuation", ("A cat sleeps on the warm roof", "Eine Katze schläft auf dem Dach")),
    ],
)
def test_noise_of_both_sides(kind, expected):
    assert add_noise(kind, PAIR, random.Random(0)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_the_source_leaves_the_target_and_most_of_the_source(seed):
    source, target = add_noise("spaces", PAIR, random.Random(seed))
    assert target == PAIR[1]
    assert source.replace(" ", "") == PAIR[0].replace(" ", "")
    assert 0 < PAIR[0].count(" ") - source.count(" ") <= 4
    source, target = add_noise("typos", PAIR, random.Random(seed))
    assert target == PAIR[1]
    words = list(zip(source.split(), PAIR[0].split(), strict=True))
    assert 1 <= sum(one != other for one, other in words) <= 4
    assert all(one[0] == other[0] and abs(len(one) - len(other)) <= 1 for one, other in words)


@pytest.mark.parametrize("kind", NOISES)
def test_nothing_is_left_empty(kind):
    for text in ("!", "?", ".", "A", "…", "1 2"):
        assert all(add_noise(kind, (text, "."), random.Random(0)))


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="no noise is called 'cap'; did you mean 'caps'"):
        add_noise("cap", PAIR, random.Random(0))
    with pytest.raises(ConfigError, match=r"the shares add up to 1\.3"):
        small_recipe({"noise.caps": 0.6, "noise.typos": 0.7})
    with pytest.raises(ConfigError, match=r"\[noise\] is for the task"):
        small_recipe({"task": "language-model", "noise.caps": 0.6})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_batches_have_noise_in_the_share_that_is_asked_for(tmp_path, dropout):
    shares = {"noise.caps": 0.25, "noise.punctuation": 0.25, "tokenizer.dropout": dropout}
    recipe = small_recipe({**shares, "data.builtin": 400})
    task, data = open_workshop(recipe, tmp_path / "data")
    noise = PairNoise(recipe.noise, {"source": task.source, "target": task.target})
    numbers = np.arange(data.train.size)

    def texts(seed, change=lambda columns, chance: columns):
        chance = np.random.default_rng(seed)
        columns = {name: side.take(numbers, chance) for name, side in data.train.columns.items()}
        changed = change(columns, chance)
        return [task.decode(pair) for pair in zip(*(c.sequences() for c in changed.values()))]  # noqa: B905

    clean, noisy = texts(1), texts(1, noise)
    assert noisy == texts(1, noise) != texts(2, noise)
    caps = [one.source.isupper() and one.target.isupper() for one in noisy]
    short = [one.target == other.target[:-1] for one, other in zip(noisy, clean, strict=True)]
    same = [one == other for one, other in zip(noisy, clean, strict=True)]
    assert np.mean(caps) == pytest.approx(0.25, abs=0.08)
    assert np.mean(short) == pytest.approx(0.25, abs=0.08)
    assert sum(caps) + sum(short) + sum(same) == len(clean)
    none = PairNoise(NoiseConfig(), noise.tokenizers)
    assert texts(1, none) == clean

    plain = task.layout(recipe.data, 768)
    layout = task.noisy(plain, recipe.noise)
    later = list(zip(range(6), stream(data.train, layout, 3, Position()), strict=False))
    position = later[2][1][0]
    again = [next(stream(data.train, layout, 3, position))[1]]
    assert again[0].inputs["source"].ids.equal(later[3][1][1].inputs["source"].ids)
    other = next(stream(data.train, plain, 3, position))[1]
    assert not again[0].inputs["source"].ids.equal(other.inputs["source"].ids)


@pytest.mark.usefixtures("unchecked")
def test_a_resumed_run_has_the_same_noise(tmp_path):
    small_run(tmp_path / "whole", EVERY)
    stop = AfterSteps(6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        small_run(tmp_path / "split", EVERY, reporter=stop)
    small_run(tmp_path / "split", EVERY, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    with pytest.raises(ConfigError, match=r"other settings in \[noise\]"):
        small_run(tmp_path / "split", {"noise.caps": 0.1}, resume=True)


@pytest.mark.usefixtures("unchecked")
def test_evaluate_measures_with_noise(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("state"))
    for name, text in zip(("a.en", "a.de"), ("The dog sleeps.", "Der Hund schläft."), strict=True):
        (tmp_path / name).write_text(f"{text}\n" * 3, encoding="utf-8")
    files = ["--source", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de")]
    scores = {}
    for noise in (None, "caps"):
        options = [] if noise is None else ["--noise", noise]
        app(["evaluate", str(run), *files, "--json", *options], standalone_mode=False)
        scores[noise] = json.loads(capsys.readouterr().out)
    assert scores["caps"]["bleu"] < scores[None]["bleu"]
    assert scores["caps"]["noise"] == "caps"
    assert "noise" not in scores[None]
    kept = read_score_card(run)["evaluations"]
    assert [one.get("noise") for one in kept] == [None, "caps"]


def test_a_noise_that_does_not_exist_is_reported_before_a_model_is_loaded(tmp_path, trained):
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("state"))
    (run / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="--noise = 'shouting' is not known"):
        evaluate_files(run, ["a.en", "a.de"], Evaluation(noise="shouting"), Reporter())


def test_scores_of_clean_pairs_replace_those_of_noisy_ones_as_the_scores_of_a_run(
    trained, tmp_path
):
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("state"))
    (run / "scorecard.json").unlink()
    (tmp_path / "pairs.tsv").write_text("The dog sleeps.\tDer Hund schläft.\n", encoding="utf-8")
    for noise in ("caps", None, "typos"):
        how = Evaluation({"beam": 1}, "cpu", engine="torch", noise=noise)
        evaluate_files(run, [str(tmp_path / "pairs.tsv")], how, Reporter())
    card = read_score_card(run)
    assert "noise" not in card
    assert [one["noise"] for one in card["evaluations"]] == ["caps", "typos"]
