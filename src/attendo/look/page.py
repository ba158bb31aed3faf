"""The explorer as one HTML file that needs no server and no network.

It is the page of `attendo serve` with its modules joined into one script and the data embedded. Its
content security policy allows no other script.
"""

import json
import posixpath
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

WEB = files("attendo") / "web"

IMPORT = re.compile(r"^import\s*\{[^}]*\}\s*from\s*\"(\.\.?/[\w/-]+\.js)\";\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)

STYLE = '<link rel="stylesheet" href="/shared/style.css">'
SCRIPT = '<script type="module" src="/explorer/main.js"></script>'


def whole_page(recorded: dict[str, Any]) -> str:
    """Return the page with its data embedded."""
    style = (WEB / "shared" / "style.css").read_text("utf-8")
    script = bundle_modules("explorer/main.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # In a script element only "<" could end the text or begin another; NaN is not JSON.
    data = json.dumps(recorded, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    page = (WEB / "explorer" / "index.html").read_text("utf-8")
    for tag, instead in {
        STYLE: (
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<style>{style}</style>"
        ),
        SCRIPT: (
            f'<script type="application/json" id="recording">{data}</script>\n'
            f'<script type="module">{script}</script>'
        ),
    }.items():
        before, found, after = page.partition(tag)
        assert found, f"index.html has no {tag}"
        page = before + instead + after
    return page


def bundle_modules(entry: str) -> str:
    """Join a module and all that it imports into one script, in order of dependence."""
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        text = (WEB / name).read_text("utf-8")
        for path in IMPORT.findall(text):
            needed = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            if needed not in ordered:
                add(needed)
        ordered[name] = EXPORT.sub("", IMPORT.sub("", text))

    add(entry)
    return "\n".join(ordered.values())


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
