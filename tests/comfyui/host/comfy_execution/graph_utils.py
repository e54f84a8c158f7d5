def is_link(value):
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], (int, float))


class ExecutionBlocker:
    def __init__(self, message):
        self.message = message


class GraphBuilder:
    """Builds a sub-graph whose node ids begin with what the running node and call give."""

    _root, _call, _graph = "", 0, 0

    def __init__(self, prefix=None):
        self.prefix = prefix or self.alloc_prefix()
        self.nodes = {}

    @classmethod
    def set_default_prefix(cls, prefix_root, call_index, graph_index=0):
        GraphBuilder._root, GraphBuilder._call, GraphBuilder._graph = prefix_root, call_index, graph_index

    @classmethod
    def alloc_prefix(cls):
        prefix = f"{GraphBuilder._root}.{GraphBuilder._call}.{GraphBuilder._graph}."
        GraphBuilder._graph += 1
        return prefix

    def node(self, class_type, id=None, **inputs):
        made = Node(self.prefix + (id or str(len(self.nodes) + 1)), class_type, inputs)
        self.nodes[made.id] = made
        return made

    def finalize(self):
        return {id: {"class_type": node.class_type, "inputs": node.inputs} for id, node in self.nodes.items()}


class Node:
    def __init__(self, id, class_type, inputs):
        self.id, self.class_type, self.inputs = id, class_type, inputs

    def out(self, index):
        return [self.id, index]
