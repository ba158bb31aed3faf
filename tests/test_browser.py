"""The explorer page in a real browser: typed into, hovered over, clicked through, shared."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

import attendo
from attendo.look.answers import N_CANDIDATES
from attendo.look.record import look
from attendo.look.write import show
from servers import DRIVER, browsing, send, serving
from small_runs import small_rival

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver"),
]

TEXT = "The old dog sleeps in the house."
PICTURES = os.environ.get("ATTENDO_PICTURES")
"""A folder, if the screenshots are to be kept."""


@pytest.fixture(scope="module")
def address(trained) -> Iterator[str]:
    with serving(trained, trained) as found:
        yield found


@pytest.fixture(scope="module")
def gru(tmp_path_factory) -> Path:
    return small_rival(tmp_path_factory.mktemp("rivals") / "gru", "demo-gru")


@pytest.fixture(scope="module")
def rivals(trained, gru, tmp_path_factory) -> Iterator[str]:
    """A server with a Transformer and models without, or with less, attention."""
    lstm = small_rival(tmp_path_factory.mktemp("rivals") / "lstm", "demo-lstm-attention")
    with serving(trained, gru, lstm) as found:
        yield found


@pytest.fixture(scope="module")
def chrome() -> Iterator[webdriver.Chrome]:
    with browsing() as driver:
        yield driver


class Page:
    """A page and what a person does with it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # so that an address that differs in its # is loaded anew
        self.driver.get(address)

    def wait(self, condition: Any, message: str = "") -> Any:
        # A page that is being drawn again replaces what was found a moment ago.
        redrawn = [StaleElementReferenceException]
        waiting = WebDriverWait(self.driver, 20, poll_frequency=0.05, ignored_exceptions=redrawn)
        return waiting.until(lambda _: condition(), message)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.wait(lambda: next(iter(self.all(selector)), None), selector)

    def text(self, selector: str) -> str:
        return self.wait(lambda: [one.text for one in self.all(selector)[:1]], selector)[0]

    def type(self, text: str) -> None:
        area = self.one("textarea")
        area.send_keys(Keys.CONTROL, "a")
        area.send_keys(text)

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def hover(self, element: WebElement) -> None:
        ActionChains(self.driver).move_to_element(element).perform()

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def picture(self, name: str) -> None:
        if PICTURES:
            self.driver.save_screenshot(str(Path(PICTURES) / f"{name}.png"))


@pytest.fixture
def page(chrome) -> Iterator[Page]:
    """Whatever is done, nothing may be complained about in the console."""
    chrome.set_window_size(1280, 1000)
    chrome.get_log("browser")
    yield Page(chrome)
    complaints = [entry for entry in chrome.get_log("browser") if entry["level"] != "INFO"]
    assert complaints == []


def axe(page: Page) -> list[str]:
    """Name the serious findings of an accessibility check."""
    page.run((files("axe_core_python") / "axe.min.js").read_text("utf-8"))
    found = page.driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run().then((found) => done(found.violations)).catch((error) => done(String(error)));"
    )
    assert isinstance(found, list), found
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def translated(page: Page) -> str:
    """Wait until nothing is being waited for, and read the translation."""
    page.wait(
        lambda: page.all(".cell") and not any(one.is_displayed() for one in page.all(".waiting"))
    )
    return result(page)


def result(page: Page) -> str:
    """Read the translation, without the words that ablation has taken away."""
    text = page.run(
        "const copy = document.querySelector('.result-text').cloneNode(true);"
        "for (const gone of copy.querySelectorAll('del')) gone.remove();"
        "return copy.textContent"
    )
    return " ".join(text.split())


def translation_of(address: str, text: str, **more: Any) -> str:
    status, answer, _ = send(address, "/api/translate", {"source": text, **more})
    assert status == 200, answer
    return answer["translation"]


def test_typing_translates(page, address):
    page.open(address)
    page.type(TEXT)
    expected = translation_of(address, TEXT)
    page.wait(lambda: result(page) == expected, expected)
    page.type("Two birds sing.")
    page.wait(lambda: result(page) == translation_of(address, "Two birds sing."))
    page.picture("explorer")


@contextmanager
def screen(page: Page, width: int, height: int, *, touch: bool = False) -> Iterator[None]:
    """Give the browser another screen for a while."""
    run = page.driver.execute_cdp_cmd
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch}
    run("Emulation.setDeviceMetricsOverride", metrics)
    run("Emulation.setTouchEmulationEnabled", {"enabled": touch})
    try:
        yield
    finally:
        run("Emulation.setTouchEmulationEnabled", {"enabled": False})
        run("Emulation.clearDeviceMetricsOverride", {})


