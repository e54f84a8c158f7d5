"""Checks on a real device what the tests show on a simulated one: ``python -m benchmarks.gpu_check``.

Run it from the repository's folder with a Python that has this package, its test tools and a torch with CUDA. It starts
workers with the same Python, sends tensors between them and this process, and prints a table: what was checked, whether it
holds, figures. It needs about 200 MiB of the first device, and a minute or two.

Exit code: 0 every check holds or this machine cannot show it, 1 one does not hold, 3 there is no device that could be
checked, so that nothing is said about any.
"""

from __future__ import annotations

import sys
import time

from comfy_env.worker.wire.faults import CannotShare

HELD, BROKEN, NO_DEVICE = 0, 1, 3
NO_TORCH = "torch is not installed for {python}; install one with CUDA there, or run this with a Python that has one"


def main() -> int:
    try:
        from benchmarks import gpu_bench
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        return nothing_checked(NO_TORCH.format(python=sys.executable))
    try:
        bench = gpu_bench.CudaBench()
    except CannotShare as why:
        return nothing_checked(str(why))
    sys.stdout.write(f"{bench}\n")
    broken = 0
    for check in gpu_bench.CHECKS:
        begun = time.monotonic()
        verdict, told = gpu_bench.judge(check, bench)
        broken += verdict == "BROKEN"
        sys.stdout.write(f"{check.__name__:24} {verdict:10} {time.monotonic() - begun:6.1f} s  {told}\n")
        sys.stdout.flush()
    return BROKEN if broken else HELD


def nothing_checked(why: str) -> int:
    sys.stdout.write(f"no device was checked: {why}\n")
    return NO_DEVICE


if __name__ == "__main__":
    sys.exit(main())
