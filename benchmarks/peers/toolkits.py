"""Other toolkits, by their own commands, each in an environment of its own.

They are configured as their users would do it: the sizes, loss and optimizer of a recipe, batches
with the same number of positions, and nothing that costs time and is not needed.
"""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attendo.config import Recipe, TransformerConfig
from attendo.errors import ConfigError, DataError
from attendo.files import write_text
from attendo.lab.bench.results import Row
from attendo.lab.bench.sentences import Sentences
from attendo.lab.clock import spread
from attendo.specials import NAMES

Settings = dict[str, Any]

WINDOW = 16_384
"""Pairs that are sorted by length together, as ours are."""

JOEYS = {"<unk>": "unk", "<pad>": "pad", "<s>": "bos", "</s>": "eos"}
"""The special tokens of JoeyNMT, and what it calls them."""

N_VALIDATION = 50
"""Validation pairs that a toolkit requires; they are never used."""


class Job(NamedTuple):
    """What is to be trained, and for how long."""

    recipe: Recipe
    folder: Path
    """Holds what `write_texts` writes."""
    steps: int
    report_every: int

    @property
    def model(self) -> TransformerConfig:
        """Return the model settings, which `check_comparable` has checked."""
        assert isinstance(self.recipe.model, TransformerConfig)
        return self.recipe.model

    @property
    def never(self) -> int:
        """Return the number of a step that is never reached."""
        return 1000 * self.steps


def write_texts(sentences: Sentences, vocabulary: int, folder: Path) -> None:
    """Write made-up pairs as text, with numbers for words, and the list of these."""
    for name, side in (("src", sentences.source_ids), ("tgt", sentences.target_ids)):
        lines = [" ".join(map(str, side(number))) + "\n" for number in range(sentences.size)]
        write_text(folder / f"train.{name}", "".join(lines))
        write_text(folder / f"valid.{name}", "".join(lines[:N_VALIDATION]))
    words = [f"{number}\n" for number in range(len(NAMES), vocabulary)]
    write_text(folder / "words.txt", "".join(words))
    # JoeyNMT needs its special tokens in the list.
    write_text(folder / "joey.txt", "".join([*(f"{token}\n" for token in JOEYS), *words]))


class Toolkit(NamedTuple):
    """How a toolkit is configured, and how it reports its speed."""

    settings: Callable[[Job, str], Settings]
    """Of a job and a precision."""
    command: Sequence[str]
    """What its Python is to run; the file with the settings is put after it."""
    precisions: Sequence[str]
    """Those that it trains with on a CPU."""
    speed: str
    """Its report of target tokens per second: an expression with the number as its group."""
    parameters: str
    """The same of its number of parameters."""


def eole(job: Job, precision: str) -> Settings:
    """Describe a job to EOLE; a file of JSON is one of YAML, too."""
    model, training = job.model, job.recipe.training
    here, positions = str(job.folder), {"position_encoding_type": "SinusoidalInterleaved"}
    words = f"{here}/words.txt"
    return {
        "data": {
            "corpus": {"path_src": f"{here}/train.src", "path_tgt": f"{here}/train.tgt"},
            "valid": {"path_src": f"{here}/valid.src", "path_tgt": f"{here}/valid.tgt"},
        },
        "save_data": here,
        "src_vocab": words,
        "tgt_vocab": words,
        "share_vocab": True,
        "report_every": job.report_every,
        "seed": training.seed,
        "training": {
            "world_size": 1,
            "gpu_ranks": [],
            "compute_dtype": precision,
            "batch_type": "tokens",
            "batch_size": training.batch_tokens,
            "bucket_size": WINDOW,
            "num_workers": 0,  # on few cores others would only take time from the one that learns
            "train_steps": job.steps,
            "valid_steps": job.never,
            "save_checkpoint_steps": job.never,
            "model_path": f"{here}/model",
            "optim": "adamw",
            "adam_beta2": training.beta_2,
            "learning_rate": 1e-3,
            "decay_method": "none",
            "max_grad_norm": training.clip_norm,
            "label_smoothing": training.label_smoothing,
            "normalization": "tokens",
            "dropout": [model.p_drop],
            "attention_dropout": [model.p_drop_attention],
            "log_attention_entropy": False,  # takes time
        },
        "model": {
            "architecture": "transformer",
            "hidden_size": model.d_model,
            "transformer_ff": model.d_ff,
            "heads": model.n_heads,
            "encoder": {"encoder_type": "transformer", "layers": model.encoder_layers},
            "decoder": {"decoder_type": "transformer", "layers": model.decoder_layers},
            "mlp_activation_fn": model.feed_forward,
            **dict.fromkeys(("add_qkvbias", "add_final_linear_bias", "add_ffnbias"), True),
            **dict.fromkeys(("share_embeddings", "share_decoder_embeddings"), True),
            "embeddings": {"word_vec_size": model.d_model, **positions},
            **positions,
        },
    }


