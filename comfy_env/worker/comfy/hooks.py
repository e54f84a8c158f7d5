"""What is changed in ComfyUI's own modules after they were imported in a worker: progress and interrupts lead to the host."""

from __future__ import annotations

from typing import Any

from .. import callback
from . import census, files, where
from .outbox import outbox


def report_bar(value: Any, total: Any, node: str = "", preview: Any = None) -> None:
    """Tell the host how far a ProgressBar is."""
    outbox.progress("bar", where.here(node or None), value, total, preview)


def utils(module: Any) -> None:
    """Have every ProgressBar report to the host."""

    def report(value: Any, total: Any, preview: Any = None, node_id: Any = None, **more: Any) -> None:
        report_bar(value, total, node_id or "", preview)

    module.set_progress_bar_global_hook(report)


def progress(module: Any) -> None:
    """Have the registry of `comfy_execution.progress` tell the host, whatever handlers a pack adds."""

    class Forward(module.ProgressHandler):
        def __init__(self) -> None:
            super().__init__("comfy_env")

        def update_handler(self, node_id: Any, value: Any, max_value: Any, state: Any, prompt_id: Any, image: Any = None) -> None:
            outbox.progress("state", where.here(node_id), value, max_value, image)

    class Nowhere:
        """The graph is the host's; a node here is displayed as itself."""

        get_display_node_id = get_real_node_id = staticmethod(lambda node_id: node_id)
        get_parent_node_id = staticmethod(lambda node_id: None)

    module.reset_progress_state("", Nowhere())
    module.add_progress_handler(Forward())


def model_management(module: Any) -> None:
    """Have packs that poll for an interrupt see the host's."""

    def processing_interrupted() -> bool:
        return callback.interrupted()

    def throw_exception_if_processing_interrupted() -> None:
        if callback.interrupted():
            raise module.InterruptProcessingException()

    module.processing_interrupted = processing_interrupted
    module.throw_exception_if_processing_interrupted = throw_exception_if_processing_interrupted
    census.watch_loading(module)


def folder_paths(module: Any) -> None:
    """Have lists of file names remember their folder."""
    files.remember(module)


CHANGES = {
    "torch.nn.modules.module": census.watch_modules,
    "comfy.utils": utils,
    "comfy.model_management": model_management,
    "comfy_execution.progress": progress,
    "folder_paths": folder_paths,
}
