"""The command's entry: one clear line on stderr for every error, and an exit code that isn't 0.

FORGERL_DEBUG=1 shows the traceback as well. Refuses to import what a command doesn't need, so that it starts at once;
the commands themselves are imported inside `main`, which answers a Ctrl-C that comes before they are there.
"""

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator

from services.cli.errors import CommandError, StackFailed

# gRPC's own words for a port where nobody listens, and for a host that there is not.
_NOBODY = re.compile(r"failed to connect to all addresses.*?ipv[46]:(?:%5B)?([^\s;]+?:\d+)", re.DOTALL)

_NO_HOST = re.compile(r"DNS resolution failed for ([^\s:]+)")


def _describe(error: BaseException) -> tuple[str, int]:
    """The line and the exit code of an error."""
    if isinstance(error, StackFailed):
        said = "".join(f"\n  {line}" for line in error.last_lines)
        return f"{error}{said and '; its last lines:' + said}", 1
    if isinstance(error, CommandError):
        return str(error), error.exit_code
    # Typer brings its own copy of click, so the class says nothing; its errors word themselves.
    if callable(word := getattr(error, "format_message", None)):
        return str(word()), int(getattr(error, "exit_code", 1))
    if isinstance(error, BaseExceptionGroup):
        return _describe(error.exceptions[0])
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    if nobody := _NOBODY.search(message):
        return f"nothing answers at {nobody[1]}: is the stack up? (forgerl status tells, forgerl up starts it)", 1
    if no_host := _NO_HOST.search(message):
        return f"no host is called {no_host[1]}: look at FORGERL_GATEWAY_ADDRESS and its kin", 1
    known = type(error).__module__.startswith("services.") or isinstance(error, OSError)
    return message if known else f"{type(error).__name__}: {message}", 1


def _one_line(text: str) -> str:
    first, *rest = text.split("\n  ")
    return "\n  ".join([" ".join(first.split()), *rest])


@contextlib.contextmanager
def _no_width_without_a_terminal() -> Iterator[None]:
    """A file or another program has no width: nothing is cut off or wrapped for it, unless COLUMNS says so."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        yield
        return
    os.environ["COLUMNS"] = "1000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]


def main() -> None:
    """Never returns."""
    try:
        code = _run()
    except KeyboardInterrupt:
        # A command that had begun has said itself what goes on without it.
        sys.stderr.write("forgerl: interrupted before it began\n")
        code = 130
    sys.exit(code)


def _run() -> int:
    """The exit code of the command that the arguments name."""
    import typer

    from services.cli.app import build_app

    # Libraries' own remarks are no answer to a command: SyntaxWarnings of a package that holds tasks.
    warnings.simplefilter("ignore")
    try:
        with _no_width_without_a_terminal():
            code = build_app()(standalone_mode=False)
    except typer.Abort:
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if os.environ.get("FORGERL_DEBUG"):
            import traceback

            traceback.print_exc()
        text, code = _describe(error)
        asked_for_help = type(error).__name__ == "NoArgsIsHelpError"
        sys.stderr.write(f"{text}\n" if asked_for_help else f"forgerl: {_one_line(text)}\n")
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
