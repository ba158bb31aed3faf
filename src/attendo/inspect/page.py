"""A look as one HTML file: no server, no network, nothing beside it.

The page is that of `attendo serve`, with its modules put into one script and what was seen beside
them. Its own policy lets nothing else run.
"""

import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

WEB = files("attendo") / "web"

IMPORT = re.compile(r"^import\s*\{[^}]*\}\s*from\s*\"\./([\w-]+\.js)\";\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)

PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>attendo: a look inside</title>
<style>$style</style>
</head>
<body>
<script type="application/json" id="looked">$looked</script>
<script type="module">$script</script>
</body>
</html>
""")


def whole_page(looked: dict[str, Any]) -> str:
    """Write the page for what was seen."""
    style, script = (WEB / "style.css").read_text("utf-8"), bundle_modules("main.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # In a script element only this could end the text, or begin another.
    data = json.dumps(looked, ensure_ascii=False).replace("<", "\\u003c")
    return PAGE.substitute(policy=policy, style=style, script=script, looked=data)


def bundle_modules(entry: str) -> str:
    """Join a module and all that it imports into one script, each after what it needs."""
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        text = (WEB / name).read_text("utf-8")
        for needed in IMPORT.findall(text):
            if needed not in ordered:
                add(needed)
        ordered[name] = EXPORT.sub("", IMPORT.sub("", text))

    add(entry)
    return "\n".join(ordered.values())


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
