"""The measurements, the same for every peer: each takes a driver and yields (row, value), values in seconds or bytes."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import work
from driving import answered, kill, patiently, said, wait

NOTICED_WITHIN = 3.0
"""Seconds after which a peer that has not reported a crash is said not to."""
BUSY = 2.0
"""Seconds the worker is busy whose host is killed."""
NAP = 60.0
"""Seconds that workers are busy for that are stopped."""


def clock(act):
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def many(act, seconds=0.7, most=2000):
    """Return the sorted times of as many repetitions as fit."""
    end = time.perf_counter() + seconds
    times = []
    while len(times) < most and (len(times) < 5 or time.perf_counter() < end):
        times.append(clock(act))
    return sorted(times)


def placed(processors):
    """Keep this process, and what it starts from now on, to these processors."""
    if processors:
        os.sched_setaffinity(0, processors)


# ---------------------------------------------------------------- calls

def pinned(driver):
    placed({min(os.sched_getaffinity(0))})
    yield from _calls(driver, "pinned")


def noop(driver):
    yield from _calls(driver, "free")


def _calls(driver, name):
    driver.start()
    for _ in range(200):
        driver.call("noop")
    times = many(lambda: driver.call("noop"))
    yield f"noop_{name}", times[len(times) // 2]
    yield f"noop_{name}_p99", times[len(times) * 99 // 100]


def tensors(driver):
    """Fresh tensors there and back; with a second worker, tensors that are shared already."""
    import torch

    torch.set_num_threads(1)
    driver.start()
    driver.call("torch_ready")
    for mib in (3, 192):
        yield f"fresh_{mib}", _fresh(driver, torch, mib)
    if _left_out(driver, "shared"):
        return
    driver.start(1)
    driver.call("torch_ready", number=1)
    for mib in (3, 192):
        yield from _shared(driver, mib)


def _left_out(driver, what):
    """Say what a peer has nothing for, if it has not."""
    if what in driver.cannot:
        said(job=what, cannot=driver.cannot[what])
    return what in driver.cannot


def _fresh(driver, torch, mib):
    """Return the median of: a new tensor over, one added to it, the result back. The last result is dropped before."""
    times = []
    end = time.perf_counter() + 1.5
    while len(times) < (30 if mib < 100 else 8) and (len(times) < 5 or time.perf_counter() < end):
        tensor = torch.full((mib * work.FLOATS_PER_MIB,), 2.0)
        begun = time.perf_counter()
        result = driver.call("add_one", tensor=tensor)
        times.append(time.perf_counter() - begun)
        if float(result[0]) != 3.0 or float(result[-1]) != 3.0:
            raise ValueError(f"the result is wrong: {result[0]}")
        del result, tensor
    return statistics.median(times)


def _shared(driver, mib):
    tensor = driver.call("make", mib=mib)
    for name, number in (("again", 0), ("forward", 1)):
        driver.call("peek", number=number, tensor=tensor)
        times = many(lambda number=number: driver.call("peek", number=number, tensor=tensor), most=500)
        yield f"shared_{name}_{mib}", times[len(times) // 2]


# ---------------------------------------------------------------- births and deaths

def cold(driver):
    """A first start without torch in the worker. The host has torch, as ComfyUI has."""
    import torch

    torch.set_num_threads(1)
    driver.sealed = True
    yield "cold", clock(lambda: _first(driver, "noop"))


def born(driver):
    """The first start with torch, a replacement after a kill, and what the replacement owns; the host has torch.

    A peer that learns from an environment's first worker is then asked again in a host that comes later.
    """
    import torch

    torch.set_num_threads(1)
    driver.prepare(known=False)
    yield "cold_torch", clock(lambda: _first(driver, "torch_ready"))
    if _left_out(driver, "replace") and _left_out(driver, "uss"):
        return
    yield "uss_first", owned(driver.call("pid"))
    yield "replace_first" if driver.learns else "replace", _replaced(driver)
    yield "uss_second", owned(driver.call("pid"))
    if driver.learns:
        driver.stop()
        yield from _later(type(driver)())


def _later(driver):
    driver.prepare(known=True)
    yield "cold_torch_later", clock(lambda: _first(driver, "torch_ready"))
    yield "replace", _replaced(driver)
    driver.stop()


def _replaced(driver):
    """Return the seconds from a worker's end to the next result."""
    kill(driver.call("pid"))
    return clock(lambda: _again(driver))


def _first(driver, function):
    if hasattr(driver, "cold"):
        return driver.cold(function)
    driver.start()
    return driver.call(function)


def _again(driver):
    driver.lost()
    return answered(lambda: driver.call("torch_ready"))


def owned(pid):
    """Return the bytes that would be free if this process were gone (its USS)."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Private_"))


def segv(driver):
    for mib in (0, 2048):
        driver.start()
        driver.call("pid")
        yield f"segv_{mib}", _noticed(driver, mib)
        with contextlib.suppress(Exception):  # the next one is started anew in any case
            patiently(driver.stop, 1)
        driver = type(driver)()


def _noticed(driver, mib):
    """Return the seconds from the fault to the caller's error; infinite where none came."""
    with tempfile.TemporaryDirectory() as folder:
        stamp = os.path.join(folder, "stamp")
        try:
            patiently(lambda: driver.call("crash", mib=mib, stamp=stamp), NOTICED_WITHIN, since=lambda: work.noted(stamp))
        except TimeoutError:
            said(row=f"segv_{mib}", note=f"no error within {time.monotonic() - work.noted(stamp, 0):.0f} s")
            return float("inf")
        except Exception as error:
            seconds = time.monotonic() - work.noted(stamp, 0)
            said(row=f"segv_{mib}", note=f"{type(error).__name__}: {_short(error)}")
            return seconds
    raise ValueError("the call returned although its worker crashed")


