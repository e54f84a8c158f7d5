import os
import sys


class LegacyPartsHere:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyPartsHere"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyPartsHere": LegacyPartsHere}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyPartsHere": "LegacyPartsHere of the older shape"}
