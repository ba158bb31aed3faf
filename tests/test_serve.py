"""The server: a real process on loopback, with the requests of the page and with mistakes."""

import html
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from importlib.resources import files
from itertools import islice
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import torch
from pydantic import BaseModel

import attendo
from attendo.bundle import PARAMETERS, read_tensors, write_tensors
from attendo.cli.manual import http_reference
from attendo.data.builtin import sentences
from attendo.look import answers
from attendo.look.record import look
from attendo.serve import schema
from attendo.serve.app import make_api
from attendo.serve.guard import Limits
from attendo.serve.library import Library
from attendo.serve.reference import read_openapi
from servers import send, serving

TEXTS = [pair.source for pair in islice(sentences(seed=9, held_out=True), 4)]
TEXT = TEXTS[0]
GPT = files("attendo") / "shipped" / "walk-gpt"
API = make_api(Library((), "cpu"), Limits()).openapi()


@pytest.fixture(scope="module")
def address(trained) -> Iterator[str]:
    with serving(
        trained, trained, GPT, options=("--time-limit", "600", "--precision", "float32")
    ) as found:
        yield found


@pytest.fixture(scope="module")
def translator(trained):
    return attendo.load(trained, "cpu")


def answer(address: str, path: str, **body):
    status, found, _ = send(address, path, body)
    assert status == 200, found
    return found


def test_models_are_listed_by_their_folders(address, trained):
    _, found, _ = send(address, "/api/models")
    first, second, third = found["models"]
    assert first["name"] == trained.name
    assert second["name"] == f"{trained.name}-2"
    assert first["encoder_layers"] == 2
    assert first["bleu"] > 0
    assert first["examples"]
    assert [one["task"] for one in (first, third)] == ["translation", "language-model"]


def test_translations_are_those_of_the_model(address, translator):
    for text, expected in zip(TEXTS, translator.translations(TEXTS, beam=3), strict=True):
        found = answer(address, "/api/translate", source=text, beam=3)
        assert found["translation"] == expected[0].text
        assert found["score"] == pytest.approx(expected[0].score, abs=1e-3)
        assert found["milliseconds"] > 0
    assert answer(address, "/api/translate", source="")["translation"] == ""


def test_questions_asked_at_once_get_the_right_answers(address, translator):
    texts = TEXTS * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(
                lambda text: answer(address, "/api/translate", source=text)["translation"], texts
            )
        )
    assert found == translator.translate(TEXTS, beam=4) * 4


def test_a_look_is_what_python_sees(address, translator):
    found = answer(address, "/api/look", source=TEXT)
    expected = json.loads(json.dumps(answers.recording_json(translator, look(translator, TEXT))))
    assert found.pop("model") == ""
    assert found == expected
    given = answer(address, "/api/look", source=TEXT, target="Der Hund.")
    assert given["target"] == "Der Hund."


def test_details_follow(address, translator):
    recorded = look(translator, TEXT)
    layer = answer(address, "/api/layer", source=TEXT, kind="cross", layer=1)
    assert layer == answers.layer_json(recorded, "cross", 1)
    vectors = answer(address, "/api/vectors", source=TEXT, kind="decoder", layer=0, head=1)
    assert len(vectors["queries"]) == len(recorded.tokenized.target_tokens)
    checks = answer(address, "/api/checks", source=TEXT, layer=1)
    assert "correlation" in checks["words"]
    ablation = answer(address, "/api/ablation", source=TEXT)
    assert len(ablation["changes"]["cross"]) == 2
    beams = answer(address, "/api/beams", source=TEXT, beam=2)
    assert beams["nodes"][0]["token"] == "<s>"


def test_heads_are_ablated_for_one_request_only(address, translator):
    n_heads = translator.bundle.recipe.model.n_heads
    everything = [f"cross.{layer}.{head}" for layer in range(2) for head in range(n_heads)]
    plain = answer(address, "/api/translate", source=TEXT)
    ablated = answer(address, "/api/translate", source=TEXT, ablated=everything)
    assert ablated["translation"] != plain["translation"]
    assert answer(address, "/api/look", source=TEXT, ablated=everything)["ablated"] == everything
    assert answer(address, "/api/translate", source=TEXT)["translation"] == plain["translation"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (
            "/api/translate",
            {"source": "x", "model": "nobody"},
            400,
            "model = 'nobody' is not known",
        ),
        ("/api/translate", {"source": "x", "beam": 0}, 422, "beam"),
        ("/api/translate", {"source": "x" * 20_001}, 422, "20,001 characters; the limit is 20,000"),
        ("/api/translate", b"[]", 422, "not a json object"),
        ("/api/translate", {}, 422, "source"),
        ("/api/translate", {"source": "x", "colour": "red"}, 422, "colour"),
        ("/api/translate", b"{", 422, "json"),
        ("/api/translate", b"x" * 300_000, 413, "200,000 bytes"),
        ("/api/look", {"source": " "}, 400, "empty"),
        ("/api/look", {"source": "dog " * 900}, 400, "take a part"),
        ("/api/look", {"source": "dog", "target": "x " * 9000}, 400, "take a shorter one"),
        ("/api/beams", {"source": "dog " * 900}, 400, "take a part"),
        ("/api/beams", {"source": " \n"}, 400, "the text is empty"),
        ("/api/look", {"source": "x", "ablated": ["cross.7.0"]}, 400, "no head 'cross.7.0'"),
        ("/api/layer", {"source": "x", "kind": "cross", "layer": 2}, 400, "there are 2 layers"),
        ("/api/vectors", {"source": "x", "kind": "cross", "layer": 0, "head": 99}, 400, "heads"),
        ("/api/nothing", None, 404, "not found"),
        ("/explorer/main.js", {}, 405, "not allowed"),
    ],
)
def test_mistakes_are_explained_in_one_line(address, path, body, status, words):
    found_status, found, _ = send(address, path, body)
    assert found_status == status
    assert set(found) == {"error"}
    assert words in found["error"].lower() or words in found["error"]
    assert "\n" not in found["error"]


