import os
import sys


class LegacyPlain:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyPlain"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyPlain": LegacyPlain}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyPlain": "LegacyPlain of the older shape"}
