class ProgressHandler:
    def __init__(self, name):
        self.name = name
        self.enabled = True

    def set_registry(self, registry):
        self.registry = registry

    def update_handler(self, node_id, value, max_value, state, prompt_id, image=None):
        pass

    def reset(self):
        pass


class ProgressRegistry:
    def __init__(self, prompt_id, dynprompt):
        self.prompt_id, self.dynprompt = prompt_id, dynprompt
        self.nodes, self.handlers = {}, {}

    def register_handler(self, handler):
        self.handlers[handler.name] = handler

    def update_progress(self, node_id, value, max_value, image=None):
        self.nodes[node_id] = {"value": value, "max": max_value}
        for handler in self.handlers.values():
            handler.update_handler(node_id, value, max_value, self.nodes[node_id], self.prompt_id, image)


global_progress_registry = None


def reset_progress_state(prompt_id, dynprompt):
    global global_progress_registry
    global_progress_registry = ProgressRegistry(prompt_id, dynprompt)


def add_progress_handler(handler):
    handler.set_registry(get_progress_state())
    get_progress_state().register_handler(handler)


def get_progress_state():
    if global_progress_registry is None:
        reset_progress_state("", None)
    return global_progress_registry