def shown(page: Page, selector: str) -> list[WebElement]:
    return [one for one in page.all(selector) if one.is_displayed()]


@pytest.mark.parametrize("by", ["server", "file"])
def test_a_model_without_attention_shows_what_it_has(page, rivals, gru, tmp_path, by):
    if by == "server":
        page.open(f"{rivals}/#model=gru&source={TEXT}&open=beams,checks,norms")
    else:
        translator = attendo.load(gru, "cpu")
        show(translator, look(translator, TEXT), tmp_path / "gru.html")
        page.open(f"file://{tmp_path / 'gru.html'}#open=beams,checks,norms")
    page.wait(lambda: "no attention weights" in page.text(".missing-note"))
    page.wait(lambda: len(page.all(".panel-content > *")) == 3)
    assert len(shown(page, ".candidates li")) == N_CANDIDATES + 1, "all others are the last one"
    assert shown(page, ".tree rect")
    assert len(shown(page, ".check")) == 2, "what can be measured without attention"
    assert "Encoder, last layer" in page.text("main")
    assert not shown(page, ".cell, .ribbons, .matrix, .segments, .actions")
    assert "GRU without attention" in page.text(".model-facts")
    assert "head" not in page.text(".model-facts")
    assert "NaN" not in page.text("body")
    assert axe(page) == []
    page.picture(f"gru-{by}")


def test_attention_that_a_model_lacks_is_not_offered(page, rivals):
    page.open(f"{rivals}/#model=lstm&kind=encoder&source={TEXT}")
    page.wait(lambda: "no self-attention" in page.text(".missing-note"))
    assert [label.text for label in shown(page, ".segments label")] == ["Cross"]
    page.wait(lambda: page.text(".enlarged-title") == "Cross-attention · layer 1")
    assert len(shown(page, ".cell")) == 1, "the mean of one head is the head"
    assert not shown(page, ".actions"), "it cannot be ablated"
    assert "1 heads" not in page.text("main")
    assert axe(page) == []


def test_models_with_and_without_attention_stand_side_by_side(page, rivals, trained):
    page.open(f"{rivals}/#model=gru&compare={trained.name}&source={TEXT}")
    page.wait(lambda: len(shown(page, ".next")) == 2)
    page.wait(lambda: len(shown(page, ".segments label")) == 3)
    page.wait(lambda: len(shown(page, ".enlarged")) == 1)
    assert [one.text for one in page.all(".missing-note")][1] == ""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_languages_model_and_first_map_are_seen_without_scrolling(page, address, width, height):
    with screen(page, width, height, touch=width < 400):
        page.open(address)
        translated(page)
        selectors = [".languages", ".model-facts", ".model-about", ".thumb"]
        for selector in [*selectors, ".ribbons"] if width > 1000 else selectors:
            box = page.run(
                "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()",
                selector,
            )
            assert box["bottom"] <= height, selector
        assert page.text(".languages") == "English → German"
        assert "generated sentence pairs" in page.text(".model-about")
        page.picture(f"first-{width}")


def test_examples_can_be_told_apart_on_a_phone(page, address):
    with screen(page, 390, 844, touch=True):
        page.open(address)
        translated(page)
        texts = [button.text for button in page.all(".example")]
        assert len(texts) == len(set(texts)) == 4
        cut = "return [...document.querySelectorAll('.example')].filter((one) => "
        assert page.run(cut + "one.scrollWidth > one.clientWidth).length") == 0
        page.all(".example")[1].click()
        page.wait(
            lambda: "too wide." in page.run("return document.querySelector('textarea').value")
        )


def test_hints_fit_the_way_of_pointing(page, address):
    page.open(f"{address}/#source={TEXT}")
    translated(page)
    page.wait(lambda: "Point at a token" in page.text(".in-words"))
    assert "arrow keys" in page.text("footer")
    with screen(page, 390, 844, touch=True):
        page.open(f"{address}/#source={TEXT}")
        translated(page)
        page.wait(lambda: "Tap a token" in page.text(".in-words"))
        assert "Tap a cell" in page.text(".readout")
        assert "arrow keys" not in page.text("footer")
        assert "Tap" in page.text("footer")


def percents(page: Page, selector: str) -> list[float]:
    return [float(one.text.removesuffix(" %").removeprefix("< ")) for one in page.all(selector)]


