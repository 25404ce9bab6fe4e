"""Every command, path, test, link and code block that the pages name exists and parses."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_pages import PAGES, ROOT, blocks, inline_code, prose, shell_lines

from services.cli.app import build_app

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
_ROOTS = ("services/", "docs/", "deploy/", "tests/", "examples/", "proto/", "loadtests/", ".ci/", "docker-compose.yml")


def parse(block: Any) -> None:
    match block.language:
        case "toml":
            tomllib.loads(block.text)
        case "json":
            json.loads(block.text)
        case "python":
            ast.parse(block.text)
        case "sh":
            done = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        case _:
            assert block.language in ("", "text"), f"unknown language {block.language!r}"


@pages
def test_code_blocks_parse(page: Path):
    for block in blocks(page):
        try:
            parse(block)
        except (ValueError, SyntaxError) as error:
            pytest.fail(f"{block.page}:{block.line}: {error}")


def known_command(words: list[str]) -> str:
    """What is wrong with a `forgerl` command line; empty when nothing is."""
    command: Any = typer.main.get_command(build_app())
    rest = words[1:]
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        if name == "--help":
            return ""
        if name not in command.commands:
            return f"no command {name!r}"
        command = command.commands[name]
    allowed = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in rest if word.startswith("-") and word.split("=")[0] not in allowed]
    return f"no option {unknown[0]!r}" if unknown else ""


def test_unknown_commands_and_options_are_noticed():
    assert known_command(["forgerl", "fly"]) == "no command 'fly'"
    assert known_command(["forgerl", "up", "--wings"]) == "no option '--wings'"
    assert known_command(["forgerl", "policy", "export", "RUN", "3", "OUT"]) == ""


@pages
def test_commands_exist(page: Path):
    for line in shell_lines(page):
        for part in line.split("|")[0].split("&&"):
            command = part.strip().removeprefix("docker-compose exec trainer ").removeprefix(".venv/bin/")
            if command.startswith("forgerl "):
                problem = known_command(shlex.split(command))
                assert not problem, f"{page.name}: {command}: {problem}"


@pages
def test_make_targets_exist(page: Path):
    makefile = (ROOT / "Makefile").read_text()
    for line in shell_lines(page):
        if found := re.fullmatch(r"make ([a-z0-9-]+)(?: .*)?", line):
            assert re.search(rf"^{found.group(1)}:", makefile, re.MULTILINE), f"{page.name}: {line}"


def is_there(named: str) -> bool:
    """A path of the repository, perhaps with a glob or with braces."""
    braces = re.fullmatch(r"(.*)\{([^}]*)\}(.*)", named)
    if braces:
        before, choices, after = braces.groups()
        return all(is_there(f"{before}{choice}{after}") for choice in choices.split(","))
    return any(ROOT.glob(named.rstrip("/"))) if "*" in named else (ROOT / named).exists()


@pages
def test_paths_exist(page: Path):
    words = [word for line in (*inline_code(page), *shell_lines(page)) for word in line.split()]
    for word in words:
        named = re.split(r"::|:\d", word.strip("(),;"))[0]
        if named.startswith(_ROOTS) and "<" not in named:
            assert is_there(named), f"{page.name} names {named}"


@pages
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pages
def test_named_tests_exist(page: Path):
    for file, name in re.findall(r"`?(tests/[\w/]+\.py)::(\w+)", page.read_text()):
        assert f"def {name}(" in (ROOT / file).read_text(), f"{page.name} names {file}::{name}"


@pages
def test_environment_variables_exist(page: Path):
    """Every FORGERL_ name is read somewhere; prefixes end in an underscore or an ellipsis."""
    for name in sorted(set(re.findall(r"FORGERL_[A-Z_0-9]+", page.read_text()))):
        assert name in known_variables() or name.endswith("_") or name.startswith("FORGERL_PORT_"), (
            f"{page.name} names {name}"
        )


@cache
def known_variables() -> set[str]:
    from test_tables import SETTINGS, variables_of

    read = {name for cls in SETTINGS.values() for name in variables_of(cls)}
    sources = [*(ROOT / "services").rglob("*.py"), *(ROOT / "deploy").rglob("*"), ROOT / ".ci" / "run"]
    for path in sources:
        if path.is_file() and path.suffix in (".py", ".yaml", ".example", ""):
            read |= set(re.findall(r"FORGERL_[A-Z_0-9]+", path.read_text()))
    return read


def test_every_page_stands_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    missing = [
        p.name for p in PAGES if p.parent.name == "docs" and p.name != "README.md" and f"({p.name})" not in index
    ]
    assert not missing
