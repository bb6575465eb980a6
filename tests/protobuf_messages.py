"""Message classes of Protocol Buffers for the tests. Needs penstock[registry]."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def order_message() -> Any:
    """A message class as protoc generates it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", package="test")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=9, label=1)
    order.field.add(name="amount", number=2, type=3, label=1)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    pool = descriptor_pool.Default()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Order"))
