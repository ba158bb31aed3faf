"""Asking a real server; it and the browser are those of bench/."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.append(str(Path(__file__).parents[1] / "bench"))

from served import DRIVER, browsing, serving

__all__ = ["DRIVER", "ask", "browsing", "serving"]


def ask(address: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
    """Send JSON (GET without a body); returns status, answer and headers."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = Request(address + path, data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=300) as response:
            content, status, headers = response.read(), response.status, response.headers
    except HTTPError as error:
        content, status, headers = error.read(), error.code, error.headers
    is_json = headers.get_content_type() == "application/json"
    return status, json.loads(content) if is_json else content, dict(headers)
