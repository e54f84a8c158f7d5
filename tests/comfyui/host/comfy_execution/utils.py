import contextvars
from typing import NamedTuple


class ExecutionContext(NamedTuple):
    prompt_id: str
    node_id: str
    list_index: int | None


_current = contextvars.ContextVar("context", default=None)


def get_executing_context():
    return _current.get()


class CurrentNodeContext:
    def __init__(self, prompt_id, node_id, list_index=None):
        self.context = ExecutionContext(prompt_id, node_id, list_index)

    def __enter__(self):
        self.token = _current.set(self.context)
        return self

    def __exit__(self, *exc):
        _current.reset(self.token)
