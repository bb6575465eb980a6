"""A plan as text: the form in which it travels beside a job to the workers.

Plain dataclasses and tuples as msgpack, made smaller when there is much of it, in letters that a
Java property may hold. A plan never outlives its batch, so the form has no version.
"""

from __future__ import annotations

import base64
import zlib

import msgspec

from penstock.engine.plan.batch_plan import BatchPlan

#: Smaller plans are not worth the time to compress them.
_COMPRESSED_FROM = 16 * 1024
_PLAIN, _COMPRESSED = "p", "z"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BatchPlan).decode


def encode_plan(plan: BatchPlan) -> str:
    """The plan as ASCII text."""
    data = _encode(plan)
    form = _PLAIN
    if len(data) >= _COMPRESSED_FROM:
        data, form = zlib.compress(data, 1), _COMPRESSED
    return form + base64.b64encode(data).decode("ascii")


def decode_plan(text: str) -> BatchPlan:
    """The plan that `encode_plan` was given."""
    data = base64.b64decode(text[1:])
    if text[0] == _COMPRESSED:
        data = zlib.decompress(data)
    return _decode(data)
