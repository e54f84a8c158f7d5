"""What `import comfy_env` adds to a bare Python: both are started in turn, the medians compared. Aim: under 30 ms."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

ROUNDS = 15
AIM_MS = 30.0


def started(program: str) -> float:
    """Return the milliseconds one interpreter takes to run a program."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return (time.perf_counter() - begun) * 1000


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Return the rows of this benchmark."""
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(started("pass"))
        ours.append(started("import comfy_env"))
    added = statistics.median(ours) - statistics.median(bare)
    verdict = f"aim < {AIM_MS:g}: {'kept' if added < AIM_MS else 'missed'}"
    return [
        {"what": "bare python", "value": statistics.median(bare), "unit": "ms", "note": f"median of {rounds}"},
        {"what": "import comfy_env adds", "value": added, "unit": "ms", "note": verdict},
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(), indent=2) + "\n")
