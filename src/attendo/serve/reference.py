"""The reference of the HTTP API, from its OpenAPI description: Markdown, and the page /docs."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

Json = dict[str, Any]

ADDRESS = "http://127.0.0.1:8000"
WIDTH = 110
"""Characters of a line, in text and in examples."""

INTRODUCTION = (
    "Start the server with attendo serve RUN. Objects that several endpoints use, and the status "
    "codes of errors, are described at the end. Lists in examples are shortened. The same as "
    f"OpenAPI: {ADDRESS}/api/openapi.json"
)


@dataclass(frozen=True)
class Field:
    """A field of an object."""

    name: str
    type: str
    """Its type, limits and default."""
    meaning: str


@dataclass(frozen=True)
class Endpoint:
    """An endpoint with all that is needed to call it."""

    name: str
    """Method and path."""
    meaning: str
    request: list[Field]
    call: str
    """A command that calls it."""
    response: list[Field]
    example: str
    """The response to that call, shortened."""


@dataclass(frozen=True)
class Reference:
    """The contents of the reference, before they become Markdown or HTML."""

    title: str
    description: str
    endpoints: list[Endpoint]
    objects: dict[str, list[Field]]
    """Fields of the objects inside requests and responses."""
    errors: dict[str, str]
    """Meaning of each status code."""


def http_page(openapi: Json) -> str:
    """Return the reference as an HTML page."""
    return to_html(read_openapi(openapi))


def read_openapi(openapi: Json) -> Reference:
    """Collect the reference from an OpenAPI description."""
    schemas = openapi["components"]["schemas"]
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    endpoints = [_endpoint(name, operation, schemas) for name, operation in operations]
    responses = operations[0][1]["responses"].items()
    inner = [name for name in schemas if "examples" not in schemas[name]]
    return Reference(
        title="HTTP API",
        description=f"{openapi['info']['description']} {INTRODUCTION}",
        endpoints=endpoints,
        objects={name: _fields(schemas[name]) for name in inner},
        errors={code: text["description"] for code, text in responses if code != "200"},
    )


def _endpoint(name: str, operation: Json, schemas: Json) -> Endpoint:
    _, path = name.split()
    call, request = f"curl {ADDRESS}{path}", []
    if body := operation.get("requestBody"):
        schema = _body(body, schemas)
        example = json.dumps(_example(schema, schemas), ensure_ascii=False)
        request = _fields(schema)
        call = f"{call} \\\n  -H 'Content-Type: application/json' \\\n  -d '{example}'"
    response = _body(operation["responses"]["200"], schemas)
    return Endpoint(
        name=name,
        meaning=operation["description"],
        request=request,
        call=call,
        response=_fields(response),
        example=_pretty(_example(response, schemas)),
    )


def _body(message: Json, schemas: Json) -> Json:
    found: Json = schemas[_name(message["content"]["application/json"]["schema"])]
    return found


def _name(schema: Json) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _example(schema: Json, schemas: Json) -> Any:
    return _in_order(schema["examples"][0], schema, schemas)


def _in_order(value: Any, schema: Json, schemas: Json) -> Any:
    """Return an example as it was written: OpenAPI sorts its keys and leaves out null."""
    schema = schemas[_name(schema)] if "$ref" in schema else schema
    if "anyOf" in schema and value is not None:
        return _in_order(value, schema["anyOf"][0], schemas)
    if isinstance(value, list):
        return [_in_order(one, schema.get("items", {}), schemas) for one in value]
    if isinstance(value, dict) and "properties" in schema:
        given = {**dict.fromkeys(schema.get("required", ())), **value}
        fields = schema["properties"]
        return {
            name: _in_order(given[name], fields[name], schemas) for name in fields if name in given
        }
    if isinstance(value, dict) and "additionalProperties" in schema:
        values = schema["additionalProperties"]
        return {name: _in_order(one, values, schemas) for name, one in value.items()}
    return value


def _fields(schema: Json) -> list[Field]:
    required = schema.get("required", ())
    return [
        Field(name, f"{_type(field)}{_default(field, name in required)}", field["description"])
        for name, field in schema["properties"].items()
    ]


def _default(field: Json, is_required: bool) -> str:
    if is_required:
        return ""
    return f", default {json.dumps(field.get('default'))}"


def _type(schema: Json) -> str:
    """Describe the type of a field in words.

    >>> _type({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 16}})
    'list of integer from 1 to 16'
    """
    if "$ref" in schema:
        return _name(schema)
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object":
        return f"object of {_type(schema['additionalProperties'])}"
    return f"{kind}{_limits(schema)}"


def _limits(schema: Json) -> str:
    if "maxLength" in schema:
        return f" of up to {schema['maxLength']:,} characters"
    if "maximum" in schema:
        return f" from {schema['minimum']:g} to {schema['maximum']:g}"
    return f" from {schema['minimum']:g}" if "minimum" in schema else ""


def _pretty(value: Any, indent: str = "") -> str:
    """Format JSON so that what fits on a line is on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) < WIDTH - 20 or not isinstance(value, dict | list) or not value:
        return line
    deeper = f"{indent}  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_pretty(one, deeper)}" for key, one in value.items()]
        opening, closing = "{}"
    else:
        parts, (opening, closing) = [_pretty(one, deeper) for one in value], "[]"
    inside = f",\n{deeper}".join(parts)
    return f"{opening}\n{deeper}{inside}\n{indent}{closing}"


