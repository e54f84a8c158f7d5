"""A name under which packs of older releases import; see `comfy_env.comfyui.serializers`."""

from comfy_env.comfyui.serializers import register_serializer

__all__ = ["register_serializer"]
