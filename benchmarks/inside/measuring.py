"""Runs in a peer's venv: `python measuring.py DRIVER JOB …` measures one round of a job and prints what it found."""

import importlib
import os
import sys
import traceback

import jobs
from driving import said

JOBS = {
    "pinned": jobs.pinned, "noop": jobs.noop, "tensors": jobs.tensors, "cold": jobs.cold, "born": jobs.born, "segv": jobs.segv,
    "stop": jobs.stop, "import": jobs.imported, "six": jobs.six, "flat": jobs.flat,
}


def main():
    which, job, *rest = sys.argv[1:]
    module = importlib.import_module(f"drive_{which}")
    if job == "hold":
        return jobs.hold(module.Peer(), *rest)
    driver = module.Peer()
    if job in driver.cannot:
        return said(job=job, cannot=driver.cannot[job])
    try:
        found = jobs.orphan(driver, which) if job == "orphan" else JOBS[job](driver)
        for row, value in found:
            said(row=row, value=value if value != float("inf") else "never")
    except Exception as error:
        said(job=job, failed=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        traceback.print_exc()
    end(driver, job)


def end(driver, job):
    """Leave nothing behind, and do not wait for a peer that cannot end."""
    if job not in ("stop", "six", "import"):
        try:
            jobs.patiently(driver.stop, 2)
        except Exception:
            traceback.print_exc()
    said(done=job)
    os._exit(0)


if __name__ == "__main__":
    main()
