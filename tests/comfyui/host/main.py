"""The prompt thread, and where progress bars lead."""

import gc

import comfy.model_management
import comfy.utils
import execution
from comfy_execution.progress import get_progress_state
from comfy_execution.utils import get_executing_context


def hijack_progress(server_instance):
    def hook(value, total, preview_image, prompt_id=None, node_id=None):
        context = get_executing_context()
        prompt_id = prompt_id or (context.prompt_id if context else server_instance.last_prompt_id)
        node_id = node_id or (context.node_id if context else server_instance.last_node_id)
        comfy.model_management.throw_exception_if_processing_interrupted()
        get_progress_state().update_progress(node_id, value, total, preview_image)
        told = {"value": value, "max": total, "prompt_id": prompt_id, "node": node_id}
        server_instance.send_sync("progress", told, server_instance.client_id)

    comfy.utils.set_progress_bar_global_hook(hook)


def prompt_worker(q, server_instance):
    executor = execution.PromptExecutor(server_instance)
    while True:
        item = q.get(timeout=1000)
        if item is not None:
            (_, prompt_id, prompt, extra, ends, *_), item_id = item
            server_instance.last_prompt_id = prompt_id
            executor.execute(prompt, prompt_id, extra, ends)
            status = "success" if executor.success else "error"
            q.task_done(item_id, executor.history_result, {"status_str": status, "messages": executor.status_messages})
            server_instance.send_sync("executing", {"node": None, "prompt_id": prompt_id}, server_instance.client_id)
        flags = q.get_flags()
        if flags.get("unload_models", flags.get("free_memory", False)):
            comfy.model_management.unload_all_models()
        if flags.get("free_memory", False):
            executor.reset()
            gc.collect()
