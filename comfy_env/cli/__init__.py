"""The comfy-env command: a thin face over the pool, the backends and the runner; decides nothing by itself."""

from comfy_env.cli.app import main

__all__ = ["main"]
