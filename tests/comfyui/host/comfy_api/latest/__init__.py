from comfy_execution.progress import get_progress_state
from comfy_execution.utils import get_executing_context

from comfy_api.latest import _io as io


class ComfyExtension:
    async def get_node_list(self):
        raise NotImplementedError


class ComfyAPI:
    class Execution:
        async def set_progress(self, value, max_value, node_id=None, preview_image=None):
            node_id = node_id or get_executing_context().node_id
            get_progress_state().update_progress(node_id, value, max_value, preview_image)


__all__ = ["ComfyAPI", "ComfyExtension", "io"]
