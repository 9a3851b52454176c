"""Structured logs: one JSON object per line on standard error, without stored values."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

_MINUTE = 60
_MAX_REPEATED = 60
_MAX_KINDS = 1_000
_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line).decode()


@dataclass(slots=True)
class _Repeated:
    minute: int
    count: int = 0
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Lets sixty equal warnings a minute through: anyone can cause those about refused requests.

    The first of a later minute says how many were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str, object], _Repeated] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        fields: dict[str, Any] = getattr(record, "fields", {})
        minute = int(record.created) // _MINUTE
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        kind = self._kinds.setdefault((record.name, str(record.msg), fields.get("code")), _Repeated(minute))
        if kind.minute != minute:
            if kind.left_out:
                record.fields = {**fields, "left_out": kind.left_out}
            kind.minute, kind.count, kind.left_out = minute, 0, 0
        kind.count += 1
        kind.left_out += kind.count > _MAX_REPEATED
        return kind.count <= _MAX_REPEATED


def configure_logging(level: str) -> None:
    # Do not collect what is never logged, as Python's logging guide advises.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the documented way to skip the source location
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("weftline").setLevel(level)
