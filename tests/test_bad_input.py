"""Mistakes at the command line: one line that helps, exit code 2, and nothing lost.

All cases share one folder of files, good and bad, in which the command runs. After every case the
folder must be, byte for byte, what it was.
"""

import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import zstandard

from attendo.bundle import PARAMETERS, read_tensors, save_parameters, save_task, write_tensors
from attendo.cli import main
from attendo.config import load_recipe, write_recipe
from attendo.data.builtin import sentences
from attendo.engines import load, load_translator
from attendo.errors import BundleError
from attendo.models import build_model
from attendo.tasks import Translation
from attendo.text import train_tokenizer
from attendo.training.kinds import FAMILY_KINDS, KINDS
from small_runs import overflowing

PAIRS = 30

NESTED = b"[" * 100_000

SMALL = {
    "name": "demo",
    "data.max_length": 32,
    "tokenizer.vocabulary": 300,
    "model.d_model": 16,
    "model.d_ff": 8,
    "model.n_heads": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
}


class Case(NamedTuple):
    command: str
    """Split at spaces; OUT is a folder that does not exist, and a word in <> may hold spaces."""
    fragments: list[str]
    """What the message must contain: what was given and, where there is one, what to do."""
    stdin: bytes = b""


def arguments(case: Case, out: Path) -> list[str]:
    words = case.command.replace("OUT", str(out)).split(" ")
    return [word.strip("<>").replace("_", " ") if word[:1] == "<" else word for word in words]


DATA = {
    "missing source": Case(
        "train tiny --out OUT --source lost.en --target good.de", ["lost.en", "does not exist"]
    ),
    "missing target": Case(
        "train tiny --out OUT --source good.en --target lost.de", ["lost.de", "does not exist"]
    ),
    "missing pairs": Case("train tiny --out OUT --pairs lost.tsv", ["lost.tsv", "does not exist"]),
    "folder": Case("train tiny --out OUT --source folder --target good.de", ["folder is a folder"]),
    "different line counts": Case(
        "train tiny --out OUT --source good.en --target short.de",
        ["good.en has 30 lines", "short.de has 29"],
    ),
    "empty": Case(
        "train tiny --out OUT --source empty.en --target empty.de", ["empty.en", "empty;"]
    ),
    "all sides empty": Case(
        "train tiny --out OUT --source blank.en --target good.de",
        ["blank.en", "30 × empty source"],
    ),
    "binary": Case(
        "train tiny --out OUT --source binary.en --target good.de", ["binary.en is a binary file"]
    ),
    "UTF-16": Case(
        "train tiny --out OUT --source utf16.en --target good.de",
        ["utf16.en is UTF-16", "iconv -f UTF-16 -t UTF-8"],
    ),
    "Latin-1": Case(
        "train tiny --out OUT --source latin.en --target good.de", ["latin.en", "UTF-8"]
    ),
    "NUL": Case("train tiny --out OUT --source nul.en --target good.de", ["nul.en", "NUL byte"]),
    "cut gz": Case(
        "train tiny --out OUT --source cut.en.gz --target good.de", ["cut.en.gz is cut off"]
    ),
    "cut xz": Case(
        "train tiny --out OUT --source cut.en.xz --target good.de", ["cut.en.xz is cut off"]
    ),
    "cut zst": Case(
        "train tiny --out OUT --source cut.en.zst --target good.de", ["cut.en.zst is cut off"]
    ),
    "not packed": Case(
        "train tiny --out OUT --source plain.en.gz --target good.de", ["plain.en.gz is damaged"]
    ),
    "packed without a suffix": Case(
        "train tiny --out OUT --source packed.en --target good.de",
        ["packed.en is compressed", "end in .gz"],
    ),
    "TSV columns": Case(
        "train tiny --out OUT --pairs columns.tsv",
        ["columns.tsv", "malformed TSV", "source TAB target"],
    ),
    "broken JSON": Case(
        "train tiny --out OUT --pairs broken.jsonl", ["broken.jsonl", "malformed JSON"]
    ),
    "JSON keys": Case("train tiny --out OUT --pairs keys.jsonl", ["keys.jsonl", '"source"']),
    "unknown format": Case("train tiny --out OUT --pairs pairs.csv", ["pairs.csv", ".tsv"]),
    "few pairs": Case(
        "train tiny --out OUT --source few.en --target few.de",
        ["too few usable", "few.de: 9 of at least 10"],
    ),
    "one sentence": Case(
        "train tiny --out OUT --source same.en --target good.de",
        ["too few different sources", "--valid-source"],
    ),
    "no data": Case("train tiny --out OUT", ["no training data", "--source"]),
    "lost start": Case(
        "train --from lost --out OUT --pairs good.tsv", ["lost' is not a folder", "attendo train"]
    ),
    "start that is no run": Case(
        "train --from folder --out OUT --pairs good.tsv", ["folder' has no recipe.toml"]
    ),
    "source alone": Case(
        "train tiny --out OUT --source good.en", ["source names 1 file", "target 0"]
    ),
    "validation source alone": Case(
        "train tiny --out OUT --pairs good.tsv --valid-source good.en", ["valid_source names 1"]
    ),
    "empty test file": Case(
        "train tiny --out OUT --pairs good.tsv --test-source empty.en --test-target empty.de",
        ["empty.en"],
    ),
    "files beside the built-in corpus": Case(
        "train demo --out OUT --pairs good.tsv", ["builtin", "your own files"]
    ),
    "check without files": Case("check", ["no data files"]),
    "check missing file": Case("check --pairs lost.tsv", ["lost.tsv does not exist"]),
    "check source alone": Case("check --source good.en", ["1 source file", "0 target files"]),
}