def _short(error):
    text = " ".join(str(error).split())
    return text if len(text) < 90 else text[:87] + "..."


def orphan(driver, which):
    """Kill the host of a busy worker and wait for the worker to go; the host is a process of its own for that."""
    for name, held in (("free", False), ("held", True)):
        with tempfile.TemporaryDirectory() as folder:
            yield f"orphan_{name}", _left_behind(which, held, os.path.join(folder, "stamp"))


def _left_behind(which, held, stamp):
    command = [sys.executable, sys.argv[0], which, "hold", stamp, "held" if held else "free"]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pid = int(next(line for line in host.stdout if line.startswith("worker ")).split()[1])
    handle = os.pidfd_open(pid)
    work.noted(stamp)
    time.sleep(0.1)
    host.send_signal(signal.SIGKILL)
    begun = time.perf_counter()
    gone = wait(handle, BUSY + 2)
    seconds = time.perf_counter() - begun
    if not gone:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)
    host.wait()
    host.stdout.close()
    return seconds if gone else float("inf")


def hold(driver, stamp, held):
    """Be the host that is killed while its worker is busy."""
    driver.start()
    sys.stdout.write(f"worker {driver.call('pid')}\n")
    sys.stdout.flush()
    driver.call("nap", seconds=BUSY, held=held == "held", stamp=stamp)


def stop(driver):
    """Three workers that sleep, and how long it takes to end them politely."""
    with tempfile.TemporaryDirectory() as folder:
        handles = []
        for number in range(3):
            driver.start(number)
            handles.append(os.pidfd_open(driver.call("pid", number=number)))
            threading.Thread(target=_doze, args=(driver, number, folder), daemon=True).start()
            work.noted(os.path.join(folder, str(number)))
        begun = time.perf_counter()
        driver.stop()
        seconds = time.perf_counter() - begun
        left = sum(not wait(handle, 0) for handle in handles)
        if left:
            said(row="stop_busy", note=f"{left} of 3 workers were still there when it returned")
        yield "stop_busy", seconds


def _doze(driver, number, folder):
    with contextlib.suppress(Exception):  # the call ends with the worker
        driver.call("nap", number=number, seconds=NAP, held=False, stamp=os.path.join(folder, str(number)))


# ---------------------------------------------------------------- imports

IMPORT = "import time; a = time.perf_counter(); {}; print(time.perf_counter() - a, time.monotonic(), flush=True)"


def imported(driver):
    """What an import of the package takes, and what its presence adds to the interpreter's exit; bare ones in between."""
    bare, ours, used = [], [], []
    for _ in range(3):
        bare.append(_import("import sys"))
        ours.append(_import(f"import {driver.name}"))
        if driver.uses:
            used.append(_import(driver.uses))
    yield "import", statistics.median(took for took, _ in ours)
    if used:
        yield "import_used", statistics.median(took for took, _ in used)
    yield "import_exit", statistics.median(gone for _, gone in ours) - statistics.median(gone for _, gone in bare)


def _import(statement):
    done = subprocess.run([sys.executable, "-c", IMPORT.format(statement)], stdout=subprocess.PIPE, text=True, check=True)
    took, said_at = map(float, done.stdout.split()[-2:])
    return took, time.monotonic() - said_at


# ---------------------------------------------------------------- ours alone

def six(driver):
    """Six cold environments of a pool, in a row and at once."""
    numbers = range(6)
    in_a_row = clock(lambda: [_one(driver, number) for number in numbers])
    driver.stop()
    driver = type(driver)()
    threads = [threading.Thread(target=_one, args=(driver, number)) for number in numbers]
    together = clock(lambda: _all(threads))
    driver.stop()
    yield "six_row", in_a_row
    yield "six_together", together
    yield "six_ratio", together / in_a_row


def _one(driver, number):
    driver.start(number)
    driver.call("noop", number=number)


def _all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def flat(driver):
    """What a call costs while everything that could add to it doubles four times: last over first."""
    driver.start()
    alone = [_warm(driver)]
    yield "flat_calls", _ratio("flat_calls", alone + [_after(driver, count) for count in (1000, 2000, 4000, 8000)])
    yield "flat_workers", _ratio("flat_workers", [_beside(driver, count) for count in (1, 2, 4, 8, 16)])
    for number in range(1, 16):
        kill(driver.call("pid", number=number))
    yield "flat_envs", _ratio("flat_envs", alone + [_warm(driver)])
    yield "flat_tensors", _ratio("flat_tensors", list(_holding(driver)))


def _warm(driver):
    """Return what the fastest tenth of the calls stay below: others on the machine can only add to a call."""
    for _ in range(200):
        driver.call("noop")
    times = many(lambda: driver.call("noop"), 1.0, 2000)
    return times[len(times) // 10]


def _after(driver, calls):
    for _ in range(calls):
        driver.call("noop")
    return _warm(driver)


def _beside(driver, workers):
    for number in range(1, workers):
        if number not in driver.plans:
            _one(driver, number)
    return _warm(driver)


def _holding(driver):
    """Yield the cost of a call while 0, 32, 64, 128, 256 results of 256 KiB are alive in the host."""
    held = []
    for count in (0, 32, 64, 128, 256):
        while len(held) < count:
            held.append(driver.call("make_array", kib=256))
        yield _warm(driver)


def _ratio(row, steps):
    said(row=row, note=", ".join(f"{step * 1e6:.0f}" for step in steps) + " µs")
    return steps[-1] / steps[0]
