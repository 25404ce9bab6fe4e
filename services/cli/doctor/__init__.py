"""`forgerl doctor`: what this machine and a running stack need, each checked by doing it."""
