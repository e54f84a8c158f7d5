"""pyisolate without its sandbox: coupled to the host's torch as its own pages advise, sealed where no torch is wanted."""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import pyisolate
from bench_extension import Bench
from driving import FOLDER, Driver

logging.disable(logging.WARNING)


class Peer(Driver):
    name = "pyisolate"

    def __init__(self):
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.extensions = {}
        self.sealed = False
        self.manager = pyisolate.ExtensionManager(Bench, {"venv_root_path": os.environ.get("BENCH_PYISOLATE_ENVS", "pyisolate-envs")})

    def start(self, number=0):
        name = f"bench{'sealed' if self.sealed else number}"
        self.manager.extensions.pop(name, None)
        config = {
            "name": name, "module_path": self._module(), "isolated": True, "dependencies": [], "apis": [],
            "share_torch": not self.sealed, "share_cuda_ipc": False, "sandbox_mode": "disabled",
            **({"execution_model": "sealed_worker"} if self.sealed else {}),
        }
        self.extensions[number] = self.manager.load_extension(config)

    def _module(self):
        """Return a folder with the extension; a sealed worker sees nothing else of the host's."""
        folder = Path(tempfile.mkdtemp(prefix="bench-pyisolate-", dir=os.environ.get("BENCH_FOLDER")))
        for name in ("work.py", "bench_extension.py"):
            shutil.copy(os.path.join(FOLDER, name), folder)
        (folder / "__init__.py").write_text("")
        return str(folder)

    def call(self, function, number=0, **arguments):
        loop = self.loop if threading.current_thread() is threading.main_thread() else asyncio.new_event_loop()
        return loop.run_until_complete(self.extensions[number].run(function, arguments))

    def lost(self, number=0):
        """Stop what is left of the extension and load it again: it is not replaced by itself."""
        self.extensions[number].stop()
        self.start(number)

    def stop(self):
        self.manager.stop_all_extensions()
