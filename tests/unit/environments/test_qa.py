"""Questions on signatures: what the search finds, what the verifier takes, and that the corpus is fit for both."""

import pytest

from services.environments.corpus import MAX_QUESTIONS_PER_DEFAULT, Corpus, Question, shipped_corpus
from services.environments.interface import SandboxResult, Task, ToolFailure
from services.environments.qa import QaEnvironment, same_value

LINES = (
    "os.walk(top,topdown=True,onerror=None)",
    "zipfile.ZipFile.walk(depth=3)",
    "math.isclose(a,b,*,rel_tol=1e-09,abs_tol=0.0)",
)
TASK = Task("qa", "t", "train", b'{"answer":"1e-09","function":"math.isclose","parameter":"rel_tol"}')


class NoSandbox:
    async def run_python(self, code: str, timeout_s: float) -> SandboxResult:
        raise AssertionError("nothing may run")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("math.isclose", [LINES[2]]),
        (" math.isclose ", [LINES[2]]),
        ("walk", [LINES[0], LINES[1]]),
        ("the walk of os", [LINES[0], LINES[1]]),
        ("MATH", [LINES[2]]),
        ("numpy.sum", []),
    ],
)
def test_search(query: str, found: list[str]) -> None:
    assert Corpus(LINES).search(query) == found


def test_questions_are_the_parameters_with_a_default() -> None:
    assert set(Corpus(LINES[2:]).questions) == {
        Question("math.isclose", "rel_tol", "1e-09"),
        Question("math.isclose", "abs_tol", "0.0"),
    }
    assert Question("os.walk", "top", "1").content_key == Question("zipfile.ZipFile.walk", "depth", "3").content_key


def test_a_default_is_not_asked_for_more_often_than_allowed() -> None:
    asked = Corpus(f"m.f{number}(a=None)" for number in range(200)).questions
    assert len(asked) == MAX_QUESTIONS_PER_DEFAULT == 120


def test_a_line_that_is_no_signature_is_named() -> None:
    with pytest.raises(ValueError, match=r"line 2 of the corpus is no signature: 'os\.walk'"):
        Corpus(["f(a=1)", "os.walk"])


async def test_tool_results() -> None:
    environment = QaEnvironment(Corpus(LINES))
    walk = await environment.call_tool(TASK, "search", {"query": "walk"}, NoSandbox())
    assert walk == f"{LINES[0]}\n{LINES[1]}"
    assert await environment.call_tool(TASK, "search", {"query": "zzz"}, NoSandbox()) == "nothing found"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("find", {"query": "walk"}, "no tool find; allowed: search"),
        ("search", {"q": "walk"}, "search takes query, not q"),
        ("search", {"query": ["walk"]}, "query must be a text"),
        ("search", {"query": "w" * 201}, "201 characters, at most 200"),
    ],
)
async def test_a_bad_call_is_a_message_for_the_model(name: str, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ToolFailure, match=said):
        await QaEnvironment(Corpus(LINES)).call_tool(TASK, name, arguments, NoSandbox())


@pytest.mark.parametrize(
    ("given", "score"),
    [
        ("rel_tol=1e-09", 1.0),
        ("1e-09", 1.0),
        ("rel_tol= 1e-9", 1.0),
        ("rel_tol=1e-08", 0.0),
        ("abs_tol=1e-09", 0.0),
        ("rel_tol=", 0.0),
        ("__import__('os')", 0.0),
    ],
)
def test_verdict(given: str, score: float) -> None:
    assert QaEnvironment(Corpus(LINES)).verify(TASK, given, []).score == score


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        ('"utf-8"', "'utf-8'", True),
        ("utf-8", "'utf-8'", False),
        ("1", "True", False),
        ("1.0", "1", False),
        ("0", "0", True),
        ("(" * 10_000, "0", False),
    ],
)
def test_same_value_minds_type_and_not_spelling(given: str, wanted: str, same: bool) -> None:
    assert same_value(given, wanted) is same


async def test_every_shipped_question_is_answered_by_its_own_search() -> None:
    corpus = shipped_corpus()
    assert len(corpus.questions) > 900
    for question in corpus.questions:
        (line,) = corpus.search(question.function)
        parameters = line.partition("(")[2][:-1].split(",")
        assert f"{question.parameter}={question.default}" in parameters
