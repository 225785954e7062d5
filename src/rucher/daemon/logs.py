"""The daemon's own log: one JSON object a line in the instance, and warnings on the terminal it runs in as well."""

import json
import logging
import sys
from pathlib import Path

import structlog
from structlog.typing import EventDict, WrappedLogger
from typing_extensions import override

_SHOWN = frozenset({"warning", "error", "critical", "exception"})


def write_logs_to(path: Path) -> None:
    """Send everything that is logged, also by libraries, to `path`."""
    file = path.open("a", encoding="utf-8", buffering=1)
    structlog.configure(
        processors=[
            _show_warnings,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(file)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


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
        sys.stderr.write(f"{method}: {event['event']}{reason}\n")
    return event
