"""Asking a real server; it and the browser are those of benchmarks/."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from served import DRIVER, browsing, emulate, serving

__all__ = ["DRIVER", "browsing", "emulate", "fits_the_screen", "send", "serving"]

OVERFLOWING = """
const width = document.documentElement.clientWidth;
const isWide = (element) => element.getBoundingClientRect().right > width + 0.5;
const wide = [...document.querySelectorAll("body *")].filter(
  (element) => isWide(element) && !element.parentElement.closest(".scroll, svg"));
const scrolling = [...document.querySelectorAll(".scroll")];
const hasHint = (element) => element.querySelector(".hint").getClientRects().length > 0;
const wrong = scrolling.filter(
  (element) => (element.scrollWidth > element.clientWidth) !== hasHint(element));
return {
  width: document.documentElement.scrollWidth - width,
  elements: wide.map((element) => element.outerHTML.slice(0, 200)),
  hints: wrong.map((element) => element.outerHTML.slice(0, 200)),
  scrolling: scrolling.filter((element) => element.scrollWidth > element.clientWidth).length,
};
"""


def fits_the_screen(driver: Any) -> int:
    """Assert that only tables scroll, each with a hint; return how many do."""
    found = driver.execute_script(OVERFLOWING)
    assert (found["width"], found["elements"], found["hints"]) == (0, [], [])
    scrolling: int = found["scrolling"]
    return scrolling


def send(address: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
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
