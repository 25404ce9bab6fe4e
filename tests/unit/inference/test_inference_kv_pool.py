"""The KV pool's log: one message of LMCache is left out, word for word, and nothing else."""

import importlib.util
import logging
from pathlib import Path

from services.inference.kv_pool import _LOOKUP_LOGGER, _TOO_SHORT, is_worth_a_line


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord(_LOOKUP_LOGGER, logging.WARNING, "lookup.py", 1, text, ("generate-1",), None)


def test_only_that_message_is_left_out():
    assert not is_worth_a_line(record(_TOO_SHORT))
    assert is_worth_a_line(record("Session %s not found, skipping touch"))


def test_lmcache_still_says_it_in_these_words():
    found = importlib.util.find_spec("lmcache")
    assert found and found.submodule_search_locations
    source = Path(found.submodule_search_locations[0], *_LOOKUP_LOGGER.split(".")[1:]).with_suffix(".py").read_text()
    assert f'"{_TOO_SHORT}"' in source
