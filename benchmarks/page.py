"""How fast the page is: a sentence of 100 tokens, 6+6 layers, 8 heads, a real server and browser.

PYTHONPATH=src python3 benchmarks/page.py
"""

import time
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from urllib.parse import quote

import torch
import typer
from script import run
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from served import browsing, serving

import attendo
from attendo.bundle import PARAMETERS, parameters_of, save_task, write_tensors
from attendo.config import load_recipe
from attendo.data.builtin import sentences
from attendo.files import write_json
from attendo.look.record import look
from attendo.look.write import show
from attendo.models import build_model
from attendo.tasks import Translation
from attendo.text import Tokenizer

WATCH = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.tasks.push(Math.round(entry.duration));
}).observe({ type: "longtask", buffered: true });
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of both sides.")] = 100,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures.")] = None,
) -> None:
    """Measure how long the page takes to open, and its longest tasks (over 50 ms)."""
    with TemporaryDirectory() as folder:
        model = Path(folder) / "base"
        source, target = make_model(model, tokens)
        figures = measure_file(model, source, target, Path(folder) / "look.html")
        with serving(model) as address, browsing() as driver:
            figures |= measure(driver, f"{address}/#source={quote(source)}&target={quote(target)}")
    for name, value in figures.items():
        print(f"{name:38} {value}")
    if json:
        write_json(json, figures)


def make_model(folder: Path, tokens: int) -> tuple[str, str]:
    """Build the base model with new parameters, and texts of a length."""
    folder.mkdir()
    texts = list(islice(sentences(seed=1), 2000))
    both = [side for text in texts for side in (text.source, text.target)]
    tokenizer = attendo.train_tokenizer("bpe", both, 2000)
    recipe = load_recipe("paper-base", {"tokenizer.vocabulary": 2000})
    torch.manual_seed(1)
    model = build_model(recipe.model, tokenizer.size, tokenizer.size)
    for attention in chain.from_iterable(model.attentions().values()):
        attention.query.weight.data *= 6  # new parameters attend uniformly, trained ones do not
    save_task(folder, recipe, Translation(tokenizer, tokenizer, recipe.data.max_length))
    write_tensors(folder / PARAMETERS, parameters_of(model))
    long = [" ".join(getattr(text, side) for text in texts[:40]) for side in ("source", "target")]
    return cut(tokenizer, long[0], tokens), cut(tokenizer, long[1], tokens)


def cut(tokenizer: Tokenizer, text: str, tokens: int) -> str:
    """Return as many words as make `n` tokens, the last one not counted."""
    words = text.split()
    while len(tokenizer.encode(" ".join(words))) > tokens - 1:
        words.pop()
    return " ".join(words)


def measure_file(model: Path, source: str, target: str, path: Path) -> dict[str, float]:
    """Write the page as one file."""
    translator = attendo.load(model, "cpu")
    recorded = look(translator, source, target)
    show(translator, recorded, path)
    return {
        "source tokens": len(recorded.tokenized.source_tokens),
        "target tokens": len(recorded.tokenized.target_tokens),
        "self-contained file, MB": round(path.stat().st_size / 1e6, 2),
    }


def measure(driver: webdriver.Chrome, address: str) -> dict[str, float]:
    """Open the page, and use it."""
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    figures: dict[str, float] = {}
    for name in ("opens, first time, s", "opens, answer remembered, s"):
        driver.get("about:blank")
        start = time.perf_counter()
        driver.get(address)
        WebDriverWait(driver, 60, poll_frequency=0.02).until(
            lambda _: driver.execute_script(
                "return document.querySelector('.all')?.childElementCount > 10"
            )
        )
        figures[name] = round(time.perf_counter() - start, 2)
    received = "performance.getEntriesByType('resource').reduce((n, e) => n + e.encodedBodySize, 0)"
    figures["received, MB"] = round(driver.execute_script(f"return {received}") / 1e6, 2)
    for name, action in ACTIONS.items():
        figures[f"longest task: {name}, ms"] = longest_task(driver)
        action(driver)
    figures["longest task: hovering, ms"] = longest_task(driver)
    return figures


def longest_task(driver: webdriver.Chrome) -> float:
    """Return the longest task since the last call; 0 if all were below 50 ms."""
    time.sleep(1)
    tasks = driver.execute_script("const seen = window.tasks; window.tasks = []; return seen")
    return max(tasks, default=0)


def switch_kinds(driver: webdriver.Chrome) -> None:
    """Click through encoder, cross and decoder attention."""
    for label in driver.find_elements(By.CSS_SELECTOR, ".segments label"):
        label.click()
        time.sleep(0.7)


def choose_heads(driver: webdriver.Chrome) -> None:
    """Click on some heads."""
    for cell in driver.find_elements(By.CSS_SELECTOR, ".cell")[::11]:
        driver.execute_script("arguments[0].click()", cell)
        time.sleep(0.3)


def hover(driver: webdriver.Chrome) -> None:
    """Move the pointer over tokens."""
    driver.execute_script("document.querySelector('.ribbons').scrollIntoView()")
    moves = ActionChains(driver, duration=20)
    for token in driver.find_elements(By.CSS_SELECTOR, ".side-q .token")[:25]:
        moves.move_to_element(token)
    moves.perform()


ACTIONS = {"opening": switch_kinds, "switching kinds": choose_heads, "choosing heads": hover}
"""What is done after what has been measured."""


if __name__ == "__main__":
    run(app)
