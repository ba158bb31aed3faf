# ruff: noqa: E402 -- the imports depend on what is set before them
"""What many tests share: sizes that cannot be confused, and a small model trained once."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import pytest
import torch
from jaxtyping._import_hook import _JaxtypingFinder
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import checks

# Triton reads the source of the kernels, and must find them as they are written: unchecked. On a
# GPU steps are compiled, and the checks cannot be.
KERNELS = {"attention", "feedforward", "overlap", "residual", "rows", "softmax", "steps", "top"}
is_checked = _JaxtypingFinder.should_instrument
_JaxtypingFinder.should_instrument = lambda finder, name: (
    is_checked(finder, name)
    and not torch.cuda.is_available()
    and name.removeprefix("attendo.nn.fast.") not in KERNELS
    and name != "attendo.decoding.kernels"
)
jaxtyping.jaxtyped = checks.jaxtyped
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import attendo
from attendo.cli import main
from attendo.config import TransformerConfig

# A shell that runs the tests in the background has SIGINT ignored, by them and by what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The models of the tests are so small that a second thread costs more than it helps, here and in
# the processes that tests start.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Pairwise distinct primes (where the mathematics allows): a swapped axis fails instead of hiding.
ROWS, SOURCE, TARGET, HEADS, WIDTH, INNER, VOCABULARY = 3, 11, 7, 5, 10, 13, 41


def small_config(**changes) -> TransformerConfig:
    settings = {
        "d_model": HEADS * WIDTH,
        "d_ff": INNER,
        "n_heads": HEADS,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "p_drop": 0.0,
    }
    return TransformerConfig(**{**settings, **changes})


class _Made(TorchDispatchMode):
    """Notes the memory of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = _storages((args, kwargs))
        for reference, size in _storages(result).items():
            if reference not in given:  # not a view
                self.sizes[reference] = size
        return result


def _storages(values) -> dict[StorageWeakRef, int]:
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {StorageWeakRef(storage): storage.nbytes() for storage in storages}


def held_bytes(run: Callable[[], torch.Tensor]) -> int:
    """Count the bytes that a forward pass has made and holds for its backward pass."""
    with _Made() as made:
        result = run()
    assert result.requires_grad
    return sum(size for storage, size in made.sizes.items() if not storage.expired())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test: at the end it would keep one process waiting for the other."""
    items.sort(key=lambda item: "every_command_that_readme" not in item.name)


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch.manual_seed(0)
    checks.calls.clear()


@contextmanager
def without_checks() -> Iterator[None]:
    """Leave out the checks of shapes for a while: they take most of the time of small models."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def unchecked() -> Iterator[None]:
    with without_checks():
        yield


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Run a command; returns its exit code and what it prints."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """Train a real, if small, translator on the built-in corpus: about half a minute, once."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    make_once(tmp_path_factory.getbasetemp(), "trained", train, folder)
    return folder


def make_once(temporary: Path, name: str, make: Callable[[Path], object], out: Path) -> None:
    """Copy to `out` what the first of all processes that run the tests has made."""
    shared = temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary
    done = shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(shared / name)
            done.touch()
    subprocess.run(["cp", "-a", shared / name, out], check=True)  # keeps hard links


def train(folder: Path) -> None:
    settings = {
        "data.builtin": 8000,
        "data.hold_out": 60,
        "tokenizer.vocabulary": 1500,
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
        "training.steps": 300,
        "training.warmup_steps": 30,
        "training.batch_tokens": 2048,
        "training.validate_every": 100,
    }
    with without_checks():
        attendo.train("demo", out=folder, device="cpu", settings=settings)
        attendo.load_translator(folder, device="cpu")  # so that it is converted
