"""The limit: the same functions in the host itself, and a bare interpreter where a start is asked for."""

import subprocess
import sys

import work
from driving import Driver


class Peer(Driver):
    cannot = {"shared": "no second process", "replace": "no second process", "uss": "no second process", "import": "nothing to import"}

    def __init__(self):
        self.started = False

    def start(self, number=0):
        self.started = True

    def call(self, function, number=0, **arguments):
        return work.run(function, arguments)

    def cold(self, function):
        """Start a bare interpreter that does no more than what the row needs."""
        program = "import torch" if function == "torch_ready" else "pass"
        subprocess.run([sys.executable, "-c", program], check=True)

    def stop(self):
        """End nothing: no process was started."""
