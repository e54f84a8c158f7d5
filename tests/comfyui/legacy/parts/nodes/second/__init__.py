import os
import sys


class LegacyPartsSecond:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyPartsSecond"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyPartsSecond": LegacyPartsSecond}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyPartsSecond": "LegacyPartsSecond of the older shape"}