RECIPES = {
    **{
        f"extreme {setting}": Case(
            f"train demo --out OUT --set {setting}",
            [f"{setting.split('=')[0]} = ", "less than or equal to"],
        )
        for setting in (
            "tokenizer.vocabulary=1000000000",
            "decoding.alpha=1e308",
            "decoding.max_extra=1e9",
            "training.seed=18446744073709551616",
            "data.max_length=1e11",
        )
    },
    "a number beyond all bounds": Case(
        "train demo --out OUT --set decoding.max_extra=1e20",
        ["decoding.max_extra = 1e+20", "too large"],
    ),
    "deeply nested": Case("train nested.toml --out OUT", ["'nested.toml'", "nested too deeply"]),
    "deeply nested setting": Case(
        f"train demo --out OUT --set data.pairs={'[' * 5000}", ["data.pairs", "nested too deeply"]
    ),
    "like a pipe": Case("train like-pipe.toml --out OUT", ["like = 'pipe.toml'", "regular file"]),
    "like a device": Case("train like-zero.toml --out OUT", ["like = '/dev/zero'", "regular file"]),
    "endless": Case("train /dev/zero --out OUT", ["'/dev/zero'", "larger than"]),
    "unknown preset": Case("train smal --out OUT", ["'smal'", "did you mean 'small'?"]),
    "unknown preset to print": Case("recipes dmeo", ["'dmeo'", "did you mean 'demo'?"]),
    "missing file": Case("train lost.toml --out OUT", ["'lost.toml' does not exist"]),
    "folder": Case("train folder.toml --out OUT", ["'folder.toml' cannot be read"]),
    "not TOML": Case("train text.toml --out OUT", ["'text.toml' is not valid TOML", "line 2"]),
    "not UTF-8": Case("train latin.toml --out OUT", ["'latin.toml' is not valid TOML"]),
    "unknown key": Case(
        "train unknown.toml --out OUT", ["'model.d_modle'", "did you mean 'd_model'?"]
    ),
    "unknown section": Case(
        "train demo --out OUT --set trainning.steps=3",
        ["'trainning'", "did you mean 'training'?"],
    ),
    "wrong type": Case(
        "train demo --out OUT --set model.d_model=wide", ["model.d_model = 'wide'", "integer"]
    ),
    "wrong type of a path": Case("train demo --out OUT --set data.pairs=3", ["data.pairs = 3"]),
    "out of range": Case("train demo --out OUT --set model.p_drop=1.5", ["model.p_drop = 1.5"]),
    "infinite": Case(
        "train demo --out OUT --set training.learning_rate=inf",
        ["training.learning_rate = inf", "finite"],
    ),
    "negative": Case("train demo --out OUT --set training.steps=-1", ["training.steps = -1"]),
    "choice": Case(
        "train demo --out OUT --set model.norm_order=both", ["model.norm_order", "'post' or 'pre'"]
    ),
    "heads": Case(
        "train demo --out OUT --set model.n_heads=5",
        ["n_heads = 5 does not divide d_model = 128"],
    ),
    "tied without sharing": Case(
        "train demo --out OUT --set tokenizer.shared=false",
        ['model.tied = "all"', 'set model.tied = "output"'],
    ),
    "two tokenizers that are one": Case(
        "train demo --out OUT --set tokenizer.target_path=x.json", ["target_path", "shared = false"]
    ),
    "setting without a value": Case("train demo --out OUT --set model.d_model", ["key=value"]),
    "setting without a key": Case("train demo --out OUT --set =3", ["'=3'", "key=value"]),
    "setting into a value": Case(
        "train demo --out OUT --set model.d_model.x=3", ["model.d_model.x", "'d_model' is a value"]
    ),
    "setting a whole section": Case("train demo --out OUT --set model=3", ["model = 3", "section"]),
    "small vocabulary": Case(
        "train demo --out OUT --set tokenizer.vocabulary=20", ["tokenizer.vocabulary = 20", "300"]
    ),
    "vocabulary too small for its kind": Case(
        "train demo --out OUT --set tokenizer.vocabulary=400 --set tokenizer.kind=wordpiece",
        ["400 is too small for kind 'wordpiece'", "at least"],
    ),
    "missing tokenizer": Case(
        "train demo --out OUT --set tokenizer.path=lost.json", ["'lost.json' does not exist"]
    ),
    "damaged tokenizer": Case(
        "train demo --out OUT --set tokenizer.path=cut.json", ["'cut.json'", "not JSON"]
    ),
    "another JSON file": Case(
        "train demo --out OUT --set tokenizer.path=other.json", ["'other.json'", "not of a token"]
    ),
    "tokenizer folder": Case(
        "train demo --out OUT --set tokenizer.path=folder", ["'folder'", "encoder.json"]
    ),
    "tokenizer format": Case(
        "train demo --out OUT --set tokenizer.path=good.en", ["'good.en'", "tokenizer.json"]
    ),
    **{
        f"unknown {key}": Case(
            f"train demo --out OUT --set {key}={next(iter(table))}x",
            [key, f"{next(iter(table))}x'", f"did you mean '{next(iter(table))}'?"],
        )
        for key, table in (KINDS | FAMILY_KINDS["transformer"]).items()
    },
}

