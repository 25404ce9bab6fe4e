"""Becomes a back end's own process: finds the binary, writes its configuration, and execs it."""
