"""Runs every benchmark, prints one table and writes the figures as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

from benchmarks import cold_starts, comfyui_nodes, import_time

OUT = Path(__file__).resolve().parent / "out" / "results.json"


def main() -> int:
    results = [*import_time.measure(), *cold_starts.measure(), *comfyui_nodes.measure()]
    width = max(len(row["what"]) for row in results)
    for row in results:
        sys.stdout.write(f"{row['what'].ljust(width)}  {row['value']:10.3f} {row['unit']:<6} {row['note']}\n")
    OUT.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    OUT.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"written to {OUT}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
