"""Runs the processes of `deploy/stack.yaml` on one machine: start in order, watch, start again, stop in reverse.

Knows processes, ports and health; nothing of what the processes do.
"""
