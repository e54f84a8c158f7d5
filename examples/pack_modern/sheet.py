"""Puts pictures side by side with captions, and writes the sheet."""

import os

import numpy as np
from PIL import Image, ImageDraw, ImageFont

MARGIN, CAPTION = 14, 30
PAPER, INK, FAINT = (250, 249, 246), (28, 28, 30), (110, 110, 116)


def pictures(pixels):
    """Return an image batch as Pillow pictures."""
    return [Image.fromarray((np.clip(one[..., :3], 0, 1) * 255 + 0.5).astype(np.uint8)) for one in pixels]


def arranged(panels, captions, footer, columns):
    """Return one picture of all panels in a grid, a caption under each and the footer's lines at the bottom."""
    width, height = max(p.width for p in panels), max(p.height for p in panels)
    rows = -(-len(panels) // columns)
    lines = [line for line in footer.splitlines() if line]
    full = (MARGIN + columns * (width + MARGIN), MARGIN + rows * (height + CAPTION) + 22 * len(lines) + MARGIN)
    sheet = Image.new("RGB", full, PAPER)
    draw = ImageDraw.Draw(sheet)
    for at, panel in enumerate(panels):
        left, top = MARGIN + at % columns * (width + MARGIN), MARGIN + at // columns * (height + CAPTION)
        sheet.paste(panel, (left, top))
        draw.text((left + 2, top + height + 6), captions[at] if at < len(captions) else "", INK, font=ImageFont.load_default(17))
    for at, line in enumerate(lines):
        draw.text((MARGIN + 2, MARGIN + rows * (height + CAPTION) + 4 + 22 * at), line, FAINT, font=ImageFont.load_default(15))
    return sheet


def free_name(folder, prefix):
    """Return the first path prefix_00001.png, prefix_00002.png, … that does not exist in the folder."""
    os.makedirs(folder, exist_ok=True)
    number = 1
    while os.path.exists(os.path.join(folder, "{}_{:05d}.png".format(prefix, number))):
        number += 1
    return os.path.join(folder, "{}_{:05d}.png".format(prefix, number))
