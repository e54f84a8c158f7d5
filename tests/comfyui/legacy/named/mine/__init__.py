import os
import sys


class LegacyNamed:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyNamed"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyNamed": LegacyNamed}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyNamed": "LegacyNamed of the older shape"}
