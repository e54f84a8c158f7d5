"""`comfy.utils` for a worker without ComfyUI: the progress bar."""

import contextlib

from ..callback import NoHost, report_progress
from .missing import missing


class ProgressBar:
    """Reports a node's progress to the host; built, updated and read the way ComfyUI's own is."""

    def __init__(self, total, node_id=None):
        self.total = total
        self.current = 0
        self.node_id = node_id

    def update_absolute(self, value, total=None, preview=None):
        """Set the progress to `value` (at most the total); a `total` given replaces the old one."""
        if total is not None:
            self.total = total
        self.current = min(value, self.total)
        with contextlib.suppress(NoHost):  # outside a call nobody watches, as in a ComfyUI without a hook
            report_progress(self.current, self.total, node=self.node_id or "", preview=preview)

    def update(self, value):
        """Add `value` to the progress."""
        self.update_absolute(self.current + value)


def __getattr__(name):
    raise missing("comfy.utils", name)
