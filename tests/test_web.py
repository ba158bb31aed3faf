"""The page's modules that need no browser, by node's own test runner."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_the_modules_of_the_page():
    tests = Path(__file__).parent / "web" / "modules.test.js"
    done = subprocess.run(
        [str(NODE), "--test", str(tests)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
