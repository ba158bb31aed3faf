"""Engines: what executes a bundle.

Names are imported when they are first used, since most of them need PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attendo.engines.base import TextTranslator as TextTranslator
    from attendo.engines.ctranslate2 import CTranslate2Translator as CTranslate2Translator
    from attendo.engines.loading import load_translator as load_translator
    from attendo.engines.pytorch import Engine as Engine
    from attendo.engines.pytorch import Translator as Translator
    from attendo.engines.pytorch import load as load
    from attendo.engines.texts import Embedder as Embedder
    from attendo.engines.texts import Generator as Generator
    from attendo.engines.texts import MaskFiller as MaskFiller
    from attendo.engines.texts import Parser as Parser
    from attendo.engines.texts import Predictor as Predictor
    from attendo.engines.texts import TextClassifier as TextClassifier
    from attendo.engines.texts import load_classifier as load_classifier
    from attendo.engines.texts import load_embedder as load_embedder
    from attendo.engines.texts import load_engine as load_engine
    from attendo.engines.texts import load_generator as load_generator
    from attendo.engines.texts import load_predictor as load_predictor

_HOMES = {
    "CTranslate2Translator": "ctranslate2",
    "Embedder": "texts",
    "Engine": "pytorch",
    "Generator": "texts",
    "MaskFiller": "texts",
    "Parser": "texts",
    "Predictor": "texts",
    "TextClassifier": "texts",
    "TextTranslator": "base",
    "Translator": "pytorch",
    "load": "pytorch",
    "load_classifier": "texts",
    "load_embedder": "texts",
    "load_engine": "texts",
    "load_generator": "texts",
    "load_predictor": "texts",
    "load_translator": "loading",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
