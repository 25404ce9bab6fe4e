"""The kernel is plumbing: small, and without a word of the domain (DESIGN 14)."""

import ast
import io
import re
import tokenize

import pytest
from source import Source, sources

BUDGET_LINES = 1500
BANNED = re.compile(
    r"episode|trajector|rollout|reward|advantage|verifier|prompt|completion|logprob|token_?ids?\b|gradient|checkpoint"
    r"|optimi[sz]er|polic(y|ies)|\bworkers?\b|run_ids?\b|gateway|scheduler|trainer|inference|\brouter|\bagents?\b|\bllm\b",
    re.IGNORECASE,
)
# Temporal's and FastStream's own names for how they retry and acknowledge.
BORROWED = re.compile(r"RetryPolicy|retry_policy|AckPolicy|ack_policy")


def lines_of_code(source: Source) -> int:
    """Lines that hold code; blank lines, comments and docstrings (which CONVENTIONS asks for) are not counted."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(source.tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_it_stays_within_its_budget() -> None:
    count = sum(lines_of_code(source) for source in sources("services/kernel"))
    assert 0 < count <= BUDGET_LINES, f"{count} lines of code"


@pytest.mark.parametrize("source", sources("services/kernel"), ids=lambda source: source.path.name)
def test_it_knows_nothing_of_the_domain(source: Source) -> None:
    found = [
        f"{number}: {match[0]}"
        for number, line in enumerate(source.text.splitlines(), 1)
        for match in BANNED.finditer(BORROWED.sub("", line))
    ]
    assert not found, f"{source.name}: {found}"
