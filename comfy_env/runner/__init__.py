"""A small headless host: runs API-format workflows over node packs without ComfyUI."""

from comfy_env.runner.problems import (
    BadLink,
    LinkCycle,
    MissingInput,
    NodeFailed,
    NoOutput,
    NotAWorkflow,
    UnknownClass,
    WorkflowError,
    WorkflowRefused,
    WrongType,
    WrongValue,
)
from comfy_env.runner.report import Report, Row
from comfy_env.runner.runner import Runner
from comfy_env.runner.watch import Silence, Watcher
from comfy_env.runner.workflow import Workflow

__all__ = [
    "BadLink", "LinkCycle", "MissingInput", "NoOutput", "NodeFailed", "NotAWorkflow", "Report", "Row", "Runner",
    "Silence", "UnknownClass", "Watcher", "Workflow", "WorkflowError", "WorkflowRefused", "WrongType", "WrongValue",
]
