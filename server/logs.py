"""What the process writes to stderr: one JSON object a line, with counts and ids only.

Of an exception its type and its frames are written, never its message: Postgres quotes rows in them.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
"""What every record has; the rest is what `extra` said."""
QUIET: Final = ("uvicorn.access", "botocore", "aiobotocore", "asyncio", "httpx", "urllib3")
"""They name paths, queries or keys: only their warnings are let through."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage().partition("\n")[0],  # asyncio shows the exception behind it
            **{name: value for name, value in vars(record).items() if name not in USUAL},
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
            line["frames"] = _frames(record.exc_info[2])
        return json.dumps(line, default=str)


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)][-20:]


def start_logging(level: int = logging.INFO) -> None:
    """To stderr, for the whole process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
