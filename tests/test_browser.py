"""The page in a real browser: typed into, hovered over, clicked through, shared."""

import os
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

import attendo
from attendo.inspect.looking import look
from attendo.inspect.showing import show
from servers import DRIVER, ask, browsing, serving

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
        return WebDriverWait(self.driver, 20, poll_frequency=0.05).until(
            lambda _: condition(), message
        )

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.wait(lambda: next(iter(self.all(selector)), None), selector)

    def text(self, selector: str) -> str:
        return self.one(selector).text

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
    """Read the translation, without the words that silencing has taken away."""
    text = page.run(
        "const copy = document.querySelector('.result-text').cloneNode(true);"
        "for (const gone of copy.querySelectorAll('del')) gone.remove();"
        "return copy.textContent"
    )
    return " ".join(text.split())


def said(address: str, text: str, **more: Any) -> str:
    status, answer, _ = ask(address, "/api/translate", {"source": text, **more})
    assert status == 200, answer
    return answer["translation"]


def test_typing_translates(page, address):
    page.open(address)
    page.type(TEXT)
    expected = said(address, TEXT)
    page.wait(lambda: result(page) == expected, expected)
    page.type("Two birds sing.")
    page.wait(lambda: result(page) == said(address, "Two birds sing."))
    page.picture("explorer")


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


def test_a_head_opens_is_hovered_over_and_silenced(page, address):
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
    page.wait(lambda: len(page.all(".cell.silenced")) == 1)
    expected = said(address, TEXT, silenced=["cross.0.2"])
    page.wait(lambda: result(page) == expected)
    page.press("s")
    page.wait(lambda: result(page) == plain)


def test_the_weights_on_the_page_are_the_models(page, address, trained):
    page.open(f"{address}/#source={TEXT}&kind=encoder&layer=1&head=2")
    translated(page)
    looked = look(attendo.load(trained, "cpu"), TEXT)
    expected = looked.weights["encoder"][1][2]
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
    link = f"{address}/#source={TEXT}&kind=decoder&layer=1&head=3&pin=q2&silenced=cross.0.1"
    page.open(link)
    first = translated(page)
    page.wait(lambda: "layer 2 · head 4" in page.text(".enlarged-title"))
    assert first == said(address, TEXT, silenced=["cross.0.1"])
    assert page.all(".side-q .token")[2].get_attribute("aria-pressed") == "true"
    page.all(".cell")[0].click()
    page.wait(lambda: "layer 1 · head 1" in page.text(".enlarged-title"))
    page.driver.back()
    page.wait(lambda: "layer 2 · head 4" in page.text(".enlarged-title"))


def test_two_models_stand_side_by_side(page, address, trained):
    page.open(f"{address}/#source={TEXT}&compare={trained.name}-2&layer=0&head=1")
    page.wait(lambda: len(page.all(".explorer")) == len(page.all(".result")) == 2)
    expected = [said(address, TEXT)] * 2
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
    expected = said(address, text)
    page.wait(lambda: result(page).split() == expected.split(), expected)
    page.wait(lambda: len(page.all(".side-k .token")) > 1)
    assert page.run("return window.hacked") is None
    assert page.all("main script, main img") == []
    overflow = "return document.documentElement.scrollWidth - innerWidth"
    assert page.run(overflow) <= 0


def test_a_file_shows_the_same_without_a_server(page, trained, tmp_path):
    translator = attendo.load(trained, "cpu")
    looked = look(translator, TEXT)
    show(translator, looked, tmp_path / "look.html")
    page.open(f"file://{tmp_path / 'look.html'}")
    page.wait(lambda: len(page.all(".cell")) == 11)
    assert looked.target in page.text("main")
    page.all(".cell")[1].click()
    page.wait(lambda: "layer 1 · head 2" in page.text(".enlarged-title"))
    assert page.all("textarea") == []
    page.run(
        "const script = document.createElement('script');"
        "script.text = 'window.hacked = 1'; document.body.append(script);"
    )
    assert page.run("return window.hacked") is None, "its own policy lets nothing else run"
    assert "Content Security Policy" in page.driver.get_log("browser")[0]["message"]