FOLDERS = {
    "missing": Case("translate lost text", ["lost' is not a folder", "attendo train"]),
    "file": Case("translate good.en text", ["'good.en' is not a folder"]),
    "empty folder": Case("translate folder text", ["folder' has no recipe.toml"]),
    "no weights": Case("translate no-weights text", ["model.safetensors' does not exist"]),
    "cut weights": Case("translate cut-weights text", ["cut-weights", "damaged"]),
    "random weights": Case("translate random-weights text", ["random-weights", "damaged"]),
    "pickled weights": Case("translate pickled-weights text", ["pickled-weights", "damaged"]),
    "empty weights": Case("translate empty-weights text", ["empty-weights", "damaged"]),
    "weights of other sizes": Case(
        "translate other-sizes text",
        ["other-sizes", "does not match its recipe", "[8, 16]", "[9, "],
    ),
    "weights of fewer layers": Case(
        "translate more-layers text", ["more-layers", "missing or unknown", "layers.1."]
    ),
    "no tokenizer": Case("translate no-tokenizer text", ["tokenizer.json' does not exist"]),
    "cut tokenizer": Case("translate cut-tokenizer text", ["cut-tokenizer", "damaged"]),
    "binary tokenizer": Case("translate binary-tokenizer text", ["binary-tokenizer", "damaged"]),
    "recipe that is not TOML": Case("translate cut-recipe text", ["cut-recipe", "not valid TOML"]),
    "recipe with an unknown key": Case(
        "translate odd-recipe text", ["odd-recipe", "'model.d_modle'", "'d_model'"]
    ),
    "recipe with an unknown kind": Case(
        "translate odd-kind text", ["model.attention = 'dott'", "did you mean 'dot'?"]
    ),
    "recipe with too many positions": Case(
        "translate giant text", ["model.max_positions = 1000000000000000", "less than or equal"]
    ),
    **{
        f"{value} in {command.split()[0]}": Case(
            f"{command.replace('RUN', f'{value}-weights')}",
            [f"{value}-weights", "is damaged", "not finite numbers"],
        )
        for value in ("nan", "inf")
        for command in (
            "translate RUN text",
            "evaluate RUN --source few.en --target few.de",
            "look RUN text",
            "serve RUN",
            "train --from RUN --out OUT --pairs good.tsv",
        )
    },
    "recipe like a device": Case("translate like-zero text", ["must not be like another one"]),
    "recipe with too wide a model": Case(
        "translate too-wide text", ["model.d_model = 1000000", "less than or equal to"]
    ),
    "recipe with a wider model": Case(
        "translate wider text", ["does not match its recipe", "expected [300, 65536]"]
    ),
    "recipe with too many layers": Case(
        "translate too-deep text", ["encoder_layers = 100000000", "less than or equal to 1000"]
    ),
    "recipe with more layers than parameters": Case(
        "translate deeper text", ["does not match its recipe", "too few for 2,000 layers"]
    ),
    "recipe that is nested deeply": Case(
        "translate nested-recipe text", ["nested-recipe", "nested too deeply"]
    ),
    "recipe that is too large": Case("translate large-recipe text", ["larger than", "bytes"]),
    "tokenizer with an exploding expression": Case(
        "translate exploding-tokenizer text", ["exploding-tokenizer", "exponential time"]
    ),
    "tokenizer that lengthens texts": Case(
        "translate growing-tokenizer text", ["growing-tokenizer", "1000 times"]
    ),
    "tokenizer with a high id": Case(
        "translate high-tokenizer text", ["high-tokenizer", "is too high"]
    ),
    "tokenizer with many added tokens": Case(
        "translate added-tokenizer text", ["added-tokenizer", "added tokens"]
    ),
    "tokenizer that is nested deeply": Case(
        "translate nested-tokenizer text", ["nested-tokenizer", "damaged"]
    ),
    "tokenizer in another order": Case(
        "translate other-order text", ["other-order", "another tokenizer", "tokenizer.json"]
    ),
    "evaluate missing": Case(
        "evaluate lost --source good.en --target good.de", ["'lost' is not a folder"]
    ),
    "damaged score card": Case(
        "evaluate cut-card --source few.en --target few.de", ["scorecard.json", "cannot be read"]
    ),
    **{
        f"{name} score card": Case(
            f"evaluate {name}-card --source few.en --target few.de",
            ["scorecard.json", "cannot be read", "remove it"],
        )
        for name in ("odd", "nested", "partial", "typed", "evaluated")
    },
}

