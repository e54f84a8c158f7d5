"""Nodes of the modern studio: measure, fuse, draw, blend, arrange, save."""

import os
import sys

import numpy as np
import PIL

from . import drawing, fusion, sheet
from .images import array, like, luma, stamp

try:
    from comfy.utils import ProgressBar
except ImportError:

    class ProgressBar:
        """Stands in where nobody listens."""

        def __init__(self, total):
            self.total = total

        def update_absolute(self, value):
            """Nobody is told."""


CATEGORY = "examples/modern"


class ModernMeter:
    """Counts the frames it has seen and averages their brightness over all its calls; passes the frame on."""

    CATEGORY = CATEGORY
    FUNCTION = "measure"
    RETURN_TYPES = ("IMAGE", "STRING")
    RETURN_NAMES = ("image", "reading")

    def __init__(self):
        self.frames = 0
        self.light = 0.0

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",)}}

    def measure(self, image):
        here = float(luma(array(image)).mean())
        self.frames += 1
        self.light += here
        return image, "frame {}: {:.3f}, average {:.3f}".format(self.frames, here, self.light / self.frames)


class ModernFusion:
    """Fuses a list of exposures into one picture."""

    CATEGORY = CATEGORY
    FUNCTION = "fuse"
    RETURN_TYPES = ("IMAGE",)
    INPUT_IS_LIST = True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"images": ("IMAGE",)}}

    def fuse(self, images):
        return (like(fusion.fused([array(image)[..., :3] for image in images]), images[0]),)


class ModernDiffusion:
    """Flattens surfaces and keeps edges, round by round (Perona and Malik)."""

    CATEGORY = CATEGORY
    FUNCTION = "diffuse"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",),
            "rounds": ("INT", {"default": 120, "min": 1, "max": 2000}),
            "edge": ("FLOAT", {"default": 0.05, "min": 0.001, "max": 1.0}),
        }}

    def diffuse(self, image, rounds, edge):
        bar = ProgressBar(rounds)
        return (like(drawing.diffused(array(image)[..., :3], rounds, edge, bar.update_absolute), image),)


class ModernInk:
    """Finds the lines a pen would draw."""

    CATEGORY = CATEGORY
    FUNCTION = "trace"
    RETURN_TYPES = ("MASK",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",),
            "width": ("FLOAT", {"default": 1.0, "min": 0.3, "max": 8.0}),
            "darkness": ("FLOAT", {"default": 0.25, "min": 0.0, "max": 1.0}),
            "sharpness": ("FLOAT", {"default": 6.0, "min": 0.1, "max": 50.0}),
        }}

    def trace(self, image, width, darkness, sharpness):
        return (like(drawing.ink(array(image), width, darkness, sharpness), image),)


class ModernInkOver:
    """Draws a mask onto a picture in one colour, given as brightness."""

    CATEGORY = CATEGORY
    FUNCTION = "draw"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",), "lines": ("MASK",),
            "tone": ("FLOAT", {"default": 0.06, "min": 0.0, "max": 1.0}),
            "strength": ("FLOAT", {"default": 0.85, "min": 0.0, "max": 1.0}),
        }}

    def draw(self, image, lines, tone, strength):
        pixels = array(image)
        return (like(drawing.over(pixels, np.full_like(pixels, tone), array(lines) * strength), image),)


class ModernSpot:
    """Makes a soft round mask over a picture of the given image's size."""

    CATEGORY = CATEGORY
    FUNCTION = "light"
    RETURN_TYPES = ("MASK",)

    @classmethod
    def INPUT_TYPES(cls):
        share = {"min": 0.0, "max": 1.0}
        return {"required": {
            "image": ("IMAGE",),
            "across": ("FLOAT", {"default": 0.5, **share}),
            "down": ("FLOAT", {"default": 0.5, **share}),
            "radius": ("FLOAT", {"default": 0.3, "min": 0.01, "max": 2.0}),
            "softness": ("FLOAT", {"default": 0.5, "min": 0.01, "max": 1.0}),
        }}

    def light(self, image, across, down, radius, softness):
        return (like(drawing.spot(array(image).shape[1:3], across, down, radius, softness), image),)


