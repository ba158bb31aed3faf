"""The walk-through in a real browser: every station, by keyboard, on wide and narrow screens."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from servers import DRIVER, browsing, send, serving
from small_runs import small_run
from test_browser import Page, axe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver"),
]

STATIONS = (
    *("tokens", "ids", "embeddings", "positions", "qkv", "scores", "scaling", "mask", "softmax"),
    *("sum", "heads", "concatenation", "norm", "feedforward", "stack", "cross", "output"),
    *("bert", "gpt"),
)
HIGHLIGHTED = {
    "tokens": ["inputs"],
    "ids": ["inputs"],
    "embeddings": ["source-embedding"],
    "positions": ["source-positions"],
    "mask": ["decoder-attention"],
    "norm": ["encoder-norm-1"],
    "feedforward": ["encoder-feed-forward"],
    "stack": ["encoder-stack", "decoder-stack"],
    "cross": ["cross-attention"],
    "output": ["linear", "softmax"],
    "bert": [
        *("encoder-stack", "inputs", "source-embedding", "source-positions", "encoder-attention"),
        *("encoder-norm-1", "encoder-feed-forward", "encoder-norm-2"),
        *("linear", "softmax", "probabilities"),
    ],
    "gpt": [
        *("decoder-stack", "outputs", "target-embedding", "target-positions", "decoder-attention"),
        *("decoder-norm-1", "decoder-feed-forward", "decoder-norm-3"),
        *("linear", "softmax", "probabilities"),
    ],
}
"""Parts of figure 1; all other stations are about the encoder's attention."""

