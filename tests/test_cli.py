"""The command line: quick, pipe-friendly, with options and examples that cannot rot."""

import importlib.metadata
import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

import attendo
from attendo.bundle import read_score_card
from attendo.cli import app, main
from attendo.config import load_recipe, presets
from attendo.data.builtin import sentences
from attendo.errors import command_line, install_command
from attendo.metrics import bleu

# A new option is a promise to keep: this list makes it a decision.
OPTIONS = {
    "attendo": "--version --debug --install-completion --show-completion",
    "demo": "--out --set --device",
    "check": "--source --target --pairs --trees --valid-source --valid-target --valid-pairs "
    "--valid-trees --test-source --test-target --test-pairs --test-trees --json",
    "train": "RECIPE --out --source --target --pairs --data --valid-source --valid-target "
    "--valid-pairs --valid-data --test-source --test-target --test-pairs --test-data --from "
    "--compare-scratch --set --resume --device --json",
    "distill": "RUN --out --source --target --pairs --text --valid-source --valid-target "
    "--valid-pairs --test-source --test-target --test-pairs --recipe --set --best-of --originals "
    "--beam --batch-size --shard-size --resume --device --json",
    "augment back-translate": "RUN --text --out --strategy --beam --top-k --temperature --seed "
    "--tag --batch-size --shard-size --resume --device --json",
    "translate": "RUN TEXT --from --to --input --output --beam --n-best --prefix --batch-size "
    "--set --device --engine --precision --json --about",
    "generate": "RUN PROMPT --tokens --temperature --top-k --top-p --stop --until --seed "
    "--greedy --device",
    "predict": "RUN TEXT --input --out --batch-size --device --json",
    "embed": "RUN TEXT --input --npy --batch-size --device --json",
    "evaluate": "RUN --source --target --data --trees --beam --batch-size --device --engine "
    "--precision --confusion --noise --json",
    "look": "RUN TEXT --target --out --what --layer --head --ablate --device",
    "compare": "RECIPE --out --budget-tokens --budget-seconds --budget-parameters --source "
    "--target --pairs --data --valid-source --valid-target --valid-pairs --valid-data "
    "--test-source --test-target --test-pairs --test-data --set --watts --probe --thorough "
    "--device --json",
    "serve": "RUN --host --port --time-limit --device --engine --precision",
    "plan": "RECIPE --gpus --tokens --set --json",
    "recipes": "NAME --settings",
    "export": "RUN --to --out --quantization --max-loss --source --target",
    "import": "DIR --out",
    "bench train": "RECIPE --steps --warmup --batch-tokens --mean-length --set --seed --device "
    "--json",
    "bench translate": "RUN|RECIPE --input --sentences --mean-length --beam --batch-size --rounds "
    "--set --device --json",
    "bench prepare": "RECIPE --source --target --pairs --set --json",
}
COMMANDS = [name for name in OPTIONS if name != "attendo"]

LINES = [
    "The dog sleeps.",
    "",
    "   ",
    "Two\ttabs\there.",
    "A line\u2028that is one\u2029line.",
    "Carriage\rreturn.",
    "Carriage return at the end.\r",
    "\x01\x02\x0b\x0c\x1b[0m\x1c\x7f\x85",
    "🐈 the cat 👩‍👩‍👧 saw e\u0301 <s> </s> <pad>",
    "The cow sleeps. " * 625,
    "x" * 500,
    "the last line has no line end",
]
PAIRS = list(islice(sentences(seed=7, held_out=True), 20))


class Answer(NamedTuple):
    code: int | None
    stdout: str
    stderr: str


@pytest.fixture
def call(monkeypatch, capfd):
    """Run the real entry point in this process."""

    def run(*words: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return Answer(exit_.value.code, *capfd.readouterr())

    return run


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, encoding="utf-8", check=True
    )


def find_commands() -> dict[str, typer.core.TyperCommand]:
    """List all commands of typer; one that belongs to a group has two words."""
    group = typer.main.get_command(app)
    found = {"attendo": group}
    for name, command in group.commands.items():
        inner = getattr(command, "commands", {})
        found |= {f"{name} {word}": one for word, one in inner.items()} or {name: command}
    return found


def commands() -> dict[str, set[str]]:
    """Name the options of all commands."""
    return {
        name: {
            word
            for parameter in command.params
            for word in (
                [max(parameter.opts, key=len)]
                if parameter.param_type_name == "option"
                else re.findall(r"[A-Z|]+", parameter.metavar)
            )
        }
        for name, command in find_commands().items()
    }


