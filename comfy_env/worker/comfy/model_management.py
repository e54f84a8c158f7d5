"""`comfy.model_management` for a worker without ComfyUI: interruption, and the one device there is."""

from ..callback import CallInterrupted, interrupted
from .missing import missing


class InterruptProcessingException(CallInterrupted):
    """Somebody asked for the running call to stop."""


def processing_interrupted():
    """Say whether the running call is to stop."""
    return interrupted()


def throw_exception_if_processing_interrupted():
    """Raise InterruptProcessingException if the running call is to stop."""
    if interrupted():
        raise InterruptProcessingException()


def get_torch_device():
    """Return the name of the device: there is only the CPU."""
    return "cpu"


def intermediate_device():
    """Return the name of the device results are kept on."""
    return "cpu"


def __getattr__(name):
    raise missing("comfy.model_management", name)