def test_the_temperature_reshapes_the_candidates(page, address, trained):
    page.open(f"{address}/#source={TEXT}")
    translated(page)
    logits = look(attendo.load(trained, "cpu"), TEXT).recording.logits[0]
    page.all(".certain")[2].click()
    page.wait(lambda: "Step 3" in page.text(".step-title"))
    for temperature, keys in ((1.0, ""), (5.0, Keys.END), (0.25, Keys.HOME)):
        slider = page.one(".dial input")
        slider.send_keys(keys)
        page.wait(lambda value=temperature: float(page.text(".dial output")) == value)
        best = (logits[2] / temperature).softmax(dim=-1).topk(N_CANDIDATES).values
        expected = [100 * float(value) for value in best]
        found = percents(page, ".candidates li:not(.rest) .number")
        assert found == pytest.approx(expected, abs=0.06)
        assert sum(percents(page, ".candidates .number")) == pytest.approx(100, abs=0.5)
    page.wait(lambda: "temperature=0.25" in page.driver.current_url)


def test_scores_are_probabilities(page, address):
    page.open(f"{address}/#source={TEXT}&open=beams")
    translated(page)
    page.wait(lambda: page.all(".tree .node"))
    assert "probability" in page.text(".facts")
    assert "−0.00" not in page.text("main")


def test_the_tree_shows_that_it_continues(page, address):
    text = "The old dog that the farmer saw yesterday sleeps in the big house."
    with screen(page, 800, 900):
        page.open(f"{address}/#source={text}&open=beams")
        page.wait(lambda: page.all(".tree .node"))
        page.wait(lambda: page.text(".tree-extent").startswith("Steps 1 to "))
        assert page.all(".tree-frame.continues-right")
        assert not page.all(".tree-frame.continues-left")
        where = "return document.querySelector('.tree-scroll').scrollLeft"
        while page.one(".tree-extent button").is_enabled():
            before = page.run(where)
            page.run("document.querySelector('.tree-extent button').click()")
            page.wait(lambda before=before: page.run(where) > before)
            time.sleep(0.1)
        page.wait(lambda: page.all(".tree-frame.continues-left:not(.continues-right)"))
        steps = page.text(".tree-extent span").split()
        assert steps[3] == steps[5]


def test_all_maps_of_the_checks_have_labels_and_a_legend(page, address, trained):
    page.open(f"{address}/#source={TEXT}&open=checks")
    page.wait(lambda: len(page.all(".check")) == 3)
    n_source = len(look(attendo.load(trained, "cpu"), TEXT).tokenized.source_tokens)
    for figure in page.all(".check"):
        labels = figure.find_elements(By.CSS_SELECTOR, ".strip-columns span")
        assert len(labels) == n_source
        assert labels[0].text == "The"
        assert figure.find_element(By.CSS_SELECTOR, ".legend-bar").is_displayed()
        assert "columns: source" in figure.text


def test_vectors_are_of_a_real_head(page, address):
    page.open(f"{address}/#source={TEXT}&open=vectors")
    page.wait(lambda: len(page.all(".vectors .strip")) >= 4)
    assert "mean of heads" in page.text(".enlarged-title")
    assert "lowest entropy" in page.text(".strips-caption")
    page.all(".cell")[1].click()
    page.wait(lambda: page.text(".strips-caption") == "Cross-attention · layer 1 · head 2")


SENTENCES = "The old dog sleeps. Two birds sing.\n\nThe farmer sees a cat."


def test_several_sentences_keep_their_lines_and_one_is_inspected(page, address):
    page.open(address)
    page.run("arguments[0].value = ''", page.one("textarea"))
    page.one("textarea").send_keys(SENTENCES)
    expected = translation_of(address, SENTENCES)
    assert expected.count("\n") == 2
    page.wait(
        lambda: page.run("return document.querySelector('.result-text').innerText") == expected
    )
    last = "return document.querySelector('.side-k').textContent"
    page.wait(lambda: "farmer" in page.run(last), "the sentence being edited is inspected")
    options = page.all(".sentence-option option")
    assert len(options) == 3
    options[1].click()
    page.wait(lambda: "birds" in page.run(last))
    assert page.text(".sentence.chosen") == translation_of(address, "Two birds sing.")
    page.all(".sentence")[0].click()
    page.wait(lambda: "dog" in page.run(last))
    page.one("textarea").send_keys(Keys.CONTROL, Keys.END)
    page.wait(lambda: "farmer" in page.run(last), "the cursor chooses, too")
    page.wait(lambda: "sentence=2" in page.driver.current_url)
    page.open(f"{address}/#source=One dog. Two birds sing.&sentence=1")
    page.wait(lambda: page.all(".side-k .token") and "birds" in page.run(last))
    assert axe(page) == []


