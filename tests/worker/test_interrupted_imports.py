"""An interrupt that comes while a module is imported waits until it is: half of a module is of no use to anybody."""

import subprocess
import sys
import textwrap
from pathlib import Path

import comfy_env

PROGRAM = """
import os, sys, threading, time, types
package = types.ModuleType("comfy_env"); package.__path__ = [{package!r}]; sys.modules["comfy_env"] = package
sys.path.insert(0, {folder!r})
from comfy_env.worker.interrupts import CallInterrupted, SignalInterrupts
interrupts = SignalInterrupts()
interrupts.begin(1)
threading.Timer(0.2, interrupts.interrupt, [1]).start()
interrupts.arm()
try:
    import slow_module
    print("imported", slow_module.done, flush=True)
    time.sleep(20)
except CallInterrupted:
    print("interrupted after", "slow_module" in sys.modules and sys.modules["slow_module"].done)
"""


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path):
    (tmp_path / "slow_module.py").write_text("import time\ndone = False\nfor _ in range(10):\n    time.sleep(0.05)\ndone = True\n")
    program = textwrap.dedent(PROGRAM).format(package=str(Path(comfy_env.__file__).parent), folder=str(tmp_path))
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.splitlines()[-1] == "interrupted after True"
