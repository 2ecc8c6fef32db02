"""Logs: writes the events of a node to standard error, one per line, as text or JSON.

Entry points: `configure`, `log_event`, `log_warning`.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

from thyme.model.errors import truncate

_log = logging.getLogger("thyme")


def configure(*, as_json: bool) -> None:
    """Configures logging to standard error, as text or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    for name in ("thyme", "aiohttp", "asyncio"):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.propagate = False
    _log.setLevel(logging.INFO)
    logging.getLogger("aiohttp.server").addFilter(is_relevant)


def is_relevant(record: logging.LogRecord) -> bool:
    """Filters out malformed HTTP requests: the client gets an error response, the log no entry."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def log_event(name: str, **facts: Any) -> None:
    """Logs an event; `name` is a stable identifier for programs."""
    _log.info(name, extra={"facts": facts})


def log_warning(name: str, **facts: Any) -> None:
    """Logs an event that needs attention; `name` is a stable identifier for programs."""
    _log.warning(name, extra={"facts": facts})


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": _format_time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "facts", {})
        shown = {name: value for name, value in facts.items() if value is not None}
        fields = [f"{name}={truncate(str(value))}" for name, value in shown.items()]
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = " ".join([_format_time(record)[11:19], f"{level}{record.getMessage()}", *fields])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _format_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