def test_the_commands_and_their_options_are_these_and_no_others():
    assert commands() == {name: set(options.split()) for name, options in OPTIONS.items()}


def test_help_is_instant():
    def seconds() -> float:
        """Return the time of the processor, which other work on the machine does not change."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python("-m", "attendo", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(8)) < 0.3


def modules_after(*words: str) -> set[str]:
    """Name the modules that a command has imported by its end."""
    code = (
        "import sys\nfrom attendo.cli import main\n"
        f"sys.argv = {['attendo', *words]!r}\n"
        "try:\n    main()\n"
        "except SystemExit as exit:\n    assert not exit.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    return set(python("-c", code).stderr.split())


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["train", "--help"], ["recipes"], ["recipes", "--settings"]],
)
def test_what_needs_no_model_imports_no_torch(words):
    assert not modules_after(*words) & {"torch", "numpy", "tokenizers", "matplotlib", "sacrebleu"}


def test_translating_imports_nothing_that_only_others_need(trained):
    words = ("translate", str(trained), "The dog sleeps.")
    imported = modules_after(*words, "--engine", "torch")
    assert "torch" in imported
    assert not imported & {"matplotlib", "sacrebleu", "attendo.training"}
    modules_after(*words)  # converts the model, if no other test has
    assert not modules_after(*words) & {"torch", "numpy", "jaxtyping", "matplotlib", "sacrebleu"}


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, attendo; print(*sys.modules)"
    imported = set(python("-c", code).stdout.split())
    assert not imported & {"torch", "numpy", "pydantic", "typer"}


def test_without_a_command_there_is_help(call):
    assert call() == call("--help")
    answer = call("-h")
    assert answer.code in (0, None)
    assert all(
        re.search(rf"^  {name.split()[0]} ", answer.stdout, re.MULTILINE) for name in COMMANDS
    )
    assert "..." not in answer.stdout.split("Commands:")[1]


def test_the_version_is_that_of_the_package(call):
    assert call("--version").stdout == f"attendo {attendo.__version__}\n"
    assert attendo.__version__ == importlib.metadata.version("attendo")


def test_a_group_without_a_command_prints_its_help(call):
    answer = call("bench")
    assert answer.code in (0, None)
    assert answer == call("bench", "--help")
    assert all(name in answer.stdout for name in ("train", "translate", "prepare"))


COMPLETION = """
eval "$(attendo --show-completion)"
COMP_WORDS=(attendo TYPED "")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_attendo_completion attendo
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {name.split()[0] for name in COMMANDS}),
        ("bench", {"train", "translate", "prepare"}),
        ("recipes", set(presets())),
    ],
)
def test_bash_completes_commands_and_recipes(words, expected, tmp_path):
    bin_ = tmp_path / "attendo"
    bin_.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m attendo "$@"\n')
    bin_.chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETION.replace("TYPED", words)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == expected, done.stderr


def test_commands_in_messages_work_whatever_the_path_is(tmp_path, monkeypatch):
    script = tmp_path / ".venv" / "bin" / "attendo"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/attendo"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert command_line("train", "--out", "my run") == ".venv/bin/attendo train --out 'my run'"
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin")
    assert command_line("recipes") == "attendo recipes"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert command_line("recipes") == f"{script} recipes"
    # A notebook: what is beside its Python, or the module if there is no script.
    monkeypatch.setattr(sys, "argv", ["kernel.py"])
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    assert command_line("recipes") == f"{script} recipes"
    script.unlink()
    assert command_line("recipes") == f"{script.with_name('python')} -m attendo recipes"
    assert install_command("scipy") == f"{script.with_name('python')} -m pip install scipy"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_that_use_real_options(name, call):
    answer = call(*name.split(), "--help")
    assert answer.code in (0, None)
    examples = re.findall(rf"attendo {name}\b.*", answer.stdout.split("Examples:")[1])
    assert examples
    known = commands()[name]
    for example in examples:
        options = [word for word in shlex.split(example) if word.startswith("--")]
        assert set(options) <= known


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name):
    for parameter in find_commands()[name].params:
        assert parameter.help, parameter.name


def test_recipes_are_listed_with_what_they_are_for(call):
    answer = call("recipes")
    lines = answer.stdout.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines if line.startswith("  "))
    assert listed == presets()
    assert [line for line in lines if not line.startswith("  ")][:2] == [
        "translation:",
        "language-model:",
    ]


