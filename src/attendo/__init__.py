"""attendo: the Transformer of "Attention Is All You Need" as complete, practical software.

    import attendo

    model = attendo.train("auto", out="run", source="a.en", target="a.de")
    model = attendo.load("run")
    model.translate(["The dog sleeps."])

docs/api.md describes every name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attendo.api import ScoreCard as ScoreCard
    from attendo.api import load_score_card as load_score_card
    from attendo.api import train as train
    from attendo.config import Recipe as Recipe
    from attendo.config import load_recipe as load_recipe
    from attendo.engines import TextTranslator as TextTranslator
    from attendo.engines import Translator as Translator
    from attendo.engines import load as load
    from attendo.engines import load_translator as load_translator
    from attendo.errors import AttendoError as AttendoError
    from attendo.metrics import Scores as Scores
    from attendo.models import Recording as Recording
    from attendo.tasks import Translated as Translated
    from attendo.text import Tokenizer as Tokenizer
    from attendo.text import load_tokenizer as load_tokenizer
    from attendo.text import train_tokenizer as train_tokenizer

_HOMES = {
    "AttendoError": "attendo.errors",
    "Recording": "attendo.models",
    "Recipe": "attendo.config",
    "ScoreCard": "attendo.api",
    "Scores": "attendo.metrics",
    "Tokenizer": "attendo.text",
    "TextTranslator": "attendo.engines",
    "Translated": "attendo.text.streams",
    "Translator": "attendo.engines",
    "load": "attendo.engines",
    "load_recipe": "attendo.config",
    "load_score_card": "attendo.api",
    "load_tokenizer": "attendo.text",
    "load_translator": "attendo.engines",
    "train": "attendo.api",
    "train_tokenizer": "attendo.text",
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import attendo` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'attendo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
