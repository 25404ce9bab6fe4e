"""Forge RL: an open Forge. Start at services/README.md."""
