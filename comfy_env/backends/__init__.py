"""The backends that ship with comfy_env; each comes in through the entry-point group `comfy_env.backends`."""
