import os
import sys


class LegacyWhole:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyWhole"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyWhole": LegacyWhole}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyWhole": "LegacyWhole of the older shape"}