COMMANDS = {
    "an option without effect": Case(
        "generate good --greedy --top-k 5", ["--top-k", "for sampling only", "'greedy'"]
    ),
    "unknown command": Case("tarin", ["'tarin'"]),
    "unknown option": Case("train --ot x", ["--ot"]),
    "no RUN": Case("generate", ["RUN"]),
    "no --out": Case("train tiny", ["--out"]),
    "option without a value": Case("train tiny --out", ["--out"]),
    "too many arguments": Case("recipes demo small", ["small"]),
    "not a number": Case("translate run text --beam four", ["--beam", "integer"]),
    "existing run": Case("train demo --out run", ["'run' already holds a run", "--resume"]),
    "file as run": Case("train demo --out good.en", ["'good.en'", "cannot make the folder"]),
    "file as demo run": Case("demo --out good.en", ["'good.en'", "cannot make the folder"]),
    "run below a file": Case("train demo --out good.en/run", ["good.en/run", "cannot make"]),
    "resumed where no run is": Case(
        "train --out OUT --resume", ["holds no run to continue", "--out"]
    ),
    "resumed with another model": Case(
        "train demo --out run --resume --set model.d_ff=9", ["'run'", "[model]", "another --out"]
    ),
    "resumed with other data": Case(
        "train --out run --resume --set data.max_length=9", ["'run'", "[data]", "another --out"]
    ),
    "resumed by a wrong name": Case(
        "train demmo --out run --resume", ["'demmo'", "did you mean 'demo'?"]
    ),
    "resumed by the name of another recipe": Case(
        "train small --out run --resume", ["another recipe", "'small'", "leave RECIPE out"]
    ),
    "empty --out": Case("train demo --out <>", ["--out is empty"]),
    "resumed with another optimizer": Case(
        "train --out run --resume --set training.optimizer=adam", ["'run'", "training.optimizer"]
    ),
    "resumed with an unknown schedule": Case(
        "train --out run --resume --set training.schedule=cosin", ["training.schedule = 'cosin'"]
    ),
    "resumed without a whole run": Case(
        "train --out no-tokenizer --resume", ["tokenizer.json' does not exist"]
    ),
    "device to train on": Case("train demo --out OUT --device cuda:77", ["'cuda:77'"]),
    "device to translate on": Case("translate run text --device gpu", ["'gpu'", "cpu"]),
    "device without numbers": Case("translate run text --device meta", ["'meta'"]),
    "n-best": Case("translate run text --n-best 9", ["n_best = 9", "decoding.beam = 4"]),
    "no n-best": Case("translate run text --n-best 0", ["n_best = 0"]),
    "no beam": Case("translate run text --beam 0", ["decoding.beam = 0"]),
    "no batch": Case("evaluate run --source few.en --target few.de --batch-size 0", ["batch_size"]),
    "setting of another section": Case(
        "translate run text --set model.d_ff=3", ["model.d_ff", "[decoding]"]
    ),
    "unknown setting": Case(
        "translate run text --set decoding.alhpa=1", ["'decoding.alhpa'", "'alpha'"]
    ),
    "unknown strategy": Case(
        "translate run text --set decoding.strategy=bean", ["'bean'", "did you mean 'beam'?"]
    ),
    "TEXT and --input": Case("translate run text --input good.en", ["TEXT", "--input"]),
    "missing input": Case("translate run --input lost.en", ["lost.en does not exist"]),
    "binary input": Case("translate run --input binary.en", ["binary.en is a binary file"]),
    "cut input": Case("translate run --input cut.en.gz", ["cut.en.gz is cut off"]),
    "invalid bytes from standard input": Case(
        "translate run", ["standard input, line 2", "byte 3"], stdin=b"fine\nno\xff\n"
    ),
    "output over the input": Case(
        "translate run --input good.en --output good.en", ["are the same file", "another file"]
    ),
    "output over the input by another name": Case(
        "translate run --input good.en --output folder/../good.en", ["good.en", "another file"]
    ),
    "output in no folder": Case("translate run text --output lost/out.de", ["lost/out.de"]),
    "folder as output": Case("translate run text --output folder", ["cannot write folder"]),
    "mistake with an existing output": Case(
        "translate run text --output short.de --n-best 9", ["n_best = 9"]
    ),
    "invalid input with an existing output": Case(
        "translate run --input latin.en --output short.de", ["latin.en, line 1"]
    ),
    "test set with different line counts": Case(
        "evaluate run --source good.en --target short.de",
        ["good.en has 30 lines", "short.de has 29"],
    ),
    "empty test set": Case(
        "evaluate run --source empty.en --target empty.de", ["empty.en", "nothing to translate"]
    ),
    "test set without references": Case("evaluate run --source good.en", ["--target"]),
    "demo setting": Case("demo --out OUT --set training.stepps=3", ["did you mean 'steps'?"]),
}

