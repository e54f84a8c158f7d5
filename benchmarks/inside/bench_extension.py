"""The extension that pyisolate's driver loads: its type on the host's side, its body on the worker's."""

import work
from pyisolate import ExtensionBase


class Bench(ExtensionBase):
    async def run(self, name, arguments):
        return work.run(name, arguments)
