"""Makes data/signatures.txt: the signatures of Python's standard library and numpy.

Run it by hand as `python -m services.environments.build_corpus OUT`. The file is shipped, so that every machine asks
the same questions whatever its Python. It refuses signatures that are long, not ASCII, or without a plain default.
"""

import contextlib
import importlib
import inspect
import io
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

SUBMODULES = (
    "asyncio.locks",
    "asyncio.streams",
    "asyncio.subprocess",
    "collections.abc",
    "concurrent.futures",
    "ctypes.util",
    "email.header",
    "email.message",
    "email.utils",
    "html.parser",
    "http.client",
    "http.cookiejar",
    "http.server",
    "importlib.util",
    "json.tool",
    "logging.config",
    "logging.handlers",
    "multiprocessing.pool",
    "numpy",
    "numpy.fft",
    "numpy.lib.stride_tricks",
    "numpy.linalg",
    "numpy.ma",
    "numpy.polynomial.polynomial",
    "numpy.random",
    "numpy.testing",
    "os.path",
    "unittest.mock",
    "urllib.parse",
    "urllib.request",
    "urllib.robotparser",
    "wsgiref.simple_server",
    "xml.dom.minidom",
    "xml.etree.ElementTree",
    "xml.sax.saxutils",
    "xmlrpc.client",
    "xmlrpc.server",
    "zoneinfo",
)
# Importing these opens a window, a browser or a great deal of test code.
LEFT_OUT = frozenset(("antigravity", "idlelib", "lib2to3", "test", "this", "tkinter", "turtle", "turtledemo"))
MAX_NAME_CHARS = 32
MAX_LINE_CHARS = 72
MAX_DEFAULT_CHARS = 10
FORBIDDEN_IN_DEFAULT = frozenset('(),="\\<>\t')


def modules() -> Iterator[tuple[str, object]]:
    """The modules to read, by name; one that does not import on this machine is left out."""
    names = [name for name in sys.stdlib_module_names if not name.startswith("_") and name not in LEFT_OUT]
    for name in sorted({*names, *SUBMODULES}):
        with contextlib.suppress(ImportError), contextlib.redirect_stdout(io.StringIO()):
            yield name, importlib.import_module(name)


def callables(module_name: str, module: object) -> Iterator[tuple[str, object]]:
    """A module's own public functions and classes, and the classes' public methods, by full name."""
    for name, member in sorted(vars(module).items()):
        home = str(getattr(member, "__module__", None) or module_name)
        if name.startswith("_") or home.split(".")[0] != module_name.split(".")[0]:
            continue
        if inspect.isroutine(member) or inspect.isclass(member):
            yield f"{module_name}.{name}", member
        if inspect.isclass(member):
            for method_name, method in sorted(vars(member).items()):
                if not method_name.startswith("_") and inspect.isroutine(method):
                    yield f"{module_name}.{name}.{method_name}", method


def line_of(name: str, member: object) -> str | None:
    """`name(a,b=1,*,c=None)`, or None where the signature is not fit to be asked about."""
    try:
        parameters = list(inspect.signature(member).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    parts: list[str] = []
    keyword_only = False
    for parameter in parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only and not any(p.startswith("*") for p in parts):
            parts.append("*")
        keyword_only = keyword_only or parameter.kind is parameter.KEYWORD_ONLY
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(
            stars + parameter.name + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")
        )
    line = f"{name}({','.join(parts)})"
    plain = all(is_plain(p.default) for p in parameters if p.default is not p.empty)
    asks = any(p.default is not p.empty for p in parameters)
    fits = len(line) <= MAX_LINE_CHARS and len(name) <= MAX_NAME_CHARS and line.isascii()
    return line if plain and asks and fits else None


def is_plain(default: object) -> bool:
    """Whether a default is a short literal."""
    shown = repr(default)
    literal = default is None or type(default) in (bool, int, float, str)
    return literal and len(shown) <= MAX_DEFAULT_CHARS and not FORBIDDEN_IN_DEFAULT & set(shown)


def main(out: Path) -> None:
    """Write the signatures, sorted by name, one a line."""
    warnings.simplefilter("ignore")
    lines = {
        line
        for module_name, module in modules()
        for name, member in callables(module_name, module)
        if (line := line_of(name, member)) is not None
    }
    out.write_text("\n".join(sorted(lines)) + "\n")
    sys.stdout.write(f"{len(lines)} signatures -> {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