ALL = {
    f"{group}: {name}": case
    for group, cases in {
        "data": DATA,
        "recipe": RECIPES,
        "folder": FOLDERS,
        "command": COMMANDS,
    }.items()
    for name, case in cases.items()
}


def write_data() -> None:
    chosen = list(islice(sentences(seed=0), PAIRS))
    english = "".join(f"{sentence.source}\n" for sentence in chosen).encode()
    german = "".join(f"{sentence.target}\n" for sentence in chosen).encode()
    pairs = list(zip(english.decode().splitlines(), german.decode().splitlines(), strict=True))
    damaged = {gzip.compress: "gz", lzma.compress: "xz", zstandard.compress: "zst"}
    files = {
        "good.en": english,
        "good.de": german,
        "good.tsv": "".join(f"{source}\t{target}\n" for source, target in pairs).encode(),
        "short.de": german.split(b"\n", 1)[1],
        "empty.en": b"",
        "empty.de": b"",
        "blank.en": b" \n" * PAIRS,
        "binary.en": bytes(range(256)) * 40,
        "utf16.en": english.decode().encode("utf-16"),
        "latin.en": "größer übel\n".encode("latin-1") * PAIRS,
        "nul.en": b"a\0b\n" * PAIRS,
        **{f"cut.en.{suffix}": pack(english)[:-20] for pack, suffix in damaged.items()},
        "plain.en.gz": english,
        "packed.en": gzip.compress(english),
        "columns.tsv": b"one\ttwo\tthree\n" * PAIRS,
        "broken.jsonl": b'{"source": "a", "target": \n' * PAIRS,
        "keys.jsonl": b'{"en": "a", "de": "b"}\n' * PAIRS,
        "pairs.csv": b"a,b\n" * PAIRS,
        "few.en": b"\n".join(english.split(b"\n")[:9]),
        "few.de": b"\n".join(german.split(b"\n")[:9]),
        "same.en": b"one sentence\n" * PAIRS,
        "text.toml": b"[model]\nthis is a sentence\n",
        "latin.toml": 'description = "größer"\n'.encode("latin-1"),
        "unknown.toml": b"[model]\nd_modle = 128\n",
        "other.json": b'{"a": 1}',
        "nested.toml": b"a = " + NESTED,
        "like-pipe.toml": b'like = "pipe.toml"\n',
        "like-zero.toml": b'like = "/dev/zero"\n',
    }
    for name, content in files.items():
        Path(name).write_bytes(content)
    for folder in ("folder", "folder.toml"):
        Path(folder).mkdir()
    os.mkfifo("pipe.toml")


