from comfy_execution.graph_utils import ExecutionBlocker, is_link  # noqa: F401


class DynamicPrompt:
    """A prompt with the nodes that were added to it while it ran."""

    def __init__(self, original_prompt):
        self.original_prompt = original_prompt
        self.added = {}
        self.parents = {}

    def get_node(self, id):
        return self.added[id] if id in self.added else self.original_prompt[id]

    def has_node(self, id):
        return id in self.added or id in self.original_prompt

    def add_ephemeral_node(self, id, info, parent_id, display_id):
        self.added[id] = info
        self.parents[id] = parent_id

    def get_real_node_id(self, id):
        while id in self.parents:
            id = self.parents[id]
        return id

    get_display_node_id = get_real_node_id

    def get_parent_node_id(self, id):
        return self.parents.get(id)

    def all_node_ids(self):
        return {*self.original_prompt, *self.added}

    def get_original_prompt(self):
        return self.original_prompt
