"""What can be wrong with a workflow or with one of its nodes; each error names the node it is about.

::

    WorkflowError
    ├── NotAWorkflow      the file is not an API-format workflow
    ├── UnknownClass      no pack offers the node's class
    ├── MissingInput      a required input has neither a value nor a link
    ├── BadLink           a link that leads nowhere
    ├── LinkCycle         the links lead in a circle
    ├── WrongType         a link or a value of another type than the input's
    ├── WrongValue        a value out of its range, not among its choices, or refused by the pack
    ├── NoOutput          nothing in the workflow is an output node
    ├── WorkflowRefused   the sum of those: `problems` holds each
    └── NodeFailed        the node ran and failed; `__cause__` says how
"""

from __future__ import annotations

from collections.abc import Sequence

from comfy_env.errors import ComfyEnvError


class WorkflowError(ComfyEnvError, ValueError):
    """Something about a workflow is wrong. ``node_id`` and ``class_type`` name the node, ``input`` the input ('' for none)."""

    def __init__(self, message: str, *, node_id: str = "", class_type: str = "", input: str = "", env: str = "", hint: str = "") -> None:
        super().__init__(message, env=env, hint=hint)
        self.node_id = node_id
        self.class_type = class_type
        self.input = input

    def _headline(self) -> str:
        where = f"node {self.node_id}" if self.node_id else "workflow"
        kind = f" ({self.class_type})" if self.class_type else ""
        name = f", input {self.input!r}" if self.input else ""
        return f"{where}{kind}{name}: {super()._headline()}"


class NotAWorkflow(WorkflowError):
    """The document is not an API-format workflow."""


class UnknownClass(WorkflowError):
    """No pack offers the node's class."""


class MissingInput(WorkflowError):
    """A required input has neither a value nor a link."""


class BadLink(WorkflowError):
    """A link that leads nowhere."""


class LinkCycle(WorkflowError):
    """The links lead in a circle. ``cycle`` lists the node ids, the first again at the end."""

    cycle: tuple[str, ...] = ()


class WrongType(WorkflowError):
    """A link or a value has another type than its input."""


class WrongValue(WorkflowError):
    """A value is out of range, not among the choices, or refused by the pack."""


class NoOutput(WorkflowError):
    """Nothing in the workflow is an output node, so there is nothing to run."""


class NodeFailed(WorkflowError):
    """A node ran and failed; ``__cause__`` is the error it failed with."""

    @classmethod
    def of(cls, cause: ComfyEnvError, *, node_id: str, class_type: str, env: str) -> NodeFailed:
        """Return the failure of a node by `cause`, which keeps its facts."""
        error = cls(cause.message, node_id=node_id, class_type=class_type, input=getattr(cause, "input", ""), env=cause.env or env)
        error.pid, error.generation, error.status = cause.pid, cause.generation, cause.status
        error.__cause__ = cause
        return error

    def _sections(self) -> list[str]:
        return self.__cause__._sections() if isinstance(self.__cause__, ComfyEnvError) else super()._sections()


class WorkflowRefused(WorkflowError):
    """The workflow cannot be run; ``problems`` holds every reason found."""

    def __init__(self, problems: Sequence[WorkflowError]) -> None:
        first = problems[0]
        super().__init__(first.message, node_id=first.node_id, class_type=first.class_type, input=first.input)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"the workflow cannot be run: {count} problem{'s' if count > 1 else ''}"
        return "\n".join([head, *(f"- {problem}" for problem in self.problems)])
