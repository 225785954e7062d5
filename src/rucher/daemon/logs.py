"""The daemon's own log: one JSON object a line in the instance, and warnings on the terminal it runs in as well.

Logging never raises: a full disk and a terminal that went away are exactly when something is worth logging.
"""

import contextlib
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger
from typing_extensions import override

QUIET_S = 10.0
REMEMBERED = 1000
_SHOWN = frozenset({"warning", "error", "critical", "exception"})


def write_logs_to(path: Path) -> Callable[[], None]:
    """Send everything that is logged, also by libraries, to `path`; returns what closes it."""
    file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
    structlog.configure(
        processors=[
            _show_warnings,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=lambda *_: _Lines(file),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(file)
    handler.setFormatter(_JsonLines())
    handler.addFilter(_NotAgain())
    logging.raiseExceptions = False
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    return file.close


class _Lines:
    """What structlog writes to, whatever the level."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._file.write(message + "\n")

    info = warning = error = exception = msg


class _NotAgain(logging.Filter):
    """Lets the same words of a library through once in a while: a full machine says them thousands of times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        words = f"{record.name} {record.msg}"
        if record.created - self._said.get(words, 0.0) < QUIET_S:
            return False
        if len(self._said) > REMEMBERED:
            self._said.clear()
        self._said[words] = record.created
        return True


class _JsonLines(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        fault = self.formatException(record.exc_info) if record.exc_info else None
        line = {
            "event": record.getMessage(),
            "logger": record.name,
            "level": record.levelname.lower(),
            "exception": fault,
        }
        return json.dumps({key: value for key, value in line.items() if value is not None})


def _show_warnings(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if method in _SHOWN:
        reason = f": {event['reason']}" if "reason" in event else ""
        line = f"{method}: {event['event']}{reason}"
        shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(shown + "\n")
    return event