@pytest.mark.parametrize("name", presets())
def test_a_printed_recipe_loads_back_as_the_same(name, call, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(call("recipes", name).stdout, encoding="utf-8")
    again, recipe = load_recipe(str(path)), load_recipe(name)
    assert again == recipe
    if recipe.auto:  # what is to be chosen later has not been settled by printing
        assert again.model_dump(exclude_unset=True) == recipe.model_dump(exclude_unset=True)


def test_a_filter_keeps_order_empty_lines_and_the_number_of_lines(call, trained):
    words = ("translate", trained, "--beam", 1, "--precision", "float32")
    answer = call(*words, stdin="\n".join(LINES).encode())
    translated = answer.stdout.removesuffix("\n").split("\n")
    alone = attendo.load(trained).translate(LINES, beam=1)
    assert translated == [" ".join(text.splitlines()) for text in alone]
    assert [not line for line in translated] == [not line.strip() for line in LINES]
    assert answer.code is None
    assert answer.stderr.startswith("not in the training data: tabs, here, line, one, Carriage and")


def test_files_are_translated_like_standard_input(call, trained, tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_bytes("\n".join(LINES[:9]).encode() + b"\n")
    target.write_text("an older translation, longer than the new one\n" * 30, encoding="utf-8")
    answer = call("translate", trained, "--input", source, "--output", target)
    assert (answer.code, answer.stdout) == (None, "")
    expected = call("translate", trained, stdin=source.read_bytes()).stdout
    assert target.read_bytes().decode() == expected
    assert expected.count("\n") == 9


def test_an_empty_input_gives_an_empty_output(call, trained, tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_bytes(b"")
    target.write_text("an older translation\n", encoding="utf-8")
    stderr = call("translate", trained, "--input", source, "--output", target).stderr
    assert stderr == f"{source} is empty: there is nothing to translate\n"
    assert target.read_bytes() == b""
    assert call("translate", trained).stdout == ""


def test_texts_on_the_command_line_are_translated_one_a_line(call, trained):
    answer = call("translate", trained, LINES[0], "", "two\nlines")
    assert answer.stdout.split("\n")[:2] == [*attendo.load(trained).translate([LINES[0]]), ""]
    assert answer.stdout.count("\n") == 3


def test_json_is_one_object_a_line_with_all_that_is_known(call, trained):
    answer = call("translate", trained, "--json", "--n-best", 2, stdin=b"The dog sleeps.\n\n")
    first, empty = map(json.loads, answer.stdout.splitlines())
    assert first["source"] == "The dog sleeps."
    assert first["translation"] == first["translations"][0]["text"]
    assert len(first["translations"]) == 2
    for found in first["translations"]:
        assert found["score"] < 0
        assert isinstance(found["finished"], bool)
    assert empty == {
        "source": "",
        "translation": "",
        "translations": [{"text": "", "score": 0.0, "finished": True}],
        "unknown": [],
    }


def test_n_best_are_numbered_and_scored(call, trained):
    answer = call("translate", trained, "--n-best", 3, stdin=b"The dog sleeps.\n\nA cow ran.\n")
    rows = [line.split("\t") for line in answer.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert all(float(row[1]) <= 0 for row in rows)
    assert rows[0][2] == call("translate", trained, "The dog sleeps.").stdout.strip()


def test_a_prefix_is_forced_on_every_translation(call, trained):
    answer = call("translate", trained, "--prefix", "Zwei Kühe", "The dog sleeps.", "A cow ran.")
    lines = answer.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("Zwei Kühe") for line in lines)


def test_settings_of_the_search_can_be_changed(call, trained):
    words = ("translate", trained, "--set", "decoding.strategy=greedy", LINES[0])
    assert call(*words).stdout == call("translate", trained, "--beam", 1, LINES[0]).stdout


def test_a_reader_that_stops_early_is_no_error(trained, tmp_path):
    source = tmp_path / "a.en"
    source.write_text("The dog sleeps.\n" * 20_000, encoding="utf-8")
    words = ["translate", str(trained), "--input", str(source), "--beam", "1", "--batch-size", "64"]
    process = subprocess.Popen(
        [sys.executable, "-m", "attendo", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()


def test_ctrl_c_keeps_what_has_been_translated(trained, tmp_path):
    output = tmp_path / "out.de"
    with subprocess.Popen(
        [sys.executable, "-m", "attendo", "translate", str(trained), "--output", str(output)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"The dog sleeps.\n" * 1025)  # one chunk, and one line of another
        process.stdin.flush()
        for _ in range(600):
            if output.exists() and output.read_text().count("\n") == 1024:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode().splitlines()
    assert process.returncode == 130
    assert said[-1] == "stopped; lines that have been translated: 1,024"
    assert output.read_text().count("\n") == 1024


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
def test_a_full_disk_is_said_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "attendo", "recipes"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*No space left on device.*\n", done.stderr)


@pytest.fixture
def test_set(tmp_path) -> tuple[Path, Path]:
    source, target = tmp_path / "test.en", tmp_path / "test.de"
    source.write_text("".join(f"{pair.source}\n" for pair in PAIRS), encoding="utf-8")
    target.write_text("".join(f"{pair.target}\n" for pair in PAIRS), encoding="utf-8")
    return source, target


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """Copy what others load of the trained run, since a score card is written into it."""
    return Path(
        shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("state", "*.png"))
    )


def test_look_writes_what_its_name_says_and_prints_the_translation(call, run, tmp_path):
    [expected] = attendo.load(run).translate(["The dog sleeps."])
    for name in ("page.html", "map.png", "map.svg", "decoding.gif"):
        answer = call("look", run, "The dog sleeps.", "--out", tmp_path / name)
        assert (answer.code, answer.stdout) == (None, f"{expected}\n")
        assert name in answer.stderr
        assert (tmp_path / name).stat().st_size > 1000
    answer = call(
        "look", run, "The dog sleeps.", "--target", "Ein Hund.", "--out", tmp_path / "a.svg"
    )
    assert answer.stdout == "Ein Hund.\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["x", "--out", "a.pdf"], "unknown ending; use .html, .png, .svg or .gif"),
        (["x", "--out", "a.png", "--what", "cros"], "did you mean 'cross'"),
        (["x", "--out", "a.png", "--layer", "3"], "there is no layer 3; the model has 2"),
        (["x", "--out", "a.png", "--head", "0"], "there is no head 0"),
        (["x", "--ablate", "cross.9.9"], "this model has encoder.1.1 to encoder.2."),
        (["  "], "the text is empty"),
        (["x", "--out", "no/such/folder/a.png"], "no/such/folder"),
    ],
)
def test_look_explains_what_it_cannot_show(call, run, words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = call("look", run, *words)
    assert answer.code == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("error: ")
    assert expected in answer.stderr
    assert not list(tmp_path.rglob("*.p*"))


def test_evaluate_prints_the_scores_with_signature_and_interval(call, run, test_set):
    answer = call("evaluate", run, "--source", test_set[0], "--target", test_set[1])
    assert (answer.code, answer.stderr) == (None, "")
    (card,) = read_score_card(run)["evaluations"]
    low, high = card["bleu_interval"]
    assert f"BLEU      {card['bleu']:.2f}" in answer.stdout
    assert f"{low:.2f} to {high:.2f}" in answer.stdout
    assert f"chrF      {card['chrf']:.2f}" in answer.stdout
    assert f"sentences {len(PAIRS)}" in answer.stdout
    assert f"signature {card['signature']}" in answer.stdout


def test_evaluate_puts_down_what_it_prints_and_keeps_the_runs_own_scores(call, run, test_set):
    before = read_score_card(run)
    options = ("--beam", 1, "--json")
    answer = call("evaluate", run, "--source", test_set[0], "--target", test_set[1], *options)
    card = json.loads(answer.stdout)
    scored = {key: value for key, value in card.items() if before.get(key) != value}
    after = read_score_card(run)
    assert after | {"evaluations": None} == before | {"evaluations": None}
    assert scored.items() <= after["evaluations"][-1].items()
    assert card.keys() >= {"bleu", "chrf", "signature", "sentences"}
    assert card["sentences"] == len(PAIRS)
    assert card["decoding"]["beam"] == 1
    translations = attendo.load(run).translate([pair.source for pair in PAIRS], beam=1)
    expected = bleu(translations, [pair.target for pair in PAIRS])
    assert card["bleu"] == pytest.approx(expected, abs=0.01)


def test_an_evaluation_that_is_repeated_stands_in_the_card_once(call, run, test_set):
    words = ("evaluate", run, "--source", test_set[0], "--target", test_set[1])
    for options in ((), ("--beam", 1), ("--beam", 1), ()):
        assert call(*words, *options).code is None
    beams = [one["decoding"]["beam"] for one in read_score_card(run)["evaluations"]]
    assert sorted(beams) == [1, 4]


def test_evaluate_works_on_a_run_without_a_score_card(call, run, test_set):
    (run / "scorecard.json").unlink()
    answer = call("evaluate", run, "--source", test_set[0], "--target", test_set[1])
    assert answer.code is None
    assert read_score_card(run)["sentences"] == len(PAIRS)
