import os
import sys


class LegacyRooted:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyRooted"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyRooted": LegacyRooted}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyRooted": "LegacyRooted of the older shape"}