class ModernComposite:
    """Lays one picture over another where a mask is white."""

    CATEGORY = CATEGORY
    FUNCTION = "compose"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"background": ("IMAGE",), "foreground": ("IMAGE",), "mask": ("MASK",)}}

    def compose(self, background, foreground, mask):
        return (like(drawing.over(array(background), array(foreground), array(mask)), background),)


class ModernUnsharp:
    """Sharpens (unsharp mask with a threshold)."""

    CATEGORY = CATEGORY
    FUNCTION = "sharpen"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",),
            "radius": ("FLOAT", {"default": 1.2, "min": 0.3, "max": 20.0}),
            "amount": ("FLOAT", {"default": 0.6, "min": 0.0, "max": 5.0}),
            "threshold": ("FLOAT", {"default": 0.01, "min": 0.0, "max": 1.0}),
        }}

    def sharpen(self, image, radius, amount, threshold):
        return (like(drawing.unsharp(array(image), radius, amount, threshold), image),)


class ModernStamp:
    """Tells which Python and libraries this pack really runs on."""

    CATEGORY = CATEGORY
    FUNCTION = "tell"
    RETURN_TYPES = ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def tell(self):
        return ("modern: " + stamp(np, PIL),)


class ModernSheet:
    """Arranges up to four pictures in a grid with captions (one line each) and footers."""

    CATEGORY = CATEGORY
    FUNCTION = "arrange"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        picture, text = ("IMAGE",), ("STRING", {"default": "", "multiline": True})
        return {
            "required": {"first": picture, "captions": text, "columns": ("INT", {"default": 2, "min": 1, "max": 4})},
            "optional": {"second": picture, "third": picture, "fourth": picture, "footer": text, "more_footer": text},
        }

    def arrange(self, first, captions, columns, second=None, third=None, fourth=None, footer="", more_footer=""):
        panels = [one for image in (first, second, third, fourth) if image is not None for one in sheet.pictures(array(image))]
        picture = sheet.arranged(panels, captions.splitlines(), "\n".join([footer, more_footer]), columns)
        return (like(np.asarray(picture, dtype=np.float32)[None] / 255, first),)


class ModernSave:
    """Writes pictures as PNG files, never over an older one."""

    CATEGORY = CATEGORY
    FUNCTION = "save"
    RETURN_TYPES = ("STRING",)
    RETURN_NAMES = ("path",)
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",),
            "folder": ("STRING", {"default": "", "tooltip": "empty: ComfyUI's output folder, else the current one"}),
            "name": ("STRING", {"default": "picture"}),
        }}

    def save(self, image, folder, name):
        paths_of_comfyui = sys.modules.get("folder_paths")
        base = paths_of_comfyui.get_output_directory() if paths_of_comfyui else os.getcwd()
        folder = os.path.join(base, folder)
        written = []
        for picture in sheet.pictures(array(image)):
            written.append(sheet.free_name(folder, name))
            picture.save(written[-1], compress_level=4)
        shown = [{"filename": os.path.basename(path), "subfolder": os.path.relpath(folder, base), "type": "output"} for path in written]
        return {"ui": {"images": shown}, "result": (written[-1],)}


NODE_CLASS_MAPPINGS = {
    kind.__name__: kind
    for kind in (
        ModernMeter, ModernFusion, ModernDiffusion, ModernInk, ModernInkOver, ModernSpot, ModernComposite, ModernUnsharp,
        ModernStamp, ModernSheet, ModernSave,
    )
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "ModernMeter": "Light meter (modern)",
    "ModernFusion": "Exposure fusion (modern)",
    "ModernDiffusion": "Diffusion (modern)",
    "ModernInk": "Ink lines (modern)",
    "ModernInkOver": "Draw lines (modern)",
    "ModernSpot": "Spot mask (modern)",
    "ModernComposite": "Composite (modern)",
    "ModernUnsharp": "Unsharp mask (modern)",
    "ModernStamp": "Library stamp (modern)",
    "ModernSheet": "Contact sheet (modern)",
    "ModernSave": "Save picture (modern)",
}
