"""Both ends of the codec in one process: a host's and a worker's."""

from __future__ import annotations

import sys
from typing import Any

from comfy_env.transport.codec import HostCodec
from comfy_env.worker.codec import GuestSide
from comfy_env.worker.resident import Resident
from comfy_env.worker.wire.payload import Codec


class Ends:
    """A host's codec and its worker's, without a lane between them."""

    def __init__(self, hello: dict[str, Any] | None = None) -> None:
        self.resident = Resident()
        self.host = HostCodec("here", 1, hello or {"cache_tag": sys.implementation.cache_tag, "python": "3"})
        self.guest = Codec(GuestSide(self.resident, None))

    def to_worker(self, value: Any) -> Any:
        return self.guest.decode(*self.host.encode(value))

    def to_host(self, value: Any) -> Any:
        payload, buffers = self.guest.encode(value)
        return self.host.decode(payload, [memoryview(bytearray(b)) for b in buffers])

    def there_and_back(self, value: Any) -> Any:
        return self.to_host(self.to_worker(value))