def test_a_request_that_hides_its_length_is_not_read(address):
    host, port = address.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=20)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/api/translate", iter([b"{"]), headers, encode_chunked=True)
    assert connection.getresponse().status == 411
    connection.close()


def test_only_its_own_names_are_answered_to(address):
    request = Request(f"{address}/api/models", headers={"Host": "evil.example"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=20)
    assert refused.value.code == 403
    refused.value.close()


def test_the_walk_is_served_with_its_model(address):
    walked = answer(address, "/api/walk", source="The dog sees the cat.")
    assert walked["target"] == "Der Hund sieht die Katze."
    order = answer(
        address, "/api/walk/order", first="The dog sees.", second="sees The dog.", positions=False
    )
    assert order["largest"] < 1e-9
    gpt = answer(address, "/api/walk/gpt", source="The dog sees the cat.")
    assert [step["token"] for step in gpt["steps"]][-2:] == [".", "</s>"]
    bert = answer(address, "/api/walk/bert", source="The dog sees the cat.", hidden=1)
    assert bert["tokens"][2] == "<mask>"
    _, found, _ = send(address, "/api/walk/code")
    assert found["code"]["softmax"].startswith("def softmax(")


def test_the_page_is_there_and_nothing_else_may_run_on_it(address):
    status, page, headers = send(address, "/")
    assert status == 200
    assert b"<title>" in page
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    status, _, headers = send(address, "/explorer/main.js")
    assert status == 200
    assert "javascript" in headers["content-type"]


@pytest.mark.parametrize(
    "path", ["/../app.py", "/%2e%2e/serve/app.py", "/..%2f..%2fpyproject.toml"]
)
def test_other_files_cannot_be_read(address, path):
    assert send(address, path)[0] == 404


def models_of(schema: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in schema.__subclasses__():
        yield one
        yield from models_of(one)


SCHEMAS = {one.__name__: one for one in models_of(schema.Model)}


@pytest.mark.parametrize("endpoint", read_openapi(API).endpoints, ids=lambda one: one.name)
def test_the_reference_is_true(address, endpoint):
    """The example of each request works, and its response has the fields that are described."""
    method, path = endpoint.name.split()
    operation = API["paths"][path][method.lower()]
    given = None
    if method == "POST":
        given = json.loads(re.search(r"-d '(.*)'$", endpoint.call)[1])
        assert endpoint.request
    status, found, _ = send(address, path, given)
    assert status == 200, found
    name = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    described = SCHEMAS[name.rpartition("/")[2]]
    described.model_validate(found)
    described.model_validate(json.loads(endpoint.example))
    assert endpoint.meaning
    assert all(field.meaning for field in (*endpoint.request, *endpoint.response))


def test_the_reference_is_a_page_that_needs_nothing_else(address):
    status, page, headers = send(address, "/docs")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    text = page.decode()
    assert "<script" not in text
    assert re.findall(r'(?:href|src)="([^#"][^"]*)"', text) == ["data:,", "/shared/docs.css"]
    assert send(address, "/shared/docs.css")[0] == 200
    markdown = http_reference()
    for endpoint in read_openapi(API).endpoints:
        assert f"## {endpoint.name}\n" in markdown
        assert html.escape(endpoint.call) in text
    assert max(map(len, markdown.splitlines())) < 120


def run_serve(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "attendo", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_port_that_is_taken_is_named(trained):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_serve(trained, "--port", port)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert f"port {port}" in done.stderr


@pytest.mark.parametrize("host", ["", "a..b", "x" * 70, "ä" * 80])
def test_a_host_that_does_not_exist_is_named(trained, host):
    done = run_serve(trained, "--host", host, "--port", 0)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: cannot listen on {' '.join(repr(host).split())}")
    assert done.stderr.count("\n") == 1


def test_missing_packages_are_named_with_a_command():
    hide = "import sys; sys.modules['uvicorn'] = sys.modules['fastapi'] = None; "
    start = "sys.argv = ['attendo', 'serve', 'run']; from attendo.cli import main; main()"
    command = [sys.executable, "-c", hide + start]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "-m pip install fastapi uvicorn" in done.stderr


def test_values_that_are_not_finite_are_an_error(trained, tmp_path):
    """Finite parameters, but so large that the logits overflow."""
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    tensors = read_tensors(folder / PARAMETERS)
    tensors = {name: torch.full_like(one, 3e38) for name, one in tensors.items()}
    write_tensors(folder / PARAMETERS, tensors)
    with serving(folder, options=("--engine", "torch")) as address:
        status, found, headers = send(address, "/api/look", {"source": TEXT, "target": TEXT})
    assert status in (400, 500)
    assert "finite" in found["error"]
    assert "content-security-policy" in headers


def test_a_folder_without_a_model_is_named(tmp_path: Path):
    done = run_serve(tmp_path / "nothing", "--port", 0)
    assert done.returncode == 2
    assert "nothing" in done.stderr
