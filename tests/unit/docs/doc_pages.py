"""The pages that users read, taken apart: code blocks, tables, inline code, links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "services" / "DECISIONS.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Fenced code blocks."""
    language, start, lines = None, 0, []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if not line.startswith("```"):
            lines.append(line)
        elif language is None:
            language, start, lines = line[3:].strip(), number, []
        else:
            yield Block(page.name, start, language, "\n".join(lines))
            language = None
    assert language is None, f"{page.name}: a code block is not closed"


def prose(page: Path) -> str:
    """The text without code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def shell_lines(page: Path) -> list[str]:
    """Lines of shell blocks, without comments and leading assignments; inline code that is a command."""
    found = [line for block in blocks(page) if block.language in ("", "sh") for line in block.text.splitlines()]
    found += inline_code(page)
    bare = [re.sub(r"\s#.*", "", line).strip() for line in found]
    return [re.sub(r"^(?:[A-Z_]+=\S* +)+", "", line) for line in bare]


def rows(page: Path, heading: str) -> list[list[str]]:
    """Cells of the tables under a heading, until the next one of its level; without header and rule."""
    text = page.read_text()
    level = heading.split(" ", 1)[0]
    start = re.search(rf"^{re.escape(heading)}$", text, flags=re.MULTILINE)
    assert start, f"{page.name} has no {heading!r}"
    section = re.split(rf"^{level} ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    cells = [
        [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [row for row in cells if row[0] and not set(row[0]) <= set("-:") and row[0] not in HEADERS]


HEADERS = ("field", "table", "variable", "topic", "class", "setting")