def to_markdown(reference: Reference) -> str:
    """Write the reference as Markdown."""
    blocks = [f"# {reference.title}", _wrapped(reference.description)]
    for endpoint in reference.endpoints:
        blocks += [f"## {endpoint.name}", _wrapped(endpoint.meaning)]
        if endpoint.request:
            blocks += ["Request:", _bullets(endpoint.request)]
        blocks.append(f"```sh\n{endpoint.call}\n```")
        blocks += ["Response:", _bullets(endpoint.response), f"```json\n{endpoint.example}\n```"]
    blocks.append("## Objects")
    for name, fields in reference.objects.items():
        blocks += [f"### {name}", _bullets(fields)]
    blocks.append("## Errors")
    blocks.append('Every error has the body `{"error": "what was wrong, in one line"}`.')
    blocks.append("\n".join(f"- {code}: {text}" for code, text in reference.errors.items()))
    return "\n\n".join(blocks) + "\n"


def _wrapped(text: str) -> str:
    return "\n\n".join(
        textwrap.fill(part, WIDTH, break_on_hyphens=False) for part in text.split("\n\n")
    )


def _bullets(fields: list[Field]) -> str:
    lines = (f"- `{field.name}` ({field.type}): {field.meaning}" for field in fields)
    return "\n".join(
        textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for line in lines
    )


def to_html(reference: Reference) -> str:
    """Write the reference as a page without scripts."""
    contents = "\n".join(_html_blocks(reference))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(reference.title)} · attendo</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/shared/docs.css">
</head>
<body>
<main>
{contents}
</main>
</body>
</html>
"""


def _html_blocks(reference: Reference) -> Iterator[str]:
    yield f"<h1>{escape(reference.title)}</h1><p>{escape(reference.description)}</p>"
    yield '<nav aria-label="Contents"><ul>'
    for endpoint in reference.endpoints:
        yield f'<li><a href="#{_anchor(endpoint.name)}">{escape(endpoint.name)}</a></li>'
    yield '<li><a href="#objects">Objects</a></li><li><a href="#errors">Errors</a></li></ul></nav>'
    for endpoint in reference.endpoints:
        yield f'<h2 id="{_anchor(endpoint.name)}">{escape(endpoint.name)}</h2>'
        yield f"<p>{escape(endpoint.meaning)}</p>"
        if endpoint.request:
            yield _table("Request", endpoint.request)
        yield _listing(endpoint.call)
        yield _table("Response", endpoint.response)
        yield _listing(endpoint.example)
    yield '<h2 id="objects">Objects</h2>'
    for name, fields in reference.objects.items():
        yield f'<h3 id="{_anchor(name)}">{escape(name)}</h3>{_table("Field", fields)}'
    yield '<h2 id="errors">Errors</h2>'
    yield "<p>Every error has a JSON body with one field, <code>error</code>: a line of text.</p>"
    yield "<ul>"
    for code, text in reference.errors.items():
        yield f"<li><b>{escape(code)}</b> {escape(text)}</li>"
    yield "</ul>"


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _table(title: str, fields: list[Field]) -> str:
    rows = "".join(
        f"<tr><th scope='row'><code>{escape(field.name)}</code></th>"
        f"<td>{escape(field.type)}</td><td>{escape(field.meaning)}</td></tr>"
        for field in fields
    )
    heads = "".join(f"<th scope='col'>{text}</th>" for text in (title, "Type", "Meaning"))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div class='wide' tabindex='0'>{table}</div>"


def _listing(text: str) -> str:
    return f"<pre tabindex='0'><code>{escape(text)}</code></pre>"
