import os
import sys


class LegacyPartsFirst:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyPartsFirst"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyPartsFirst": LegacyPartsFirst}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyPartsFirst": "LegacyPartsFirst of the older shape"}
