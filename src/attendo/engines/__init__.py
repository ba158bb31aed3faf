"""Engines: what executes a bundle."""

from attendo.engines.pytorch import Engine, Translator, load
from attendo.engines.texts import (
    Generator,
    TextClassifier,
    load_classifier,
    load_engine,
    load_generator,
)

__all__ = [
    "Engine",
    "Generator",
    "TextClassifier",
    "Translator",
    "load",
    "load_classifier",
    "load_engine",
    "load_generator",
]
