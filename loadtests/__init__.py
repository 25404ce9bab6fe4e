"""Measurements of the whole stack. Not tests: they print numbers, and the last line is JSON."""