METAPHORS = re.compile(
    r"\b(looks|asks|answers?|listens|cheat\w*|silenc\w*|tells|thinks|sees|wakes?|sleeps)\b"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """The walk-through has its own model; what else is served does not matter."""
    run = tmp_path_factory.mktemp("served") / "run"
    small_run(run)
    with serving(run) as found:
        yield found


@pytest.fixture(scope="module")
def chrome() -> Iterator[webdriver.Chrome]:
    with browsing() as driver:
        yield driver


@pytest.fixture
def page(chrome) -> Iterator[Page]:
    """Nothing may be reported in the console."""
    chrome.set_window_size(1280, 1000)
    chrome.get_log("browser")
    yield Page(chrome)
    assert [entry for entry in chrome.get_log("browser") if entry["level"] != "INFO"] == []


@contextmanager
def screen(page: Page, width: int, theme: str = "light") -> Iterator[None]:
    """Emulate a screen of this width that prefers a theme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    preferred = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", preferred)
    try:
        yield
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def open_station(page: Page, address: str, fragment: str) -> None:
    page.open(f"{address}/walk#{fragment}")
    page.wait(lambda: page.all("#station[aria-busy=false]"), fragment)


def station(page: Page) -> str:
    """Return the station that is drawn; the address changes before it is."""
    return page.run("return document.querySelector('.route-link[aria-current]').dataset.station")


def chosen(page: Page, legend: str) -> str:
    """Read what is chosen in the bar above the station."""
    for chips in page.all("#chooser .chips"):
        if chips.is_displayed() and chips.text.startswith(legend):
            return page.run(
                "return arguments[0].querySelector('input:checked + label').textContent", chips
            )
    raise AssertionError(f"there is no {legend}")


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_all_stations_by_keyboard_on_wide_and_narrow_screens(page, address, width, theme):
    with screen(page, width, theme):
        open_station(page, address, STATIONS[0])
        for name in STATIONS:
            page.wait(lambda name=name: station(page) == name, name)
            check_figure(page, name, "> .figure-1-drawing" if width > 600 else ".small")
            assert page.run("return document.documentElement.scrollWidth") <= width, name
            if name in ("bert", "gpt"):
                page.wait(lambda: page.all("#station .weights"), name)
            assert axe(page) == [], name
            page.picture(f"walk-{name}-{width}-{theme}")
            page.press(Keys.ARROW_RIGHT)
        page.press(Keys.ARROW_LEFT)
        page.wait(lambda: station(page) == STATIONS[-2])


def check_figure(page: Page, name: str, drawing: str) -> None:
    """Check that figure 1 is there, with the station's part highlighted and its place named."""
    parts = HIGHLIGHTED.get(name, ["encoder-attention"])
    page.wait(lambda: page.one(f".figure-1 {drawing}").is_displayed(), name)
    shown, label, title = page.run(
        "const figure = document.querySelector('.figure-1-drawing[role=img]');"
        "const here = [...figure.querySelectorAll('.here')].map((part) => part.dataset.part);"
        "return [here, figure.getAttribute('aria-label'),"
        " figure.querySelector('title').textContent]"
    )
    assert shown == parts, name
    assert label == title
    assert label.startswith("Figure 1 of the paper, the Transformer. Highlighted:"), name
    place = page.text(".station-number").lower()
    assert "encoder" in place or "decoder" in place, place
    if parts[0].startswith(("encoder", "decoder", "cross")):
        side = "encoder" if parts[0].startswith("encoder") else "decoder"
        assert f"{side}, layer" in place, place


def test_figure_1_opens_on_a_narrow_screen_and_stays_open(page, address):
    with screen(page, 390):
        open_station(page, address, "scores")
        assert not page.one(".figure-1 > .figure-1-drawing").is_displayed()
        page.one(".figure-1 summary").click()
        page.wait(lambda: page.one(".figure-1 > .figure-1-drawing").is_displayed())
        bounds = page.run(
            "const box = document.querySelector('.figure-1 > svg').getBoundingClientRect();"
            "return [box.left, box.right, box.height]"
        )
        assert bounds[0] >= 0
        assert bounds[1] <= 390
        assert bounds[2] > 200
        page.press(Keys.ARROW_RIGHT)
        page.wait(lambda: station(page) == "scaling")
        assert page.one(".figure-1 > .figure-1-drawing").is_displayed()


def test_a_cut_off_matrix_says_that_it_scrolls(page, address):
    with screen(page, 390):
        open_station(page, address, "scores")
        box = page.one(".heat .scroll-box")
        page.wait(lambda: "more-after" in box.get_attribute("class"))
        assert "Swipe or scroll sideways to see all 9 columns" in box.text
        scroller = page.one(".heat .scroller")
        assert "arrow keys" in scroller.get_attribute("aria-label")
        label = page.one(".weights tbody th")
        before = page.run("return arguments[0].getBoundingClientRect().left", label)
        page.run("arguments[0].focus()", scroller)
        for _ in range(9):
            page.press(Keys.ARROW_RIGHT)
        page.wait(lambda: page.run("return arguments[0].scrollLeft", scroller) > 20)
        assert station(page) == "scores", "the arrow keys belong to the matrix"
        page.wait(lambda: "more-before" in box.get_attribute("class"))
        page.wait(lambda: "more-after" not in box.get_attribute("class"))
        after = page.run("return arguments[0].getBoundingClientRect().left", label)
        assert abs(after - before) < 6, "row labels stay in place"
        hidden = "return arguments[0].scrollWidth - arguments[0].clientWidth"
        for region in page.all("#station .scroller"):
            scrolls = page.run(hidden, region) > 4
            around = page.run("return arguments[0].closest('.scroll-box')", region)
            assert ("scrolls" in around.get_attribute("class")) == scrolls
            assert region.get_attribute("tabindex") == "0"
            assert region.get_attribute("aria-label")
    with screen(page, 1440):
        open_station(page, address, "scores")
        page.one(".weights")
        assert not page.one(".heat .scroll-hint").is_displayed()


def test_the_first_head_and_token_are_those_that_the_server_chose(page, address):
    _, walked, _ = send(address, "/api/walk", {"source": "The brothers want to sell the car."})
    start = walked["start"]
    expected = {
        "softmax": ("Token", walked["source_tokens"], start["encoder"]),
        "mask": ("Decoder input", walked["target_inputs"], start["decoder"]),
        "cross": ("Decoder input", walked["target_inputs"], start["cross"]),
    }
    for name, (legend, tokens, choice) in expected.items():
        open_station(page, address, name)
        assert chosen(page, legend) == tokens[choice["row"]].removeprefix("▁")
        assert chosen(page, "Head") == str(choice["head"] + 1)
    open_station(page, address, "softmax")
    row = walked["encoder"]["weights"][start["encoder"]["head"]][start["encoder"]["row"]]
    best = walked["source_tokens"][row.index(max(row))].removeprefix("▁")
    assert f"“{best}”" in page.text(".beside .walk-note").replace("\u2068", "").replace(
        "\u2069", ""
    )
    assert best not in (".", "</s>")
    open_station(page, address, "softmax&head=0&token=0")
    assert (chosen(page, "Token"), chosen(page, "Head")) == ("The", "1")


def test_another_sentence_gets_its_own_first_choice(page, address):
    open_station(page, address, "heads&token=0&head=0")
    text = "The animal did not cross the street because it was too tired."
    _, walked, _ = send(address, "/api/walk", {"source": text})
    button = next(one for one in page.all(".example") if one.text.startswith("The animal"))
    button.click()
    expected = walked["source_tokens"][walked["start"]["encoder"]["row"]].removeprefix("▁")
    page.wait(lambda: "street" in page.text("#chooser"))
    assert chosen(page, "Token") == expected
    assert "token=" not in page.driver.current_url


def test_without_positions_the_order_of_the_words_is_lost(page, address):
    open_station(page, address, "positions")
    page.wait(lambda: "hidden states depend on the order" in page.text("main"))
    words = [one.text for one in page.all(".join-word")]
    assert " ".join(words) == "The dog sees the man . </s> The man sees the dog . </s>"
    box = page.one(".order-form input[type=checkbox]")
    page.run("arguments[0].click()", box)
    page.wait(lambda: "order of the words is lost" in page.text("main"))
    assert axe(page) == []


def test_a_link_leads_to_a_station_with_everything_chosen(page, address):
    text = "The%20old%20farmer%20sells%20the%20car."
    open_station(page, address, f"softmax&source={text}&token=2&head=3")
    page.wait(lambda: "farmer" in page.text("main"))
    assert "Softmax" in page.text("h2")
    assert page.run("return document.title").startswith("Softmax")
    assert (chosen(page, "Token"), chosen(page, "Head")) == ("farmer", "4")


def candidates(page: Page) -> list[str]:
    return [item.text for item in page.all("#station .candidates .candidate")]


def test_a_word_that_is_chosen_is_hidden_from_the_bert(page, address):
    open_station(page, address, "bert&source=The%20dog%20sees%20the%20cat.&token=1")
    page.wait(lambda: page.all("#station .weights"))
    assert "“The <mask> sees the”" in page.text(".step-title").replace("<s> ", "")
    expected = send(address, "/api/walk/bert", {"source": "The dog sees the cat.", "hidden": 4})[1]
    page.all("#station .certain")[4].click()
    page.wait(lambda: "token=4" in page.run("return location.hash"))
    page.wait(lambda: page.all("#station .weights tbody tr")[5].text.startswith("<mask>"))
    best = [one["token"].removeprefix("▁") for one in expected["steps"][4]["candidates"]]
    assert candidates(page)[: len(best)] == best
    tables = page.all("#station .weights")
    assert not tables[0].find_elements("css selector", ".masked"), "no key is masked"
    layer, head = expected["start"]["layer"], expected["start"]["head"]
    row = tables[1].find_elements("css selector", "tbody tr")[5]
    shown = [float(cell.text) for cell in row.find_elements("css selector", "td")]
    assert shown == pytest.approx(expected["weights"][layer][head][5], abs=0.0051)


def test_the_gpt_is_followed_step_by_step(page, address):
    open_station(page, address, "gpt&source=The%20dog%20sees%20the%20cat.&step=0")
    page.wait(lambda: page.all("#station .weights"))
    steps = send(address, "/api/walk/gpt", {"source": "The dog sees the cat."})[1]["steps"]
    for number in (2, 3):
        page.all("#station .certain")[number].click()
        page.wait(lambda number=number: f"step={number}" in page.run("return location.hash"))
        best = [one["token"].removeprefix("▁") for one in steps[number]["candidates"]]
        assert candidates(page)[: len(best)] == best
    masked = page.all("#station .weights")[0].find_elements("css selector", ".masked")
    assert len(masked) == 7 * 6 / 2, "all later keys"
    page.run("document.querySelectorAll('#station .chips')[0].querySelectorAll('label')[2].click()")
    page.wait(lambda: "of layer 3" in page.text("#station .walk-pictures"))


def test_formulas_have_spaces_after_commas(page, address):
    open_station(page, address, "sum")
    spaces = page.run(
        "const commas = [...document.querySelectorAll('.formulas mo')];"
        "return commas.filter((mo) => mo.textContent === ',').map((mo) =>"
        " mo.nextSibling.getBoundingClientRect().left - mo.getBoundingClientRect().left)"
    )
    assert len(spaces) == 2
    assert min(spaces) > 7, "a comma alone is about 5 pixels wide"


def test_no_station_uses_metaphors(page, address):
    open_station(page, address, "tokens&source=The%20old%20farmer%20sells%20the%20car.")
    for name in STATIONS:
        page.wait(lambda name=name: station(page) == name, name)
        words = page.run(
            "const copy = document.querySelector('#station').cloneNode(true);"
            "for (const part of copy.querySelectorAll('pre, .order-form, .chart, .steps, .ribbons,"
            " .weights')) part.remove();"
            "return copy.textContent.toLowerCase()"
        )
        own = re.sub("“[^”]*”", "", words)  # without tokens
        assert METAPHORS.findall(own) == [], name
        page.press(Keys.ARROW_RIGHT)


def test_a_sentence_that_is_too_long_is_refused_in_words(chrome, address):
    page = Page(chrome)
    open_station(page, address, "tokens")
    field = page.one("#source")
    field.clear()
    field.send_keys("dog " * 40, Keys.ENTER)
    page.wait(lambda: "at most 24 can be shown" in page.text("#sentence-trouble"))
    assert "brothers" in page.text("#station"), "what was shown is still there"
    chrome.get_log("browser")  # the browser itself notes that a request was refused
