"""Reads a run file (TOML) into a RunSpec: every unknown field and every bad value is refused by name.

Refuses to fill in defaults: that is done once, by `services.contract.run_spec`, where the run is created.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

from forgerl.common.v1 import run_pb2
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from services.kernel.errors import InvalidInput, NotFound

_INTEGERS = {
    FieldDescriptor.TYPE_UINT32: 2**32 - 1,
    FieldDescriptor.TYPE_UINT64: 2**64 - 1,
}


def read_run_file(path: str | Path) -> run_pb2.RunSpec:
    """The spec of a file. Raises NotFound or InvalidInput whose field is a path such as `scheduling.window_items`."""
    path = Path(path)
    try:
        # Not the terminal's encoding but TOML's own; some editors put a byte order mark first.
        written = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise NotFound(f"run file {path}: no such file") from None
    except OSError as error:
        raise NotFound(f"run file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(str(path), f"{error.reason} at byte {error.start}", "TOML in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(str(path), str(error), "TOML") from error
    spec = parse_spec(written)
    if spec.model.path:
        spec.model.path = str(find_model(spec.model.path, path.parent))
    return spec


def parse_spec(written: dict[str, Any]) -> run_pb2.RunSpec:
    """Tables and values into the message. Raises InvalidInput."""
    spec = run_pb2.RunSpec()
    _fill(spec, written, "")
    return spec


def _fill(message: Message, written: dict[str, Any], place: str) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in written.items():
        where = f"{place}{name}"
        if name not in fields:
            raise InvalidInput(where, "an unknown field", ", ".join(fields))
        field = fields[name]
        if field.message_type is None:
            setattr(message, name, _scalar(field, value, where))
        elif field.is_repeated:
            for index, entry in enumerate(_expect(list, value, where, "a list of tables")):
                _fill(getattr(message, name).add(), _expect(dict, entry, where, "tables"), f"{where}[{index}].")
        else:
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), _expect(dict, value, where, "a table"), f"{where}.")


def _expect(kind: type, value: Any, where: str, allowed: str) -> Any:
    if not isinstance(value, kind):
        raise InvalidInput(where, value, allowed)
    return value


def _scalar(field: Any, value: Any, where: str) -> Any:
    if field.enum_type is not None:
        return _enum(field.enum_type, value, where)
    if field.type in _INTEGERS:
        largest = _INTEGERS[field.type]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
            raise InvalidInput(where, value, f"a whole number from 0 to {largest}")
        return value
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(where, value, "a number")
        return float(value)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _expect(bool, value, where, "true or false")
    return _expect(str, value, where, "text, in quotes")


def _enum(kind: EnumDescriptor, value: Any, where: str) -> int:
    """Values are written in lower case without the enum's prefix: "rolling" for SCHEDULING_MODE_ROLLING."""
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    names = {entry.name.removeprefix(prefix).lower(): entry.number for entry in kind.values if entry.number}
    if value not in names:
        raise InvalidInput(where, value, ", ".join(names))
    return names[value]


def find_model(given: str, beside: Path) -> Path:
    """A model directory that can be trained and served, absolute; relative ones are looked for in the working folder,
    beside the run file and in the checkout. Raises InvalidInput.
    """
    places = (
        [Path(given).expanduser()]
        if Path(given).is_absolute()
        else [Path.cwd() / given, beside / given, _checkout() / given]
    )
    found = next((place.resolve() for place in places if _is_folder(place)), None)
    if found is None:
        raise InvalidInput("model.path", given, "a Hugging Face model directory; there's none of that name")
    for wanted in ("config.json", "tokenizer_config.json"):
        if not (found / wanted).is_file():
            raise InvalidInput("model.path", given, f"a Hugging Face model directory; {wanted} is missing in {found}")
    if not any(found.glob("*.safetensors")):
        raise InvalidInput("model.path", given, f"a model with *.safetensors; there are none in {found}")
    _fields_of(found / "config.json")
    if not _has_chat_template(found):
        raise InvalidInput(
            "model.path", given, f"a model whose tokenizer has a chat template; that of {found} has none"
        )
    return found


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError:  # a name that is too long for one
        return False


def _has_chat_template(model: Path) -> bool:
    if (model / "chat_template.jinja").is_file() or (model / "chat_template.json").is_file():
        return True
    return bool(_fields_of(model / "tokenizer_config.json").get("chat_template"))


def _fields_of(file: Path) -> dict[str, Any]:
    given, allowed = str(file.parent), f"a model whose {file.name} is a JSON object"
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("model.path", given, f"{allowed}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInput("model.path", given, f"{allowed}: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidInput("model.path", given, allowed)
    return fields


def _checkout() -> Path:
    return Path(__file__).resolve().parents[2]
