"""The hand-written source as these tests see it: files, syntax trees, imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("gateway", "scheduler", "rollout", "router", "inference", "reward", "trainer")
LIBRARIES = ("kernel", "contract", "environments", "client")


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def package(self) -> str:
        """What stands below services/: `gateway`, `kernel`, …"""
        parts = self.path.relative_to(ROOT).parts
        return parts[1] if parts[0] == "services" and len(parts) > 2 else ""

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def imports(self) -> Iterator[str]:
        """Full names of everything imported, anywhere in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        yield from (n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Every call with the dotted name of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, dotted(node.func)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression; empty for anything that isn't a chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr}" if head else node.attr
    return ""


def sources(*folders: str) -> list[Source]:
    """The Python files of folders of the repository, generated code left out."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [Source(path) for path in found if ".venv" not in path.parts and "gen" not in path.parts]
