"""The kernel is plumbing: small, and without a word of the domain (DESIGN 14)."""

import re

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


def test_it_stays_within_its_budget() -> None:
    lines = sum(len(re.findall(r"\S.*", source.text)) for source in sources("services/kernel"))
    assert lines <= BUDGET_LINES, f"{lines} lines, blank ones not counted"


@pytest.mark.parametrize("source", sources("services/kernel"), ids=lambda source: source.path.name)
def test_it_knows_nothing_of_the_domain(source: Source) -> None:
    found = [
        f"{number}: {match[0]}"
        for number, line in enumerate(source.text.splitlines(), 1)
        for match in BANNED.finditer(BORROWED.sub("", line))
    ]
    assert not found, f"{source.name}: {found}"
