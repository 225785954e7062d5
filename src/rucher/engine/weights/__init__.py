"""The embedded model's weights: pinned by hash, fetched from wherever they can be had, kept once for each user."""

from rucher.engine.weights.cache import SOURCES, ensure, own
from rucher.engine.weights.pinned import SMALL, STANDARD, TABLE, Progress, Source, Weights

__all__ = ["SMALL", "SOURCES", "STANDARD", "TABLE", "Progress", "Source", "Weights", "ensure", "own"]
