"""The driver of the lifecycle machine: every thread and lock of the package lives here."""

from comfy_env.pool.pool import WorkerPool
from comfy_env.pool.views import Record
from comfy_env.transport.coded import register as register_codec

__all__ = ["Record", "WorkerPool", "register_codec"]
