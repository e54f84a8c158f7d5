"""Nodes of the classic darkroom: load, bracket, tone, colour, smooth."""

import os

import numpy as np
import PIL
from PIL import Image, ImageOps

from . import smooth, tones
from .images import array, like, stamp

CATEGORY = "examples/classic"


class ClassicLoadPhoto:
    """Reads a picture file, upright, its longer side at most `longest` pixels."""

    CATEGORY = CATEGORY
    FUNCTION = "load"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"path": ("STRING", {"default": ""}), "longest": ("INT", {"default": 768, "min": 16, "max": 8192})}}

    @classmethod
    def IS_CHANGED(cls, path, longest):
        facts = os.stat(path)
        return "{}:{}".format(facts.st_mtime_ns, facts.st_size)

    def load(self, path, longest):
        with Image.open(path) as file:
            picture = ImageOps.exif_transpose(file).convert("RGB")
        picture.thumbnail((longest, longest), Image.Resampling.LANCZOS)
        return (like(np.asarray(picture, dtype=np.float32)[None] / 255),)


class ClassicBracket:
    """Gives the photo at several exposures, as a list."""

    CATEGORY = CATEGORY
    FUNCTION = "bracket"
    RETURN_TYPES = ("IMAGE",)
    OUTPUT_IS_LIST = (True,)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",), "stops": ("STRING", {"default": "-1.5, 0, 1.5"})}}

    def bracket(self, image, stops):
        pixels = array(image)
        return ([like(tones.exposed(pixels, float(one)), image) for one in stops.split(",")],)


class ClassicLocalContrast:
    """Equalises brightness tile by tile (CLAHE)."""

    CATEGORY = CATEGORY
    FUNCTION = "equalise"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",),
            "tiles": ("INT", {"default": 8, "min": 1, "max": 32}),
            "clip": ("FLOAT", {"default": 2.0, "min": 1.0, "max": 16.0}),
            "strength": ("FLOAT", {"default": 0.6, "min": 0.0, "max": 1.0}),
        }}

    def equalise(self, image, tiles, clip, strength):
        return (like(tones.local_contrast(array(image), tiles, clip, strength), image),)


class ClassicPalette:
    """Makes a picture that runs through a few colours, written as #rrggbb."""

    CATEGORY = CATEGORY
    FUNCTION = "paint"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"colours": ("STRING", {"default": "#1d3557, #457b9d, #f4a261, #ffe8c2"})}}

    def paint(self, colours):
        found = [[int(one.strip().lstrip("#")[at:at + 2], 16) / 255 for at in (0, 2, 4)] for one in colours.split(",")]
        return (like(tones.gradient(np.array(found), 64, 256)),)


class ClassicColourTransfer:
    """Gives a photo the colours of another picture, and keeps its light."""

    CATEGORY = CATEGORY
    FUNCTION = "transfer"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",), "palette": ("IMAGE",),
            "strength": ("FLOAT", {"default": 0.6, "min": 0.0, "max": 1.0}),
        }}

    def transfer(self, image, palette, strength):
        return (like(tones.recoloured(array(image), array(palette), strength), image),)


class ClassicToneCurve:
    """Bends the tones along a smooth curve through x:y points from 0 to 1."""

    CATEGORY = CATEGORY
    FUNCTION = "bend"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",), "points": ("STRING", {"default": "0:0, 0.25:0.2, 0.75:0.82, 1:1"})}}

    @classmethod
    def VALIDATE_INPUTS(cls, points):
        try:
            across = [x for x, _ in cls._read(points)]
        except ValueError:
            return "points are written x:y, x:y, … with numbers from 0 to 1"
        return True if len(across) > 1 and across == sorted(set(across)) else "each point must lie to the right of the one before"

    def bend(self, image, points):
        return (like(np.clip(tones.curve(self._read(points), array(image)), 0, 1), image),)

    @staticmethod
    def _read(points):
        pairs = [point.split(":") for point in points.split(",")]
        return [(float(x), float(y)) for x, y in pairs]


class ClassicSmooth:
    """Smooths surfaces and keeps edges (guided filter)."""

    CATEGORY = CATEGORY
    FUNCTION = "smooth"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {
            "image": ("IMAGE",),
            "radius": ("INT", {"default": 8, "min": 1, "max": 64}),
            "softness": ("FLOAT", {"default": 0.08, "min": 0.001, "max": 1.0}),
        }}

    def smooth(self, image, radius, softness):
        return (like(smooth.guided(array(image), radius, softness), image),)


class ClassicStamp:
    """Tells which Python and libraries this pack really runs on."""

    CATEGORY = CATEGORY
    FUNCTION = "tell"
    RETURN_TYPES = ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def tell(self):
        return ("classic: " + stamp(np, PIL),)


NODE_CLASS_MAPPINGS = {
    kind.__name__: kind
    for kind in (
        ClassicLoadPhoto, ClassicBracket, ClassicLocalContrast, ClassicPalette, ClassicColourTransfer, ClassicToneCurve,
        ClassicSmooth, ClassicStamp,
    )
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "ClassicLoadPhoto": "Load photo (classic)",
    "ClassicBracket": "Exposure bracket (classic)",
    "ClassicLocalContrast": "Local contrast (classic)",
    "ClassicPalette": "Palette (classic)",
    "ClassicColourTransfer": "Colour transfer (classic)",
    "ClassicToneCurve": "Tone curve (classic)",
    "ClassicSmooth": "Edge-preserving smooth (classic)",
    "ClassicStamp": "Library stamp (classic)",
}
