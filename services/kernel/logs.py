"""Structured logs on standard error, one line an event; refuses to let a library flood them."""

import logging
import sys
from functools import partial
from time import monotonic
from typing import cast

import structlog

_FLOODING = ("aiokafka", "faststream", "kafka")
_QUIET_S = 5.0


class _OncePerPlace(logging.Filter):
    """aiokafka logs each refused connection, hundreds a second: of each place one line in five seconds is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._last_s: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_FLOODING):
            return True
        place, now_s = (record.pathname, record.lineno), monotonic()
        if now_s - self._last_s.get(place, -_QUIET_S) < _QUIET_S:
            return False
        self._last_s[place] = now_s
        record.exc_info = None
        return True


def configure(service: str, level: str = "INFO", json: bool = False) -> None:
    """Send everything, standard logging too, to standard error. May be called again."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _, __, fields: {"service": service, **fields},
    ]
    formatter = structlog.stdlib.ProcessorFormatter
    # Plain tracebacks: the pretty ones print local variables, secrets among them, and take a second each.
    text = partial(structlog.dev.ConsoleRenderer, exception_formatter=structlog.dev.plain_traceback)
    last = structlog.processors.JSONRenderer() if json else text(colors=False, pad_event_to=0)
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, formatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(processors=[formatter.remove_processors_meta, last], foreign_pre_chain=shared))
    handler.addFilter(_OncePerPlace())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("httpx", "httpcore", *_FLOODING):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def get_logger() -> structlog.stdlib.BoundLogger:
    """A logger; messages are constant (`thing.happened`), facts are keyword fields."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger())
