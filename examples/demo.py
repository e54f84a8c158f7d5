"""The main job, shown: `make demo`, or `python examples/demo.py [--photo FILE] [--out FOLDER] [--no-kill]`."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(importlib.import_module("demo_parts.main").main())
