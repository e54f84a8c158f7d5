import argparse
import enum
import sys

import comfy.options


class LatentPreviewMethod(enum.Enum):
    NoPreviews = "none"
    Auto = "auto"


class PerformanceFeature(enum.Enum):
    Fp16Accumulation = "fp16_accumulation"


parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--base-directory")
parser.add_argument("--preview-method", type=LatentPreviewMethod, default=LatentPreviewMethod.NoPreviews)
parser.add_argument("--preview-size", type=int, default=512)
parser.add_argument("--deterministic", action="store_true")
parser.add_argument("--fast", action="store_true")
parser.add_argument("--port", type=int, default=8188)
parser.add_argument("--disable-api-nodes", action="store_true")
parser.add_argument("--disable-all-custom-nodes", action="store_true")
args, _ = parser.parse_known_args(sys.argv[1:] if comfy.options.args_parsing else [])
args.fast = {PerformanceFeature.Fp16Accumulation} if args.fast else set()