def write_run(folder: Path) -> None:
    """Write a model that has learned nothing; for mistakes it is as good as any."""
    recipe = load_recipe("demo", SMALL)
    tokenizer = train_tokenizer("bpe", Path("good.en").read_text().splitlines(), 300)
    (folder / "state").mkdir(parents=True)
    save_task(folder, recipe, Translation(tokenizer, tokenizer, 32))
    model = build_model(recipe.model, tokenizer.size, tokenizer.size)
    save_parameters(folder, model, Translation(tokenizer, tokenizer, 32))


def odd_tokenizers(tokenizer: bytes) -> dict[str, bytes]:
    """Make files of valid JSON that would explode, or that belong to another model."""

    def changed(**parts: object) -> bytes:
        return json.dumps({**json.loads(tokenizer), **parts}).encode()

    values = json.loads(tokenizer)
    vocabulary: dict[str, int] = values["model"]["vocab"]
    last, one_before = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    swapped = {**vocabulary, last: vocabulary[one_before], one_before: vocabulary[last]}
    high = {**vocabulary, last: 2_000_000_000}
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    explode = {"type": "Split", "behavior": "Isolated", "invert": False}
    token = values["added_tokens"][0]
    added = [{**token, "id": 1000 + n, "content": f"<{n}>"} for n in range(20_000)]
    return {
        "exploding-tokenizer": changed(pre_tokenizer={**explode, "pattern": {"Regex": "(a+)+$"}}),
        "growing-tokenizer": changed(normalizer={"type": "Sequence", "normalizers": [double] * 30}),
        "high-tokenizer": changed(model={**values["model"], "vocab": high}),
        "added-tokenizer": changed(added_tokens=added),
        "other-order": changed(model={**values["model"], "vocab": swapped}),
    }


