"""Which message travels on which topic, by the `event` option; refuses a topic with two keys or two manners."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType

from forgerl.options.v1 import options_pb2
from google.protobuf.message import Message

from services.kernel import envelope
from services.kernel.errors import Permanent


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: `key` names the field that keys its records; a lossy one carries signals, without store or inbox."""

    name: str
    key: str
    lossy: bool
    type_names: tuple[str, ...]

    @property
    def noun(self) -> str:
        """The name without prefix and version: what its streams begin with."""
        return self.name.removeprefix("forgerl.").removesuffix(".v1")


class Catalogue:
    """All published events that this process knows."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self._by_type = {name: topic for topic in self._topics.values() for name in topic.type_names}

    @classmethod
    def from_modules(cls, modules: Iterable[ModuleType]) -> "Catalogue":
        """Read the options of every message in generated modules. Raises Permanent on a contradiction."""
        found: dict[str, Topic] = {}
        for module in modules:
            for descriptor in module.DESCRIPTOR.message_types_by_name.values():
                option = descriptor.GetOptions().Extensions[options_pb2.event]
                if not option.topic:
                    continue
                known = found.get(option.topic, Topic(option.topic, option.key, option.lossy, ()))
                same = (known.key, known.lossy) == (option.key, option.lossy)
                if not same or option.key not in descriptor.fields_by_name:
                    raise Permanent(f"{descriptor.full_name}: key or lossy contradicts topic {option.topic}")
                found[option.topic] = replace(known, type_names=(*known.type_names, descriptor.full_name))
        return cls(found.values())

    def topic_of(self, kind: type[Message] | str) -> str | None:
        """Topic of a message class or full name; None for what is never published."""
        topic = self._by_type.get(kind if isinstance(kind, str) else envelope.type_name(kind))
        return topic.name if topic else None

    def stream_of(self, message: Message) -> str:
        """The published stream that a message belongs to. Raises Permanent for a private message or an empty key."""
        topic = self._by_type.get(envelope.type_name(message))
        if topic is None:
            raise Permanent(f"{envelope.type_name(message)} is not a published event")
        key = getattr(message, topic.key)
        if not key:
            raise Permanent(f"{envelope.type_name(message)}: {topic.key} is empty")
        return f"{topic.noun}/{key}"

    def is_lossy(self, topic: str) -> bool:
        """Whether a topic carries signals only."""
        return topic in self._topics and self._topics[topic].lossy

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]
