"""Benchmarks measure what they claim to; how long it takes is not tested."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
import yaml

from attendo.bundle import save_task
from attendo.cli import main
from attendo.cli.bench import prepare as prepare_command
from attendo.cli.bench import train as train_command
from attendo.cli.bench import translate as translate_command
from attendo.cli.compare import compare as compare_command
from attendo.config import Recipe
from attendo.data.batches import Position, stream
from attendo.data.builtin import sentences
from attendo.data.texts import open_texts
from attendo.errors import BundleError, ConfigError, DataError
from attendo.lab.bench import prepare
from attendo.lab.bench.results import COLUMNS, settled_recipe
from attendo.lab.bench.sentences import draw_lengths, draw_sentences, numbered_task
from attendo.lab.bench.train import Training, enough_sentences
from attendo.lab.bench.translate import fresh
from attendo.lab.clock import Stretch, speed, split_evenly, time_stretch, training_flops
from attendo.models import build_model
from attendo.specials import IGNORE, Specials
from attendo.training.prepare import make_task
from attendo.training.prepare import prepare as prepare_data

BENCH = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCH))

import quality  # noqa: E402 -- found only now
from curves import Point, compare, in_words, read_curve  # noqa: E402
from peers import check_comparable  # noqa: E402
from peers.budget import Budget, Schedule  # noqa: E402
from peers.learner import Peer, Way  # noqa: E402
from peers.marian import Marian, Search, translate_texts  # noqa: E402
from peers.padded import endless_batches, padded_batches, plan_batches  # noqa: E402
from peers.toolkits import TOOLKITS, Job, write_texts  # noqa: E402
from peers.toolkits import train as train_toolkit  # noqa: E402
from peers.torch_nn import TorchTransformer  # noqa: E402
from peers.trial import open_job  # noqa: E402

CPU = torch.device("cpu")
SPECIALS = Specials(pad=0, bos=1, eos=2)
SMALL = {
    "data.max_length": 32,
    "tokenizer.vocabulary": 301,
    "model.d_model": 16,
    "model.d_ff": 24,
    "model.n_heads": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 1,
    "training.batch_tokens": 256,
}
OPTIONS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


def small(**changes: object) -> Recipe:
    return settled_recipe("tiny", {**SMALL, **{f"model.{key}": changes[key] for key in changes}})


@pytest.fixture
def run(monkeypatch, capfd) -> Callable[..., tuple[int | None, str, str]]:
    """Run the real entry point in this process."""

    def run(*words: object) -> tuple[int | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def call(run) -> Callable[..., tuple[int | None, str, str]]:
    """Run a benchmark."""
    return partial(run, "bench")


@pytest.fixture
def measured(call) -> Callable[..., dict]:
    """Run a benchmark for its JSON, which has the same frame for all of them."""

    def run(*words: object) -> dict:
        code, out, err = call(*words, "--json")
        assert (code, err) == (None, "")
        report = json.loads(out)
        assert report["bench"] == words[0]
        assert report["machine"].keys() >= {"hardware", "torch", "threads", "python"}
        assert report["settings"].keys() >= {"recipe", "model", "training", "vocabulary"}
        assert all(row.keys() <= COLUMNS.keys() for row in report["rows"])
        return report

    return run


# Made-up text


@pytest.mark.parametrize("mean", [27.0, 13.0])
def test_lengths_have_the_mean_asked_for_on_both_sides(mean):
    source, target = draw_lengths(50_000, mean, 127, np.random.default_rng(1))
    assert source.mean() == pytest.approx(mean, rel=0.01)
    assert target.mean() == pytest.approx(mean, rel=0.01)
    assert np.median(source) < 0.9 * mean, "many are short, few are long"
    assert np.corrcoef(source, target)[0, 1] > 0.9, "long sources have long targets"


def test_lengths_are_cut_at_what_a_row_holds():
    source, target = draw_lengths(5_000, 27.0, 31, np.random.default_rng(1))
    for side in (source, target):
        assert 1 <= side.min() < side.max() == 31


def test_the_same_seed_draws_the_same_sentences_and_no_special_tokens():
    one, same, other = (draw_sentences(50, small(), 9.0, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.source.ids, same.source.ids)
    assert not np.array_equal(one.source.offsets, other.source.offsets)
    for side in one:
        assert side.ids.min() >= len(SPECIALS)
        assert side.ids.max() < SMALL["tokenizer.vocabulary"]
    assert one.size == 50


def test_numbers_are_words_and_the_vocabulary_has_the_size_of_the_recipes():
    task = numbered_task(small())
    assert task.source.size == SMALL["tokenizer.vocabulary"]
    assert task.source.specials == SPECIALS
    drawn = draw_sentences(20, small(), 9.0, seed=1)
    texts = drawn.source_texts()
    assert task.source.encode_batch(texts) == [drawn.source_ids(number) for number in range(20)]
    assert task.target.decode(drawn.source_ids(0)) == texts[0]


# The clock


@pytest.mark.parametrize(("total", "parts"), [(10, [2] * 5), (7, [2, 2, 1, 1, 1]), (2, [1, 1])])
def test_steps_are_cut_into_stretches_none_of_them_empty(total, parts):
    assert split_evenly(total, 5) == parts


def test_a_stretch_counts_its_steps_and_tokens():
    tokens = iter([3, 5, 7])
    stretch = time_stretch(lambda: next(tokens), 3, CPU)
    assert stretch[:2] == (3, 15)
    assert stretch.seconds > 0


def test_speed_is_the_median_with_lowest_and_highest_beside_it():
    found = speed([Stretch(2, 100, 1.0), Stretch(2, 300, 1.0), Stretch(2, 400, 2.0)])
    assert found == {
        "tokens_per_second": 200,
        "tokens_per_second_low": 100,
        "tokens_per_second_high": 300,
        "milliseconds_per_step": 500,
    }


@pytest.mark.parametrize("feed_forward", ["relu", "gated"])
def test_a_pair_of_tokens_costs_six_operations_for_every_weight_of_a_matrix(feed_forward):
    recipe = small(feed_forward=feed_forward)
    vocabulary = recipe.tokenizer.vocabulary
    model = build_model(recipe.model, vocabulary, vocabulary)
    n_parameters = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
    assert training_flops(recipe.model, vocabulary, 1, 1) == 6 * n_parameters


# attendo bench train


def test_training_is_measured_and_shown(call):
    code, out, err = call("train", "tiny", *OPTIONS, "--steps", 3, "--mean-length", 9)
    assert (code, err) == (None, "")
    for title in ("target tokens/s", "ms/step", "target fill", "waiting for data", "first step s"):
        assert title in out
    assert "9 tokens on average" in out


def test_what_was_measured_in_training_is_in_the_json(measured):
    words = ("--steps", 2, "--warmup", 1, "--mean-length", 9, "--batch-tokens", 512, "--seed", 5)
    report = measured("train", "tiny", *OPTIONS, *words)
    (row,) = report["rows"]
    assert row.keys() >= {
        "tokens_per_second", "tokens_per_second_low", "tokens_per_second_high",
        "milliseconds_per_step", "source_fill", "target_fill", "waiting_share",
        "peak_memory_bytes", "seconds_to_first_step", "model_flops_per_second",
    }  # fmt: skip
    assert (row["steps"], row["batch_tokens"]) == (2, 512)
    assert 0 < row["target_fill"] <= 1
    assert 0 <= row["waiting_share"] <= 1
    training = report["settings"]["training"]
    assert (training["batch_tokens"], training["seed"]) == (512, 5)


def test_the_batches_and_their_fill_are_those_of_a_real_training():
    recipe = small()
    drawn = enough_sentences(recipe, 3, mean_length=9.0)
    training = Training(recipe, drawn, CPU)
    n_tokens = [training.step() for _ in range(3)]
    training.close()
    layout = numbered_task(recipe).layout(recipe.data, recipe.training.batch_tokens)
    real = stream(drawn.corpus(), layout, recipe.training.seed, Position())
    batches = [batch for _, batch in islice(real, 3)]
    assert n_tokens == [batch.n_labels for batch in batches]
    figures = training.figures(seconds=1.0)
    for side in ("source", "target"):
        segments = torch.cat([batch.inputs[side].segments for batch in batches])
        assert figures[f"{side}_fill"] == pytest.approx(float((segments > 0).float().mean()))


# attendo bench translate


def test_every_search_is_measured_with_every_batch_size(measured):
    sizes = ("--batch-size", 1, "--batch-size", 3, "--rounds", 2, "--beam", 2)
    report = measured("translate", "tiny", *OPTIONS, *sizes, "--mean-length", 5)
    cases = [(row["search"], row["batch_size"]) for row in report["rows"]]
    assert cases == [("greedy", 1), ("greedy", 3), ("beam 2", 1), ("beam 2", 3)]
    assert all(
        row.keys() >= {"sentences_per_second", "tokens_per_second", "milliseconds_per_batch"}
        for row in report["rows"]
    )
    assert report["settings"]["sentences"] == 3
    assert "one token longer than its source" in " ".join(report["notes"])


@pytest.mark.parametrize("options", [{"strategy": "greedy"}, {"strategy": "beam", "beam": 3}])
def test_fresh_weights_say_exactly_one_token_more_than_they_were_given(options):
    subject = fresh("tiny", SMALL, CPU, sentences=7, mean_length=9.0)
    found = subject.translator.translate(subject.texts, **subject.options, **options, batch_size=3)
    lengths = [len(text.split()) for text in subject.texts]
    assert [len(text.split()) for text in found] == [length + 1 for length in lengths]
    assert subject.count_tokens(found) == sum(lengths) + 7


def test_a_trained_run_is_measured_on_a_text(call, measured, trained, tmp_path):
    path = tmp_path / "a.en"
    path.write_text("The dog sleeps.\n\nA cow ran.\nThe cat saw the big dog.\n", encoding="utf-8")
    words = ("translate", trained, "--input", path, "--rounds", 1, "--set", "decoding.max_extra=9")
    report = measured(*words)
    assert [row["batch_size"] for row in report["rows"]] == [1, 1]
    assert report["settings"]["sentences"] == 3
    assert report["settings"]["options"] == {"max_extra": 9}
    code, out, _ = call(*words, "--sentences", 2)
    assert code is None
    assert "sentences/s" in out
    assert "larger batches are left out: there are only 2 sentences" in out


# attendo bench prepare

STAGES = ["read", "check", "vocabulary", "encode", "batches"]


def test_the_built_in_corpus_is_prepared_stage_by_stage(call, measured, monkeypatch):
    monkeypatch.setattr(prepare, "BUILTIN_PAIRS", 200)
    # The recipe that names the built-in corpus itself is no exception.
    settings = ("--set", "tokenizer.vocabulary=400", "--set", "data.max_length=200")
    report = measured("prepare", "demo", *settings)
    assert [row["stage"] for row in report["rows"]] == STAGES
    assert all(row["pairs_per_second"] > 0 for row in report["rows"])
    assert [row["pairs"] for row in report["rows"]] == [200, 200, 180, 180, 180]
    assert 0 < report["rows"][-1]["target_fill"] <= 1
    assert report["settings"]["files"] == []
    code, out, _ = call("prepare", "tiny", "--set", "tokenizer.vocabulary=400")
    assert code is None
    assert all(stage in out for stage in STAGES)
    assert "200 pairs of the built-in corpus" in out


def test_files_are_prepared_and_nothing_is_left_behind(measured, tmp_path, monkeypatch):
    for name, side in (("a.en", "source"), ("a.de", "target")):
        lines = [getattr(sentence, side) for sentence in islice(sentences(seed=7), 60)]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    files = ("--source", tmp_path / "a.en", "--target", tmp_path / "a.de")
    report = measured("prepare", "demo", *files, "--set", "tokenizer.vocabulary=400")
    assert report["rows"][0]["pairs"] == 60
    assert report["settings"]["files"] == [str(tmp_path / "a.en"), str(tmp_path / "a.de")]
    assert not list((tmp_path / "scratch").iterdir())


# Mistakes

MISTAKES = {
    "no such bench": "No such command 'fly'",
    "no steps": "--steps",
    "no such option": "--step",
    "no such recipe": "no recipe is called 'tinny'; did you mean 'tiny'?",
    "a recipe that looks at data": "the recipe 'auto' chooses its settings from the data",
    "no such setting": "model.d_modell",
    "too long sentences": "--mean-length 99 does not fit data.max_length = 64",
    "text for an untrained model": "the recipe 'tiny' has no trained model to translate it",
    "half of the files": "give one target file for each source file",
    "missing file": "lost.tsv",
}
WORDS = [
    "fly", "train tiny --steps 0", "train tiny --step 3", "train tinny", "train auto",
    "train tiny --set model.d_modell=3", "train tiny --mean-length 99",
    "translate tiny --input a.en", "prepare tiny --source a.en", "prepare tiny --pairs lost.tsv",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "fragment"), zip(WORDS, MISTAKES.values(), strict=True), ids=MISTAKES
)
def test_a_mistake_is_said_in_one_line(words, fragment, call):
    code, out, err = call(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert fragment in err


def test_bench_alone_shows_its_commands(call):
    code, out, err = call()
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in ("train", "translate", "prepare"))


def numeric_options(function: Callable[..., None]) -> list[str]:
    hints = get_type_hints(function)
    kinds = {int, float, int | None, float | None, list[int] | None}
    return [f"--{name.replace('_', '-')}" for name, kind in hints.items() if kind in kinds]


NUMBERS = [
    (command, option)
    for command, function in {
        "bench train": train_command,
        "bench translate": translate_command,
        "bench prepare": prepare_command,
        "compare": compare_command,
    }.items()
    for option in numeric_options(function)
]


def test_all_numeric_options_are_known():
    assert {" ".join(one) for one in NUMBERS} >= {
        "bench train --steps", "bench train --mean-length", "bench train --batch-tokens",
        "bench translate --sentences", "bench translate --batch-size", "bench translate --beam",
        "compare --budget-tokens", "compare --budget-seconds", "compare --watts",
    }  # fmt: skip


@pytest.mark.parametrize("value", ["-1", "1" + "0" * 30, "1e308", "-inf", "inf", "nan", "0x1", ""])
@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_a_number_out_of_range_is_said_in_one_line(command, option, value, run):
    # The recipe does not exist: were the number accepted, that would be the error instead.
    code, out, err = run(*command.split(), "no-such-recipe", f"{option}={value}")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: .*\n", err)
    assert option in err


def test_a_mean_length_of_no_tokens_is_refused_by_the_library():
    for mean in (0.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"does not fit data\.max_length = 32"):
            enough_sentences(small(), 3, mean)


def test_a_trained_run_needs_text_and_keeps_its_model(call, trained):
    code, _, err = call("translate", trained)
    assert (code, "give --input FILE" in err) == (2, True)
    code, _, err = call("translate", trained, "--input", "a.en", "--set", "model.d_ff=3")
    assert (code, "only [decoding] of a run can be changed" in err) == (2, True)


# Peers


def n_learned(model: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_the_peers_have_as_many_weights_as_ours(norm_order):
    recipe = small(norm_order=norm_order)
    vocabulary, d_model = recipe.tokenizer.vocabulary, recipe.model.d_model
    ours = n_learned(build_model(recipe.model, vocabulary, vocabulary))
    last_norms = 2 * 2 * d_model  # a gain and a bias at the end of either stack
    # Marian is always post-norm, which has none; nn.Transformer has them always.
    assert n_learned(Marian(recipe, SPECIALS)) == ours - last_norms * (norm_order == "pre")
    assert n_learned(TorchTransformer(recipe, SPECIALS)) == ours + last_norms * (
        norm_order == "post"
    )


def test_marians_positions_are_stored_and_not_learned():
    marian = Marian(small(), SPECIALS)
    assert marian.model.config._attn_implementation == "sdpa"
    frozen = [name for name, weight in marian.named_parameters() if not weight.requires_grad]
    assert frozen == [
        f"model.model.{side}.embed_positions.weight" for side in ("encoder", "decoder")
    ]


@pytest.mark.parametrize("kind", [Marian, TorchTransformer])
def test_padding_changes_nothing_that_a_peer_says(kind):
    recipe = small(p_drop=0.0)
    peer = kind(recipe, SPECIALS).eval()
    source, target = torch.randint(3, 300, (2, 5)), torch.randint(3, 300, (2, 4))
    wider = torch.nn.functional.pad(source, (0, 3), value=SPECIALS.pad)
    longer = torch.nn.functional.pad(target, (0, 2), value=SPECIALS.pad)
    torch.testing.assert_close(peer(wider, longer)[:, :4], peer(source, target))


def test_marians_own_mask_gives_the_same():
    marian = Marian(small(p_drop=0.0), SPECIALS).eval()
    source, target = torch.randint(3, 300, (2, 5)), torch.randint(3, 300, (2, 4))
    source[1, 3:] = SPECIALS.pad
    is_text = (source != SPECIALS.pad).long()
    expected = marian.model(source, is_text, decoder_input_ids=target).logits
    torch.testing.assert_close(marian(source, target), expected)


def test_padded_batches_hold_like_lengths_in_few_shapes():
    longest = np.random.default_rng(1).integers(1, 31, 500)
    plans = plan_batches(longest, budget=128, multiple=8)
    members = np.concatenate([plan.members for plan in plans])
    assert len(set(members.tolist())) == len(members) > 480, "nobody twice, nearly everybody once"
    for width, chosen in plans:
        assert width % 8 == 0
        assert len(chosen) == 128 // width
        assert longest[chosen].max() <= width
    assert len({width for width, _ in plans}) == 4


def test_padded_batches_hold_the_same_sentences():
    drawn = draw_sentences(300, small(), 9.0, seed=1)
    batches = padded_batches(drawn, SPECIALS, budget=256, multiple=1, count=4)
    assert len(batches) == 4
    known = {tuple(drawn.target_ids(number)): number for number in range(300)}
    for batch in batches:
        assert int((batch.labels != IGNORE).sum()) == batch.n_target
        assert int((batch.source != SPECIALS.pad).sum()) == batch.n_source
        for source, target, labels in zip(batch.source, batch.target, batch.labels, strict=True):
            said = labels[labels != IGNORE].tolist()
            number = known[tuple(said[:-1])]
            assert said[-1] == SPECIALS.eos
            assert target.tolist()[: len(said)] == [SPECIALS.bos, *said[:-1]]
            read = drawn.source_ids(number)
            assert source.tolist()[: len(read) + 1] == [*read, SPECIALS.eos]


def test_a_peer_learns():
    recipe = small()
    drawn = draw_sentences(100, recipe, 9.0, seed=1)
    batches = padded_batches(drawn, SPECIALS, budget=256, multiple=8, count=2)
    way = Way("fp32", None)
    peer = Peer("torch", TorchTransformer(recipe, SPECIALS), batches, recipe, CPU, way)
    before = [weight.detach().clone() for weight in peer.learned]
    assert peer.step() == batches[0].n_target
    peer.warm_up()
    assert all(not torch.equal(*pair) for pair in zip(before, peer.learned, strict=True))


def script(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Call a script of benchmarks/."""
    return subprocess.run(
        [sys.executable, str(BENCH / name), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(BENCH.parent / "src"), "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture
def mistaken(monkeypatch, capsys) -> Callable[..., str]:
    """Call a script of benchmarks/ in this process; it must print nothing but an error."""

    def call(name: str, *words: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            runpy.run_path(str(BENCH / name), run_name="__main__")
        printed = capsys.readouterr()
        assert (exit_.value.code, printed.out) == (2, "")
        return printed.err

    return call


@pytest.mark.slow
def test_training_runs_beside_its_peers(tmp_path):
    path = tmp_path / "found.json"
    words = ("--recipe", "tiny", *OPTIONS, "--mean-length", 9, "--steps", 2, "--rounds", 1)
    several = ("--batch-tokens", 128, "--batch-tokens", 256, "--json", path)
    done = script("train.py", *words, *several)
    assert (done.returncode, done.stderr) == (0, "")
    assert "attendo ×" in done.stdout
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    peers = [f"{name}, eager, {one}" for one in ("fp32", "bf16") for name in ("Marian", "torch.nn")]
    assert [row["system"] for row in rows] == 2 * ["attendo", *peers]
    assert [row["batch_tokens"] for row in rows] == 5 * [128] + 5 * [256]
    for row in rows:
        assert row["tokens_per_second"] * row["speedup_of_attendo"] > 0


@pytest.mark.slow
def test_translating_runs_beside_marian(tmp_path):
    path = tmp_path / "found.json"
    words = ("--recipe", "tiny", *OPTIONS, "--mean-length", 5, "--rounds", 1, "--json", path)
    done = script("translate.py", *words, "--batch-size", 2, "--sentences", 3)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [(row["system"], row["search"]) for row in rows] == [
        ("attendo", "greedy"), ("Marian", "greedy"), ("attendo", "beam 4"), ("Marian", "beam 4")
    ]  # fmt: skip


def test_a_mistake_in_a_contest_is_said_in_one_line(mistaken):
    said = mistaken("train.py", "--recipe", "tiny", "--peers", "marion")
    assert said == "error: --peers = 'marion' is not known; did you mean 'marian'?\n"


def test_a_model_that_the_peers_do_not_have_is_refused():
    check_comparable(small())
    with pytest.raises(ConfigError, match=r"no model.positions = 'rotary'; set it to sinusoidal"):
        check_comparable(small(positions="rotary"))
    with pytest.raises(ConfigError, match=r"the recipe has model.kind = 'recurrent'"):
        check_comparable(settled_recipe("demo-lstm-attention", {"model.attention": "dot"}))


# Other toolkits

SAID = {
    "EOLE": (
        "[2026-11-16 08:48:30 INFO] * number of parameters: 1647056\n"
        "[2026-11-16 08:48:35 INFO] Step 20/   20; acc: 4.3; ppl: 1116.12; xent: 7.02; aux: 0.000; "
        "lr: 2.00e-03; sents:     876; bsz: 3188/3362/175; 5720/6032 tok/s;     14 sec;"
    ),
    "JoeyNMT": (
        "2026-11-16 08:48:55 - INFO - joeynmt.model - Total params: 1645056\n"
        "2026-11-16 08:49:25 - INFO - joeynmt.training - Epoch   1, Step:       20, Batch Loss: "
        "    6.033227, Batch Acc: 0.078240, Tokens per Sec:     2067, Lr: 0.000158"
    ),
}


@pytest.fixture
def job(tmp_path) -> Job:
    recipe = small()
    write_texts(enough_sentences(recipe, 2, 9.0), recipe.tokenizer.vocabulary, tmp_path)
    return Job(recipe, tmp_path, steps=6, report_every=2)


def test_toolkits_get_the_sentences_as_text(job):
    lines = {path.name: path.read_text().splitlines() for path in job.folder.iterdir()}
    assert len(lines["train.src"]) == len(lines["train.tgt"]) > len(lines["valid.src"]) > 0
    words = {
        word for name in ("train.src", "train.tgt") for line in lines[name] for word in line.split()
    }
    assert words <= set(lines["words.txt"])
    assert len(lines["words.txt"]) == 301 - 3, "the special tokens are the toolkit's own"


@pytest.mark.parametrize("name", TOOLKITS)
def test_a_toolkit_reads_its_settings_as_they_were_meant(name, job):
    settings = TOOLKITS[name].settings(job, "fp32")
    # JSON is YAML, but for numbers like 1e-12, which are words there.
    assert yaml.safe_load(json.dumps(settings)) == settings
    assert {16, 24, 2, 1, 256, 6} <= set(numbers_in(settings))


def numbers_in(settings: object) -> Iterator[object]:
    if isinstance(settings, dict | list):
        inner = settings.values() if isinstance(settings, dict) else settings
        for one in inner:
            yield from numbers_in(one)
    else:
        yield settings


def test_the_speed_is_read_from_what_a_toolkit_says():
    found = {
        name: (re.findall(toolkit.speed, SAID[name]), re.findall(toolkit.parameters, SAID[name]))
        for name, toolkit in TOOLKITS.items()
    }
    assert found == {"EOLE": (["6032"], ["1647056"]), "JoeyNMT": (["2067"], ["1645056"])}


def test_what_a_toolkit_says_when_it_fails_is_passed_on(job):
    with pytest.raises(DataError, match=r"JoeyNMT in .* did not train: .*joeynmt"):
        train_toolkit("JoeyNMT", Path(sys.executable), job, "fp32")
    with pytest.raises(ConfigError, match="cannot run '/no/python': No such file"):
        train_toolkit("EOLE", Path("/no/python"), job, "fp32")


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ((), "nothing to compare with; give --eole or --joeynmt"),
        (
            ("--joeynmt", "/no/python"),
            "there is no '/no/python'; give the Python of an environment",
        ),
        (("--eole", sys.executable, "--set", "model.norm_order=post"), "EOLE has no post-norm"),
    ],
)
def test_a_mistake_beside_toolkits_is_said_in_one_line(words, fragment, mistaken):
    said = mistaken("toolkits.py", *words)
    assert said.startswith("error: ")
    assert fragment in said
    assert said.count("\n") == 1


# Quality against time


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """Make a run whose training has not begun."""
    folder = tmp_path_factory.mktemp("prepared")
    corpus = {"data.builtin": 3000, "data.hold_out": 30, "data.max_length": 40}
    learning = {"model.p_drop": 0.0, "training.validation_bleu": 6}
    recipe = settled_recipe("tiny", {**SMALL, **corpus, **learning, "model.d_model": 32})
    texts = open_texts(recipe.data)
    task = make_task(recipe, texts)
    save_task(folder, recipe, task)
    prepare_data(texts, task, recipe, folder / "state" / "data")
    return folder


def write_log(path: Path, *entries: dict[str, float]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def test_marian_learns_from_a_run_that_is_only_prepared(prepared, tmp_path, capsys):
    pairs = [(pair.source, pair.target) for pair in islice(sentences(seed=7), 3)]
    test = tmp_path / "few.tsv"
    test.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    log = write_log(
        tmp_path / "log.jsonl",
        {"step": 10, "seconds": 0.5},
        {"step": 10, "valid_loss": 1.5, "valid_bleu": 99.0},
    )
    path = tmp_path / "found.json"
    quality.main(
        run=prepared, seconds=3.0, batch_tokens=512, learning_rate=5e-3, warmup_steps=20,
        validate_every=1.0, test_pairs=[test], curve=log, out=tmp_path / "out", json=path,
        device="cpu",
    )  # fmt: skip
    found = json.loads(path.read_text(encoding="utf-8"))
    first, *_, last = found["curve"]
    assert last["valid_loss"] < first["valid_loss"]
    assert last["valid_loss"] < 5, "chance is ln(301), 5.7"
    assert last["seconds"] == found["seconds"] >= 3
    assert (last["step"], found["settings"]["valid_sentences"]) == (found["steps"], 6)
    assert found["tokens_per_second"] > 0
    assert found["machine"].keys() >= {"hardware", "torch", "transformers"}
    assert [score["sentences"] for score in found["tests"]] == [3]
    assert found["attendo"]["bleu_gap"] == 99 - last["bleu"]
    assert found["attendo"]["reached_after"] == 0.5
    assert len((tmp_path / "out" / "few.txt").read_text("utf-8").splitlines()) == 3
    out = capsys.readouterr().out
    assert "attendo BLEU" in out
    assert "model.norm_order: Marian's is 'post', the run's 'pre'" in out


def test_steps_end_marians_training_too(prepared, tmp_path):
    path = tmp_path / "found.json"
    quality.main(run=prepared, seconds=60.0, steps=2, batch_tokens=64, json=path, device="cpu")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [point["step"] for point in found["curve"]] == [2]


def test_a_run_without_its_pairs_is_refused(tmp_path, prepared):
    for name in ("recipe.toml", "tokenizer.json"):
        (tmp_path / name).write_bytes((prepared / name).read_bytes())
    with pytest.raises(BundleError, match=r"has no state/data, .* make it again"):
        open_job(tmp_path, CPU)


def test_marian_translates_in_order_what_is_long_and_what_is_empty(prepared):
    job = open_job(prepared, CPU)
    marian = Marian(job.recipe, job.task.target.specials).eval()
    long = " ".join(sentence.source for sentence in islice(sentences(seed=1), 6))
    texts = [long, "", "The dog sleeps.", "A cow ran."]
    search = Search(n_beams=2, alpha=0.6, max_extra=5, batch_size=2)
    together = translate_texts(marian, job.task, texts, search, CPU)
    assert together[1] == ""
    alone = [translate_texts(marian, job.task, [text], search, CPU)[0] for text in texts[2:]]
    # Untrained parameters never stop: batched with a longer source they may generate more.
    assert all(said.startswith(short) for said, short in zip(together[2:], alone, strict=True))
    assert len(together[0]) > 2 * len(together[2])


def test_endless_batches_hold_every_pair_once_an_epoch_in_changing_company(monkeypatch):
    monkeypatch.setattr("peers.padded.WINDOW", 64)
    drawn = draw_sentences(150, small(), 9.0, seed=1)
    batches = endless_batches(drawn.corpus(), SPECIALS, budget=128, longest=32, seed=1)

    def epoch() -> list[list[tuple[int, ...]]]:
        companies: list[list[tuple[int, ...]]] = []
        while sum(map(len, companies)) < 150:
            batch = next(batches)
            assert batch.source.numel() <= 128
            said = [labels[labels != IGNORE].tolist() for labels in batch.labels]
            companies.append([tuple(ids[:-1]) for ids in said])
        return companies

    first, second = epoch(), epoch()
    batches.close()
    known = sorted(tuple(drawn.target_ids(number)) for number in range(150))
    for companies in (first, second):
        assert sorted(ids for company in companies for ids in company) == known
    assert first != second


def test_the_rate_rises_by_steps_and_falls_to_zero_by_the_clock():
    schedule = Schedule(2.0, warmup_steps=4)
    shares = [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2), (9, 0.6), (11, 1.0)]
    rates = [schedule.rate(*at) for at in shares]
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 1.0, 0.0])


