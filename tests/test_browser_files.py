"""Text files on the explorer page, dropped in a real browser: read, cut, or refused in one line."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver

import attendo
from conftest import without_checks
from servers import DRIVER, browsing, send, serving
from test_browser import Page, axe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver"),
]

SMALL: dict[str, Any] = {
    "data.builtin": 120,
    "data.hold_out": 7,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.encoder_layers": 1,
    "training.steps": 2,
    "training.warmup_steps": 1,
    "training.batch_tokens": 3136,
}
READS_TEXT = {"tokenizer.vocabulary": 350, "model.decoder_layers": 1}
RECIPES = {
    "parser": ("parsing-demo", READS_TEXT),
    "classifier": ("classification", READS_TEXT),
    "shapes": ("shapes", {}),
}
SENTENCE = "Mr. Poe sees the old dog."
REST = "The birds sing in the house."

Drop = Callable[..., None]


@pytest.fixture(scope="module")
def address(trained, tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    for name, (recipe, changes) in RECIPES.items():
        with without_checks():
            settings = {**SMALL, **changes}
            attendo.train(recipe, out=folder / name, device="cpu", settings=settings)
    shutil.copytree(trained, folder / "translator")
    with serving(*sorted(folder.iterdir())) as found:
        yield found


@pytest.fixture(scope="module")
def chrome() -> Iterator[webdriver.Chrome]:
    with browsing() as driver:
        yield driver


@pytest.fixture
def page(chrome) -> Iterator[Page]:
    chrome.get_log("browser")
    yield Page(chrome)
    assert chrome.get_log("browser") == []


@pytest.fixture
def drop(page, tmp_path) -> Drop:
    """Return what writes files and drops them on the page, as a person with a mouse does."""

    def act(files: dict[str, bytes]) -> None:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        paths = [str(tmp_path / name) for name in files]
        drag = {"data": {"items": [], "files": paths, "dragOperationsMask": 1}, "x": 300, "y": 500}

        def send_drag(event: str) -> bool:
            page.driver.execute_cdp_cmd("Input.dispatchDragEvent", {**drag, "type": event})
            return bool(page.all(".drop-zone.dragging"))

        send_drag("dragEnter")
        page.wait(lambda: send_drag("dragOver"))  # a busy page misses some of them
        send_drag("drop")

    return act


def open_model(page: Page, address: str, model: str, source: str = "The cat sat.") -> None:
    page.open(f"{address}/#model={model}&source={source}")
    page.wait(lambda: page.all(".column .enlarged-title"))


def field_text(page: Page) -> str:
    return str(page.one("textarea").get_attribute("value"))


def read_by_encoder(page: Page) -> str:
    return str(page.run("return document.querySelector('.side-k').textContent"))


def test_the_first_sentence_of_a_text_file_is_parsed(page, address, drop):
    open_model(page, address, "parser")
    drop({"notes.md": f"\n{SENTENCE} {REST}\r\nAnd so on.\n".encode()})
    page.wait(lambda: field_text(page) == SENTENCE)
    about = {"model": "parser", "source": SENTENCE}
    brackets = send(address, "/api/look", about)[1]["target"]
    drawn = f"Tree: {brackets}"
    page.wait(lambda: page.one("svg.parse").get_attribute("aria-label") == drawn)
    page.wait(lambda: "Poe" in read_by_encoder(page), "attention is that of the sentence")
    whole = len(f"{SENTENCE} {REST}\nAnd so on.")
    line = page.text(".file-name")
    assert line.startswith(f"notes.md: the first {len(SENTENCE)} of {whole} characters")
    assert "\n" not in line
    page.picture("dropped-parser")
    assert axe(page) == []
    page.type("The dog sleeps.")
    page.wait(lambda: page.all(".file-name")[0].text == "", "it is about another text")


def test_a_whole_text_file_is_translated_and_classified(page, address, drop):
    open_model(page, address, "translator")
    drop({"two.txt": b"\xef\xbb\xbf" + f"{SENTENCE}\n{REST}\n".encode()})
    page.wait(lambda: field_text(page) == f"{SENTENCE}\n{REST}")
    page.wait(lambda: len(page.all(".sentence-option option")) == 2)
    page.wait(lambda: "Poe" in read_by_encoder(page))
    assert page.text(".file-name") == "two.txt"

    open_model(page, address, "classifier")
    drop({"two.txt": f"{SENTENCE} {REST}".encode()})
    page.wait(lambda: field_text(page) == f"{SENTENCE} {REST}")
    page.wait(lambda: page.text(".result-text") in ("English", "German"))
    page.wait(lambda: "birds" in read_by_encoder(page))
    assert page.text(".file-name") == "two.txt"


def test_a_long_text_file_is_cut_between_sentences(page, address, drop):
    text = f"{SENTENCE} {REST} " * 700
    assert len(text) > 20_000
    open_model(page, address, "classifier")
    drop({"long.txt": text.encode()})
    page.wait(lambda: page.text(".file-name").startswith("long.txt: the first "))
    read = field_text(page)
    assert text.startswith(read)
    assert len(read) > 200
    assert read.endswith((SENTENCE, REST))
    page.wait(lambda: page.text(".result-text") in ("English", "German"))

    open_model(page, address, "translator")
    drop({"long.txt": text.encode()})
    page.wait(lambda: page.text(".file-name").startswith("long.txt: the first "))
    read = field_text(page)
    assert 19_000 < len(read) <= 20_000
    assert read.endswith((SENTENCE, REST))
    page.open("about:blank")  # its translation is not waited for


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
REFUSED: dict[str, tuple[str, dict[str, bytes], str, str]] = {
    "image for a parser": ("parser", {"a.png": PNG}, "a.png is of the type image/png", "UTF-8"),
    "binary": ("parser", {"a.txt": PNG}, "a.txt cannot be read as text", "UTF-8"),
    "other encoding": ("classifier", {"a.txt": "é".encode("latin-1")}, "a.txt cannot", "UTF-8"),
    "UTF-16": ("parser", {"a.txt": b"T\0h\0e\0"}, "a.txt cannot be read as text", "UTF-8"),
    "empty": ("translator", {"a.txt": b" \n"}, "a.txt is empty", "UTF-8"),
    "too large": ("parser", {"a.txt": b"dog " * 900_000}, "it has 3.60 MB", "up to 3.00 MB"),
    "several": ("parser", {"a.txt": b"A", "b.txt": b"B"}, "2 files were given", "expected one"),
    "text for images": ("shapes", {"a.txt": b"The dog."}, "the type text/plain", "an image"),
}


@pytest.mark.parametrize(("model", "files", "given", "expected"), REFUSED.values(), ids=REFUSED)
def test_other_files_are_refused_in_one_line(page, address, drop, model, files, given, expected):
    page.open(f"{address}/#model={model}&source=The cat sat.")
    page.wait(lambda: page.all(".drop-zone .button"))
    drop(files)
    page.wait(lambda: page.text(".drop-zone .trouble"))
    line = page.text(".drop-zone .trouble")
    assert given in line
    assert expected in line
    assert "\n" not in line
    if model != "shapes":
        assert field_text(page) == "The cat sat."
        drop({"good.txt": SENTENCE.encode()})
        page.wait(lambda: field_text(page) == SENTENCE)
        assert page.text(".file-name") == "good.txt"
        assert page.all(".drop-zone .trouble")[0].text == ""


def test_a_text_file_can_be_chosen_with_the_button(page, address, tmp_path):
    open_model(page, address, "parser")
    (tmp_path / "chosen.txt").write_text(SENTENCE)
    page.one("input[type=file]").send_keys(str(tmp_path / "chosen.txt"))
    page.wait(lambda: field_text(page) == SENTENCE)
    assert page.text(".file-name") == "chosen.txt"


def test_a_model_of_images_has_no_use_for_a_document(address):
    status, answer, _ = send(address, "/api/beginning", {"model": "shapes", "source": "The dog."})
    assert (status, answer["error"]) == (400, "a text was given, but the model reads files: images")


def test_the_beginning_of_a_document_is_what_the_model_reads(address):
    def beginning(model: str, source: str) -> str:
        return str(send(address, "/api/beginning", {"model": model, "source": source})[1]["source"])

    document = f" {SENTENCE} {REST}\n"
    assert beginning("parser", document) == SENTENCE
    assert beginning("translator", document) == document.strip()
    assert beginning("classifier", document) == document.strip()
    assert beginning("classifier", " \n") == ""
