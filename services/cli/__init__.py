"""The `forgerl` command: runs the stack on this machine, and talks to a stack anywhere through the client."""
