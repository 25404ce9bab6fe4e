"""Gives plain_http.py a name that run files can use. `command` may be any program: the words are its command line."""

import sys
from pathlib import Path

from services.rollout.agents.agent import Agent


def agent():
    return Agent("plain_http", (sys.executable, str(Path(__file__).with_name("plain_http.py"))))
