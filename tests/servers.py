"""A real server in a process of its own, on loopback, for the tests that talk to it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


@contextmanager
def serving(*runs: Path) -> Iterator[str]:
    """Start `attendo serve`, give its address, and stop it as Ctrl-C does."""
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


def ask(address: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
    """Send JSON (GET without a body); returns status, answer and headers."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = Request(address + path, data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=60) as response:
            content, status, headers = response.read(), response.status, response.headers
    except HTTPError as error:
        content, status, headers = error.read(), error.code, error.headers
    is_json = headers.get_content_type() == "application/json"
    return status, json.loads(content) if is_json else content, dict(headers)