def test_unknown_words_are_marked_and_explained(page, address):
    page.open(f"{address}/#source=The qwertz dog sleeps in the qwertzu house. Qwertz!")
    page.wait(lambda: "Not in the training data" in page.text(".unknown"))
    assert "“qwertz”, “qwertzu”" in page.text(".unknown")
    marked = "return [...document.querySelectorAll('.marks mark')].map((one) => one.textContent)"
    assert page.run(marked) == ["qwertz", "qwertzu", "Qwertz"]
    same = (
        "const [field, marks] = [document.querySelector('.typing textarea'),"
        " document.querySelector('.marks')].map((one) => getComputedStyle(one));"
        "return ['font', 'padding', 'width'].filter((name) => field[name] !== marks[name])"
    )
    assert page.run(same) == [], "the marks lie under their words"
    assert axe(page) == []
    page.type(TEXT)
    page.wait(lambda: page.run("return document.querySelector('.unknown').textContent") == "")
    assert page.all(".marks mark") == []


def test_what_is_too_long_is_said_in_sight(chrome, address):
    page = Page(chrome)
    with screen(page, 1440, 900):
        page.open(f"{address}/#source={'dog ' * 60}")
        page.wait(lambda: shown(page, ".column > .trouble"))
        message = page.one(".column > .trouble")
        assert "60 tokens" in message.text
        assert message.rect["y"] < 800
        assert not shown(page, ".explorer, .segments")
        page.run(
            "const area = document.querySelector('textarea'); area.value = 'x'.repeat(20001);"
            "area.dispatchEvent(new Event('input', { bubbles: true }));"
        )
        page.wait(lambda: "too long: it has 20,001 characters" in page.text(".failed"))
    chrome.get_log("browser")  # the browser itself notes that a request was refused


def test_what_cannot_be_answered_is_said_in_words(chrome, address):
    page = Page(chrome)
    page.open(address)
    page.type(TEXT)
    translated(page)
    page.run(
        "const area = document.querySelector('textarea'); area.value = 'dog '.repeat(900);"
        "area.dispatchEvent(new Event('input', { bubbles: true }));"
    )
    page.wait(lambda: "take a part" in page.text("main"))
    chrome.get_log("browser")  # the browser itself notes that a request was refused


def test_a_head_opens_is_hovered_over_and_ablated(page, address):
    page.open(f"{address}/#source={TEXT}")
    plain = translated(page)
    page.all(".cell")[2].click()
    page.wait(lambda: "layer 1 · head 3" in page.text(".enlarged-title"))
    token = page.all(".side-q .token")[1]
    page.hover(token)
    page.wait(lambda: "0." in page.text(".in-words"))
    token.click()
    page.wait(lambda: "pin=q1" in page.driver.current_url)
    page.picture("head")
    page.press(Keys.ESCAPE)
    page.wait(lambda: "pin=" not in page.driver.current_url)
    page.one("h1").click()
    page.press("s")
    page.wait(lambda: len(page.all(".cell.ablated")) == 1)
    page.wait(lambda: "Restore this head" in page.text(".actions"))
    expected = translation_of(address, TEXT, ablated=["cross.0.2"])
    page.wait(lambda: result(page) == expected)
    page.press("s")
    page.wait(lambda: result(page) == plain)


def test_the_weights_on_the_page_are_the_models(page, address, trained):
    page.open(f"{address}/#source={TEXT}&kind=encoder&layer=1&head=2")
    translated(page)
    recorded = look(attendo.load(trained, "cpu"), TEXT)
    expected = recorded.weights["encoder"][1][2]
    page.wait(lambda: "layer 2 · head 3" in page.text(".enlarged-title"))
    page.run("document.querySelector('.matrix-scroll').focus()")
    for row in range(2):
        page.press(Keys.ARROW_DOWN)
        page.press(Keys.ARROW_RIGHT)
        shown = float(page.wait(lambda: page.text(".readout strong")))
        assert shown == pytest.approx(float(expected[row + 1, row + 1]), abs=1e-4) or (
            shown == pytest.approx(float(expected[row, row]), abs=1e-4)
        )


def test_all_panels_open_and_lead_on(page, address):
    page.open(f"{address}/#source={TEXT}&layer=1&head=0&open=beams,checks,ablation,vectors,norms")
    translated(page)
    page.wait(lambda: len(page.all(".panel-content > *")) == 5)
    assert "correlation" in page.text("main")
    button = page.all(".ablation td button")[1]
    page.run("arguments[0].click()", button)
    page.wait(lambda: "Encoder · layer 1 · head 2" in page.text(".enlarged-title"))
    page.picture("panels")