def write_damaged_runs(good: Path) -> None:
    weights, recipe = (good / PARAMETERS).read_bytes(), (good / "recipe.toml").read_bytes()
    tokenizer = (good / "tokenizer.json").read_bytes()
    pickled = io.BytesIO()
    torch.save({"output.weight": torch.zeros(3)}, pickled)
    damage: dict[str, dict[str, bytes | None]] = {
        "no-weights": {PARAMETERS: None},
        "cut-weights": {PARAMETERS: weights[: len(weights) // 2]},
        "random-weights": {PARAMETERS: hashlib.shake_128().digest(4000)},
        "pickled-weights": {PARAMETERS: pickled.getvalue()},
        "empty-weights": {PARAMETERS: b""},
        "other-sizes": {"recipe.toml": recipe.replace(b"d_ff = 8", b"d_ff = 9")},
        "more-layers": {"recipe.toml": recipe.replace(b"_layers = 1", b"_layers = 2")},
        "no-tokenizer": {"tokenizer.json": None},
        "cut-tokenizer": {"tokenizer.json": tokenizer[: len(tokenizer) // 2]},
        "binary-tokenizer": {"tokenizer.json": pickle.dumps(["tokens"])},
        "cut-recipe": {"recipe.toml": recipe[: recipe.index(b"[model]") + 4]},
        "odd-recipe": {"recipe.toml": recipe.replace(b"d_model", b"d_modle")},
        "odd-kind": {"recipe.toml": recipe.replace(b'"dot"', b'"dott"')},
        "giant": {
            "recipe.toml": recipe.replace(b'"rotary"', b'"learned"').replace(
                b"max_positions = 1024", b"max_positions = 1000000000000000"
            )
        },
        "cut-card": {"scorecard.json": b'{"bleu": '},
        "odd-card": {"scorecard.json": b"[1, 2]"},
        "nested-card": {"scorecard.json": NESTED},
        "partial-card": {"scorecard.json": b'{"bleu": 3.0}'},
        "typed-card": {"scorecard.json": b'{"steps": "many"}'},
        "evaluated-card": {"scorecard.json": b'{"evaluations": [1]}'},
        "like-zero": {"recipe.toml": b'like = "/dev/zero"\n' + recipe},
        "too-wide": {"recipe.toml": recipe.replace(b"d_model = 16", b"d_model = 1000000")},
        "wider": {"recipe.toml": recipe.replace(b"d_model = 16", b"d_model = 65536")},
        "too-deep": {"recipe.toml": recipe.replace(b"er_layers = 1", b"er_layers = 100000000")},
        "deeper": {"recipe.toml": recipe.replace(b"er_layers = 1", b"er_layers = 1000")},
        "nested-recipe": {"recipe.toml": b"a = " + NESTED},
        "large-recipe": {"recipe.toml": recipe + b"#" * 2_000_000},
        "nested-tokenizer": {"tokenizer.json": NESTED},
        **{name: {"tokenizer.json": odd} for name, odd in odd_tokenizers(tokenizer).items()},
    }
    for name, changes in damage.items():
        shutil.copytree(good, name)
        for file, content in changes.items():
            path = Path(name) / file
            path.unlink() if content is None else path.write_bytes(content)
    for value in ("nan", "inf"):
        shutil.copytree(good, f"{value}-weights")
        tensors = read_tensors(good / PARAMETERS)
        next(tensor for tensor in tensors.values() if tensor.ndim == 2)[1, 2] = float(value)
        write_tensors(Path(f"{value}-weights") / PARAMETERS, tensors)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """One folder with everything that can be got wrong."""
    folder = tmp_path_factory.mktemp("world")
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_data()
        write_run(Path("run"))
        write_damaged_runs(Path("run"))
        load_translator("run", device="cpu")  # is converted now, not in the tests
        Path("cut.json").write_bytes(Path("cut-tokenizer/tokenizer.json").read_bytes())
    finally:
        os.chdir(before)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).digest()
        if path.is_file()
        else b"folder"
        for path in folder.rglob("*")
    }


def check_answer(case: Case, code: int, stdout: str, stderr: str) -> None:
    assert (code, stdout) == (2, ""), stderr
    stderr = stderr.removeprefix("converting the model for CTranslate2, once ...\n")
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert stderr.endswith("\n")
    for fragment in case.fragments:
        assert fragment in stderr


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_mistake_is_answered_in_one_line_and_nothing_is_lost(
    case, world, tmp_path, monkeypatch, capfd
):
    out = tmp_path / "new"
    before = contents(world)
    monkeypatch.chdir(world)
    monkeypatch.setattr(sys, "argv", ["attendo", *arguments(case, out)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.stdin)))
    with pytest.raises(SystemExit) as exit_:
        main()
    stdout, stderr = capfd.readouterr()
    check_answer(case, exit_.value.code, stdout, stderr)
    assert contents(world) == before
    assert not [path for path in out.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "name",
    [
        "command: unknown command",
        "command: invalid bytes from standard input",
        "folder: pickled weights",
        "data: different line counts",
        "recipe: unknown model.attention",
    ],
)
def test_a_real_process_answers_in_the_same_way(name, world, tmp_path):
    case, before = ALL[name], contents(world)
    done = subprocess.run(
        [sys.executable, "-m", "attendo", *arguments(case, tmp_path / "new")],
        input=case.stdin,
        capture_output=True,
        cwd=world,
        check=False,
    )
    check_answer(case, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert contents(world) == before


def test_text_in_another_encoding_on_the_command_line_is_refused(world, monkeypatch, capfd):
    monkeypatch.chdir(world)
    # What Python makes of the byte 0xFC, an "ü" in Latin-1, on a command line in UTF-8.
    monkeypatch.setattr(sys, "argv", ["attendo", "translate", "run", "fine", "\udcfcbel"])
    with pytest.raises(SystemExit) as exit_:
        main()
    case = Case("", ["'\\udcfcbel'", "UTF-8"])
    check_answer(case, exit_.value.code, *capfd.readouterr())


def test_our_own_mistake_has_exit_code_1_and_with_debug_a_traceback(world, monkeypatch, capfd):
    monkeypatch.chdir(world)
    monkeypatch.setattr("attendo.config.presets_by_task", lambda: 1 // 0)
    monkeypatch.setattr(sys, "argv", ["attendo", "recipes"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    assert "unexpected ZeroDivisionError" in capfd.readouterr().err
    monkeypatch.setattr(sys, "argv", ["attendo", "--debug", "recipes"])
    with pytest.raises(ZeroDivisionError):
        main()


def test_a_new_run_leaves_the_other_files_of_its_folder_alone(world, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(world)
    for name in ("notes.txt", ".notes.tmp", ".my.notes.tmp"):
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["attendo", "train", "tiny", "--pairs", "lost.tsv", "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit):
        main()
    assert contents(tmp_path) == {**before, Path("state"): b"folder"}


def test_a_start_that_failed_can_be_made_again_with_other_settings(
    world, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(world)
    words = ["attendo", "train", "tiny", "--pairs", "good.tsv", "--out", str(tmp_path)]
    for setting in ("data.max_length=4", "data.max_length=5"):
        monkeypatch.setattr(sys, "argv", [*words, "--set", setting])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 2
        assert f"data.max_length = {setting[-1]} tokens" in capfd.readouterr().err


def test_the_recipes_of_the_damaged_runs_are_damaged_where_they_should_be(world):
    good = (world / "run" / "recipe.toml").read_text()
    assert good == write_recipe(load_recipe("demo", SMALL))
    names = ("other-sizes", "more-layers", "odd-recipe", "odd-kind", "giant")
    for name in (*names, "too-wide", "wider", "too-deep", "deeper"):
        assert (world / name / "recipe.toml").read_text() != good
    assert json.loads((world / "odd-card" / "scorecard.json").read_text()) == [1, 2]


def test_a_run_without_fingerprints_still_loads(world, tmp_path, monkeypatch, capfd):
    """As older ones are."""
    shutil.copytree(world / "run", tmp_path / "run")
    write_tensors(tmp_path / "run" / PARAMETERS, read_tensors(world / "run" / PARAMETERS))
    monkeypatch.setattr(sys, "argv", ["attendo", "translate", str(tmp_path / "run"), "text"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code, capfd.readouterr().err


def test_parameters_that_overflow_are_refused_by_every_command(world, tmp_path, monkeypatch, capfd):
    run = overflowing(world / "run", tmp_path / "run")
    monkeypatch.chdir(world)
    for words in (
        ["translate", str(run), "text"],
        ["translate", str(run), "text", "--set", "decoding.strategy=greedy"],
        ["translate", str(run), "text", "--set", "decoding.strategy=sample"],
        ["evaluate", str(run), "--source", "few.en", "--target", "few.de"],
        ["look", str(run), "text"],
        ["look", str(run), "text", "--target", "text", "--out", str(tmp_path / "page.html")],
    ):
        monkeypatch.setattr(sys, "argv", ["attendo", *words])
        with pytest.raises(SystemExit) as exit_:
            main()
        check_answer(
            Case("", ["not finite", "model.safetensors"]), exit_.value.code, *capfd.readouterr()
        )
    translator = load(run, "cpu")
    for ask in (translator.record, lambda source, target: translator.score([source], [target])):
        with pytest.raises(BundleError, match="output is not finite"):
            ask("text", "text")


@pytest.mark.parametrize("seconds", [0.2, 0.6, 1.2, 2.5])
def test_ctrl_c_during_the_imports_leaves_no_traceback(world, seconds):
    process = subprocess.Popen(
        [sys.executable, "-m", "attendo", "translate", "run", "text"],
        cwd=world,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    # On a fast machine the imports, or even the translation, may be over.
    assert "Traceback" not in messages
    assert "error" not in messages
    assert process.returncode in (0, 130, -signal.SIGINT)
