"""What can keep the demo from running."""

from comfy_env import ComfyEnvError


class DemoTrouble(ComfyEnvError):
    """The demo cannot go on; the hint says what to do."""
