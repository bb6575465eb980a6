"""The native CRC-32 equals that of zlib."""

from __future__ import annotations

import random
import zlib

import pytest

from penstock.log.embedded.checksums import data_checksum
from penstock.native import core

pytestmark = pytest.mark.skipif(core is None, reason="the extension is not in use")


def test_checksum_of_every_size_equals_that_of_zlib() -> None:
    assert core is not None
    rng = random.Random(1)
    for size in [*range(600), 1000, 4095, 4096, 100_003]:
        data = rng.randbytes(size + 7)
        begin = rng.randrange(8)
        part = memoryview(data)[begin : begin + size]
        start = rng.getrandbits(32)
        assert core.crc32(part, start) == zlib.crc32(part, start)
        assert core.crc32(bytes(size), start) == zlib.crc32(bytes(size), start)


def test_checksum_of_data_is_that_of_zlib() -> None:
    data = bytes(range(256)) * 40
    assert data_checksum(data, 3) == zlib.crc32(data, 3)
