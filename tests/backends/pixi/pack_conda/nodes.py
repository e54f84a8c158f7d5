"""Nodes that run in a conda environment."""

import os
import sys


class CondaStamp:
    """Says where it runs, in the words of a package of the environment."""

    FUNCTION, RETURN_TYPES, CATEGORY = "run", ("STRING",), "conda"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def run(self):
        import greeting  # here only: the host has no such package

        return (f"{greeting.WORD} from {sys.prefix}",)


class CondaVariables:
    """Gives what activating the environment set, as an output."""

    FUNCTION, RETURN_TYPES, CATEGORY, OUTPUT_NODE = "run", ("STRING",), "conda", True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"names": ("STRING",)}}

    def run(self, names):
        said = ";".join(os.environ.get(name, "") for name in names.split(","))
        return {"ui": {"text": [said]}, "result": (said,)}


NODE_CLASS_MAPPINGS = {"CondaStamp": CondaStamp, "CondaVariables": CondaVariables}
