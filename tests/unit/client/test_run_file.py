"""Run files: what they become, and how a bad one is refused by name."""

from pathlib import Path

import pytest
from forgerl.common.v1 import run_pb2

from services.client.run_file import find_model, parse_spec, read_run_file
from services.contract.run_spec import check
from services.kernel.errors import InvalidInput, NotFound

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def model(folder: Path, **left_out: bool) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}" if left_out.get("template") else '{"chat_template": "{{ x }}"}')
    if not left_out.get("weights"):
        (folder / "model.safetensors").write_bytes(b"x")
    return folder


def test_a_run_file_becomes_a_spec(tmp_path):
    model(tmp_path / "m")
    file = tmp_path / "run.toml"
    file.write_text(
        'name = "x"\n[model]\npath = "m"\n[[domains]]\nname = "tool"\nweight = 2\n[scheduling]\nmode = "rolling"\n'
        'window_items = 3\n[training]\nloss = "cispo"\nlearning_rate = 1e-4\n[evaluation]\nat_end = false\n'
    )
    spec = read_run_file(file)
    assert spec.model.path == str(tmp_path / "m")
    assert [(domain.name, domain.weight) for domain in spec.domains] == [("tool", 2.0)]
    assert spec.scheduling.mode == run_pb2.SCHEDULING_MODE_ROLLING
    assert spec.scheduling.window_items == 3 and not spec.scheduling.HasField("queue_items")
    assert spec.training.loss == run_pb2.LOSS_KIND_CISPO and spec.training.learning_rate == 1e-4
    assert spec.evaluation.HasField("at_end") and not spec.evaluation.at_end


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"scheduling": {"windw": 1}}, "scheduling.windw: given 'an unknown field'; allowed mode, policy, group_size"),
        ({"scheduling": {"keep_steps": -1}}, "scheduling.keep_steps: given -1; allowed a whole number from 0 to"),
        ({"scheduling": {"window_items": -1}}, "scheduling.window_items: given -1; allowed a whole number from 0 to"),
        ({"scheduling": {"window_items": 1.5}}, "scheduling.window_items: given 1.5; allowed a whole number"),
        ({"scheduling": {"window_items": True}}, "scheduling.window_items: given True; allowed a whole number"),
        ({"scheduling": {"mode": "fast"}}, "scheduling.mode: given 'fast'; allowed rolling"),
        ({"sampling": {"temperature": "hot"}}, "sampling.temperature: given 'hot'; allowed a number"),
        ({"domains": {"name": "x"}}, "domains: given {'name': 'x'}; allowed a list of tables"),
        ({"domains": [{"nam": "x"}]}, "domains[0].nam: given 'an unknown field'; allowed name, environment"),
        ({"model": "x"}, "model: given 'x'; allowed a table"),
        ({"evaluation": {"at_start": 1}}, "evaluation.at_start: given 1; allowed true or false"),
    ],
)
def test_a_bad_field_is_named_with_what_was_given_and_what_is_allowed(written, says):
    with pytest.raises(InvalidInput) as raised:
        parse_spec(written)
    assert says in raised.value.message and "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ({"template": True}, "a model whose tokenizer has a chat template"),
        ({"weights": True}, "a model with *.safetensors"),
    ],
)
def test_a_model_that_can_not_be_used_is_refused(tmp_path, left_out, says):
    with pytest.raises(InvalidInput) as raised:
        find_model(str(model(tmp_path / "m", **left_out)), tmp_path)
    assert raised.value.message.startswith("model.path: given") and says in raised.value.message


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"model\.path: given 'nowhere'"):
        find_model("nowhere", tmp_path)
    with pytest.raises(NotFound, match=r"gone\.toml: no such file"):
        read_run_file(tmp_path / "gone.toml")
    (tmp_path / "bad.toml").write_text("= 1")
    with pytest.raises(InvalidInput, match=r"bad\.toml"):
        read_run_file(tmp_path / "bad.toml")


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_shipped_run_files_may_run(file):
    spec = read_run_file(file)
    assert check(spec, ["reasoning", "tool", "qa"], ["tool_loop", "openai_script"]) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b""])
def test_a_model_whose_settings_are_no_json_object_is_refused_before_anything_starts(tmp_path, name, content):
    folder = model(tmp_path / "m")
    (folder / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=f"model.path: given .*m'; allowed a model whose {name} is a JSON object"):
        find_model(str(folder), tmp_path)


def test_a_share_without_quotes_is_told_what_lacks():
    with pytest.raises(InvalidInput, match=r"scheduling\.window: given 0\.3; allowed text, in quotes"):
        parse_spec({"scheduling": {"window": 0.3}})
