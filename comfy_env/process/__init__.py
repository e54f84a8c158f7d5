"""Starting a worker's process, ending it with everything it started, and cleaning up after hosts that died.

Proven on Linux. Other POSIX systems take the portable layers of the same interfaces and are unproven; Windows is not
supported.
"""

import sys

if sys.platform == "win32":
    raise ImportError(
        "comfy_env.process needs process groups, kernel file locks and inherited descriptors: it is proven on Linux, "
        "unproven on other POSIX systems, and does not support Windows (run ComfyUI under WSL 2)"
    )
