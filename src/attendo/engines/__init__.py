"""Engines: what executes a bundle."""

from attendo.engines.pytorch import Translator, load

__all__ = ["Translator", "load"]
