"""The pictures of README and docs, made by the program from the model of the demonstration.

PYTHONPATH=src python3 benchmarks/pictures.py runs/demo --out docs/pictures
"""

import shutil
import time
from io import BytesIO
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from PIL import Image
from script import run
from selenium import webdriver
from served import browsing, emulate, serving

import attendo
from attendo.demo import EXAMPLE
from attendo.look.record import look
from attendo.look.write import show

PUZZLE = "The animal did not cross the street because it was too tired."

PAGES = {
    "explorer": (f"/#source={quote(PUZZLE)}&layer=2&pin=q8", 1280, 1180, "light"),
    "explorer-dark": (
        f"/#source={quote(PUZZLE)}&kind=encoder&layer=2&head=1&open=checks", 1280, 1180, "dark",
    ),
    "checks": (f"/#source={quote(PUZZLE)}&open=checks,ablation", 1280, 2450, "light"),
    "phone": (f"/#source={quote(PUZZLE)}", 390, 1400, "light"),
    "walk": ("/walk", 1280, 1180, "light"),
    "walk-softmax": ("/walk#softmax", 1280, 1180, "light"),
    "walk-mask": ("/walk#mask", 1280, 1180, "dark"),
    "walk-bert": ("/walk#bert", 1440, 2140, "light"),
    "walk-gpt": ("/walk#gpt", 1440, 2060, "light"),
}  # fmt: skip
"""Address, width, height and theme."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="The run of 'attendo demo'.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the images.")],
) -> None:
    """Draw all pictures again."""
    out.mkdir(parents=True, exist_ok=True)
    translator = attendo.load(model, "cpu")
    show(translator, look(translator, PUZZLE), out / "decoding.gif")
    show(translator, look(translator, EXAMPLE), out / "attention.png")
    shutil.copy(model / "curve.png", out / "curve.png")
    with serving(model) as address, browsing() as driver:
        for name, page in PAGES.items():
            photograph(driver, address, *page, out / f"{name}.png")
            print(out / f"{name}.png")


def photograph(
    driver: webdriver.Chrome,
    address: str,
    place: str,
    width: int,
    height: int,
    theme: str,
    path: Path,
) -> None:
    """Open a page and save a screenshot with 256 colours."""
    emulate(driver, width, height, theme)
    driver.get("about:blank")
    driver.get(address + place)
    time.sleep(3)
    screenshot = Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    screenshot.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    run(app)
