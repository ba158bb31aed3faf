"""A real server in a process of its own, on loopback, and a real browser."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

DRIVER = shutil.which("chromedriver")


@contextmanager
def serving(*runs: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """Start `attendo serve`, yield its address, and stop it."""
    words = [sys.executable, "-m", "attendo", "serve", *map(str, runs), "--port", "0"]
    with TemporaryFile("w+") as log:
        process = subprocess.Popen([*words, "--device", "cpu", *options], stderr=log)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _address(process: subprocess.Popen[bytes], log: IO[str]) -> str:
    """Wait until the server prints its address."""
    for _ in range(600):
        log.seek(0)
        printed = log.read()
        if found := re.search(r"^open (http://\S+)", printed, re.MULTILINE):
            return found[1]
        assert process.poll() is None, printed
        time.sleep(0.1)
    raise TimeoutError(f"the server printed no address, only {printed!r}")


def emulate(driver: webdriver.Chrome, width: int, height: int, theme: str) -> None:
    """Set the size of the browser's screen, and its preference for light or dark pages."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


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
