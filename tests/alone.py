"""A process of its own, for what the checks of shapes in this one would disturb."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_python(*words: object) -> subprocess.CompletedProcess[str]:
    """Run something in a process of its own."""
    folders = [HERE.parent / "src", HERE, os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "OMP_NUM_THREADS": "1",
        },
    )


def run_alone(module: str, *calls: str) -> None:
    """Call functions of a module of tests where nothing checks shapes, which cannot be compiled."""
    lines = [f"import {module} as here", *(f"here.{call}" for call in calls)]
    done = run_python("-c", "; ".join(lines))
    assert done.returncode == 0, done.stderr
