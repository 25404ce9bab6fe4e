"""Errors that the command shows as one line. Refuses to carry anything but that line."""


class CommandError(Exception):
    """Ends the command with exit code 1 and its message as the only line on stderr."""

    exit_code = 1


class UsageError(CommandError):
    """What was asked for can't be done as it was asked."""

    exit_code = 2


class StackFailed(CommandError):
    """A child never got healthy or spent its restart budget; `last_lines` are what it said before."""

    def __init__(self, message: str, last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.last_lines = last_lines
