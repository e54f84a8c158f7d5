import os
import sys


class LegacyFlat:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyFlat"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyFlat": LegacyFlat}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyFlat": "LegacyFlat of the older shape"}
