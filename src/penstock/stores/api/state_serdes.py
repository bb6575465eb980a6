"""`StateSerdes`: the serdes of a custom store."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock.serdes.builtin import Serde, Serdes

K = TypeVar("K")
V = TypeVar("V")


class StateSerdes(Generic[K, V]):
    """Converts the keys and values of a custom store to bytes and back.

    The serdes are bound to the changelog topic of the store. None stays None.

    Args:
        topic: The changelog topic of the store: `context.changelog_topic(name)`.
        key_serde: The serde of the keys.
        value_serde: The serde of the values.

    Kafka: StateSerdes
    """

    def __init__(self, topic: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        if topic is None or key_serde is None or value_serde is None:
            raise TypeError("StateSerdes needs a topic, a key serde and a value serde.")
        self.topic = topic
        self.key_serde = key_serde.for_topic(topic, True)
        self.value_serde = value_serde.for_topic(topic, False)

    @staticmethod
    def with_builtin_types(topic: str, key: type, value: type) -> StateSerdes[Any, Any]:
        """Return the serdes for Python types.

        Args:
            topic: The changelog topic of the store.
            key: `str`, `int`, `float`, `bool`, `bytes` or `uuid.UUID`.
            value: The same.

        Raises:
            TypeError: There is no serde for the type.

        Kafka: StateSerdes#withBuiltinTypes
        """
        return StateSerdes(topic, Serdes.of(key), Serdes.of(value))

    def raw_key(self, key: K | None) -> bytes | None:
        """Serialize a key.

        Args:
            key: The key; None stays None.

        Returns:
            The bytes; None for None.

        Kafka: StateSerdes#rawKey
        """
        return None if key is None else self.key_serde.serialize(key)

    def key_from(self, data: bytes | None) -> K | None:
        """Deserialize a key.

        Args:
            data: The serialized form; None stays None.

        Returns:
            The key; None for None.

        Kafka: StateSerdes#keyFrom
        """
        return None if data is None else self.key_serde.deserialize(data)

    def raw_value(self, value: V | None) -> bytes | None:
        """Serialize a value.

        Args:
            value: The value; None stays None.

        Returns:
            The bytes; None for None.

        Kafka: StateSerdes#rawValue
        """
        return None if value is None else self.value_serde.serialize(value)

    def value_from(self, data: bytes | None) -> V | None:
        """Deserialize a value.

        Args:
            data: The serialized form; None stays None.

        Returns:
            The value; None for None.

        Kafka: StateSerdes#valueFrom
        """
        return None if data is None else self.value_serde.deserialize(data)
