"""Engines: what executes a bundle."""

from attendo.engines.pytorch import Engine, Translator, load
from attendo.engines.texts import (
    Embedder,
    Generator,
    MaskFiller,
    Parser,
    Predictor,
    TextClassifier,
    load_classifier,
    load_embedder,
    load_engine,
    load_generator,
    load_predictor,
)

__all__ = [
    "Embedder",
    "Engine",
    "Generator",
    "MaskFiller",
    "Parser",
    "Predictor",
    "TextClassifier",
    "Translator",
    "load",
    "load_classifier",
    "load_embedder",
    "load_engine",
    "load_generator",
    "load_predictor",
]
