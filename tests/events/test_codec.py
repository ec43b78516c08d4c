"""Bodies as they are stored."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from prosa.events import codec


def test_threads_pack_and_unpack_at_once() -> None:
    bodies = [b"\x81" + os.urandom(200_000).hex().encode() for _ in range(8)]

    def there_and_back(number: int) -> bool:
        body = bodies[number % len(bodies)]
        return codec.unpack(codec.pack(body)) == body

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(there_and_back, range(200)))
