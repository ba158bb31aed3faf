"""A real server in a process of its own, on loopback, and a real browser to look at it with."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

DRIVER = shutil.which("chromedriver")


@contextmanager
def serving(*runs: Path) -> Iterator[str]:
    """Start `attendo serve`, give its address, and stop it."""
    words = [sys.executable, "-m", "attendo", "serve", *map(str, runs), "--port", "0"]
    process = subprocess.Popen([*words, "--device", "cpu"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("open http://127.0.0.1:"), line + process.stderr.read()
        yield line.split()[1]
    finally:
        process.terminate()
        process.wait(timeout=20)
        process.stderr.close()


@contextmanager
def browsing(width: int = 1280, height: int = 1000) -> Iterator[webdriver.Chrome]:
    """Open a browser without a window; what it logs can be read."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
