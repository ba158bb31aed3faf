"""Processes of attendo that start at once: each is forked from one that has imported everything."""

import multiprocessing
import os
import sys
from pathlib import Path

from attendo.cli import main

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["attendo.cli.train", "attendo.training.run", "torch._dynamo"])


class Forked:
    """A running command, used like a `subprocess.Popen`."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.log = log
        self.process = CONTEXT.Process(target=_run, args=(words, log))
        self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return nothing, and all that it has printed."""
        self.process.join(timeout)
        return "", self.log.read_text(encoding="utf-8")


def _run(words: list[str], log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["attendo", *words]
    main()
