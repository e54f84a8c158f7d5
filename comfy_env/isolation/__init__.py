"""A name under which packs of older releases import; see `comfy_env.comfyui.serializers`."""