def joeynmt(job: Job, precision: str) -> Settings:
    """Describe a job to JoeyNMT."""
    model, training = job.model, job.recipe.training
    specials: Settings = {f"{name}_token": token for token, name in JOEYS.items()}
    specials |= {f"{name}_id": number for number, name in enumerate(JOEYS.values())}
    side = {
        "level": "word",
        "lowercase": False,
        "max_length": job.recipe.data.max_length,
        "voc_file": str(job.folder / "joey.txt"),
    }

    def stack(layers: int) -> Settings:
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": model.n_heads,
            "hidden_size": model.d_model,
            "ff_size": model.d_ff,
            "activation": model.feed_forward,
            "dropout": model.p_drop,
            "layer_norm": model.norm_order,
            "embeddings": {"embedding_dim": model.d_model, "scale": True, "dropout": 0.0},
        }

    return {
        "name": "bench",
        "model_dir": str(job.folder / "joey"),
        "use_cuda": False,
        "random_seed": training.seed,
        "data": {
            "train": str(job.folder / "train"),
            "dev": str(job.folder / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
            "special_symbols": specials,
        },
        "testing": {"beam_size": 1},
        "training": {
            "optimizer": "adamw",
            "adam_betas": [training.beta_1, training.beta_2],
            "learning_rate": 1e-3,
            "learning_rate_min": 0.0,  # it ends when it comes below
            # Another is not possible: the default uses what torch no longer has.
            "scheduling": "noam",
            "learning_rate_factor": 1,
            "learning_rate_warmup": 4000,
            "label_smoothing": training.label_smoothing,
            "clip_grad_norm": training.clip_norm,
            "loss": "crossentropy",
            "normalization": "tokens",
            "batch_type": "token",
            "batch_size": training.batch_tokens,
            "epochs": job.steps,
            "updates": job.steps,
            "logging_freq": job.report_every,
            "validation_freq": job.never,
            "early_stopping_metric": "loss",
            "print_valid_sents": [],
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack(model.encoder_layers),
            "decoder": stack(model.decoder_layers),
        },
    }


TOOLKITS = {
    "EOLE": Toolkit(
        settings=eole,
        command=("-c", "from eole.bin.main import main; main()", "train", "--config"),
        precisions=("fp32", "bf16"),
        speed=r"Step .*/ *(\d+) tok/s",
        parameters=r"number of parameters: (\d+)",
    ),
    "JoeyNMT": Toolkit(
        settings=joeynmt,
        command=("-m", "joeynmt", "train", "--skip-test"),
        precisions=("fp32",),
        speed=r"Tokens per Sec: *(\d+)",
        parameters=r"Total params: (\d+)",
    ),
}


def train(name: str, python: Path, job: Job, precision: str) -> Row:
    """Run the training of a toolkit; return the speeds that it reports, without the first."""
    toolkit = TOOLKITS[name]
    settings = job.folder / f"{name}.yaml"
    write_text(settings, json.dumps(toolkit.settings(job, precision)))
    try:
        done = subprocess.run(
            [str(python), *toolkit.command, str(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=job.folder,
            text=True,
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"cannot run {str(python)!r}: {error.strerror}") from None
    speeds = [float(number) for number in re.findall(toolkit.speed, done.stdout)]
    if done.returncode or len(speeds) < 2:
        last = "; ".join(done.stdout.strip().splitlines()[-2:])
        raise DataError(f"{name} in {str(python)!r} did not train: {last}")
    (parameters,) = re.findall(toolkit.parameters, done.stdout)[:1] or [None]
    return {
        "system": f"{name}, {precision}",
        "parameters": parameters and int(parameters),
        **spread("tokens_per_second", speeds[1:]),
    }
