import os
import sys


class LegacyCuda:
    CATEGORY, FUNCTION, RETURN_TYPES = "legacy", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "LegacyCuda"})}}

    def run(self, text):
        return (f"{text} from {os.path.basename(sys.prefix)} {os.environ.get('LEGACY_VALUE', '-')} {os.getpid()}",)


NODE_CLASS_MAPPINGS = {"LegacyCuda": LegacyCuda}
NODE_DISPLAY_NAME_MAPPINGS = {"LegacyCuda": "LegacyCuda of the older shape"}