def test_a_link_carries_everything(page, address):
    link = f"{address}/#source={TEXT}&kind=decoder&layer=1&head=3&pin=q2&ablated=cross.0.1"
    page.open(link)
    first = translated(page)
    page.wait(lambda: "layer 2 · head 4" in page.text(".enlarged-title"))
    assert first == translation_of(address, TEXT, ablated=["cross.0.1"])
    assert page.all(".side-q .token")[2].get_attribute("aria-pressed") == "true"
    page.all(".cell")[0].click()
    page.wait(lambda: "layer 1 · head 1" in page.text(".enlarged-title"))
    page.driver.back()
    page.wait(lambda: "layer 2 · head 4" in page.text(".enlarged-title"))


def test_two_models_stand_side_by_side(page, address, trained):
    page.open(f"{address}/#source={TEXT}&compare={trained.name}-2&layer=0&head=1")
    page.wait(lambda: len(page.all(".explorer")) == len(page.all(".result")) == 2)
    expected = [translation_of(address, TEXT)] * 2
    page.wait(lambda: [one.text for one in page.all(".result-text")] == expected)
    page.wait(lambda: len(page.all(".enlarged-title")) == 2)
    assert axe(page) == []


def test_the_keyboard_is_enough(page, address):
    page.open(f"{address}/#source={TEXT}")
    translated(page)
    for _ in range(60):
        page.press(Keys.TAB)
        is_seen = page.run(
            "const style = getComputedStyle(document.activeElement);"
            "return style.outlineStyle !== 'none' || style.boxShadow !== 'none'"
        )
        assert is_seen, page.run("return document.activeElement.outerHTML")
        if "cell" in page.run("return document.activeElement.className"):
            break
    page.press(Keys.ARROW_UP)
    page.press(Keys.ENTER)
    page.wait(lambda: "layer 1" in page.text(".enlarged-title"))
    for _ in range(60):
        page.press(Keys.TAB)
        if page.run("return document.activeElement.matches('.token')"):
            break
    page.press(Keys.ARROW_RIGHT)
    page.press(Keys.ENTER)
    page.wait(lambda: "pin=" in page.driver.current_url)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_is_found_by_axe(page, address, theme):
    page.open(f"{address}/#source={TEXT}&layer=1&head=0&open=beams,checks,ablation,vectors,norms")
    translated(page)
    page.run("document.documentElement.dataset.theme = arguments[0]", theme)
    page.wait(lambda: len(page.all(".panel-content > *")) == 5)
    assert axe(page) == []
    page.picture(f"all-{theme}")


def test_a_narrow_window_shows_everything(page, address):
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        page.open(address)
        page.one("main")
        time.sleep(1)
        assert page.run("return document.documentElement.scrollWidth") <= 360
        page.picture("phone")
        assert axe(page) == []
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=hacked=1>",
        "\u202e right \u2067 to left \u200f",
        "👩‍👩‍👧 a\u200db",
        "x" * 40,
    ],
    ids=["markup", "bidi", "emoji", "long word"],
)
def test_hostile_text_is_shown_as_text(page, address, text):
    page.open(address)
    page.type("a")
    page.run(
        "const area = document.querySelector('textarea'); area.value = arguments[0];"
        "area.dispatchEvent(new Event('input', { bubbles: true }));",
        text,
    )
    expected = translation_of(address, text)
    page.wait(lambda: result(page).split() == expected.split(), expected)
    page.wait(lambda: len(page.all(".side-k .token")) > 1)
    assert page.run("return window.hacked") is None
    assert page.all("main script, main img[src]") == []
    overflow = "return document.documentElement.scrollWidth - innerWidth"
    assert page.run(overflow) <= 0


def test_a_file_shows_the_same_without_a_server(page, trained, tmp_path):
    translator = attendo.load(trained, "cpu")
    recorded = look(translator, TEXT)
    show(translator, recorded, tmp_path / "look.html")
    page.open(f"file://{tmp_path / 'look.html'}")
    page.wait(lambda: len(page.all(".cell")) == 11)
    assert recorded.target in page.text("main")
    page.all(".cell")[1].click()
    page.wait(lambda: "layer 1 · head 2" in page.text(".enlarged-title"))
    assert page.all("textarea") == []
    page.run(
        "const script = document.createElement('script');"
        "script.text = 'window.hacked = 1'; document.body.append(script);"
    )
    assert page.run("return window.hacked") is None, "its own policy lets nothing else run"
    assert "Content Security Policy" in page.driver.get_log("browser")[0]["message"]