def test_a_warm_up_takes_at_most_half_of_the_time():
    schedule = Schedule(2.0, warmup_steps=1000)
    rates = [schedule.rate(step, step / 8) for step in range(1, 9)]
    assert rates[3] == max(rates) == pytest.approx(2.0, rel=0.1)
    assert rates[-1] == 0


def test_what_is_skipped_takes_no_time(monkeypatch):
    now = iter([0.0, 2.0, 7.0, 8.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    budget = Budget(seconds=10.0, steps=20, device=CPU)
    budget.look()
    budget.skip()
    budget.look()
    assert budget.spent == 3.0
    assert (budget.share(step=4), budget.share(step=10)) == (0.3, 0.5)


def test_a_validation_of_ours_is_never_dated_too_early(tmp_path):
    log = write_log(
        tmp_path / "log.jsonl",
        {"step": 50, "seconds": 5.0},
        {"step": 50, "valid_loss": 4.0, "valid_bleu": 3.0},
        {"step": 75, "valid_loss": 3.5},
        {"step": 100, "seconds": 12.0},
    )
    assert read_curve(log) == [Point(5.0, 50, 4.0, 3.0), Point(12.0, 75, 3.5, None)]
    with pytest.raises(DataError, match="holds no validation with a time"):
        read_curve(tmp_path / "lost.jsonl")


def test_curves_are_compared_where_theirs_ends():
    theirs = [Point(10.0, 1, 3.0, 5.0), Point(40.0, 4, 2.5, 9.0), Point(50.0, 5, 2.0, 8.0)]
    ours = [Point(8.0, 1, 2.5, 7.0), Point(16.0, 2, 1.5, 8.0), Point(30.0, 4, 1.0, 12.0)]
    found = compare(ours, theirs)
    assert (found["bleu_gap"], found["valid_loss_gap"]) == (4.0, -1.0)
    assert (found["reached_after"], found["times_sooner"]) == (16.0, 2.5), "Marian had it at 40 s"
    assert in_words(found)[-1].endswith("after 16 s, 2.50 times sooner than Marian")
    slow = compare(ours[:1], theirs)
    assert (slow["bleu_gap"], slow["times_sooner"]) == (-1.0, None)
    assert in_words(slow)[-1] == "attendo did not reach Marian's last BLEU"
