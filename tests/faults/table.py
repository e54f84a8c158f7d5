"""The reliability table: what must survive what. Each row is shown by the tests that carry its mark, `row("F9")`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]


class Row(NamedTuple):
    """``what`` happens, and what is ``promised`` then."""

    what: str
    promised: str


LOAD = {
    "L1": Row("100,000 small calls from 8 threads to 4 environments", "all answered, each with its own value; memory and descriptors flat"),
    "L2": Row("six cold environments called at once", "they are born side by side"),
    "L3": Row("64 threads call one cold environment", "one spawn"),
    "L4": Row("1,000 crashes and respawns of one environment", "generation + 1,000, never a twin, no litter"),
    "L5": Row("random faults while threads call (`make soak`)", "no wrong answer, nothing left, the same seed plans the same faults"),
    "L6": Row("a reply of 2 GiB and 500 arrays with 256 descriptors and 64 MiB of /dev/shm", "everything arrives"),
}
FAULTS = {
    "F1": Row("the host is SIGKILLed while the worker is idle", "the worker's group is gone within a second"),
    "F2": Row("the host is SIGKILLed while native code holds the worker's GIL and a grandchild runs",
              "both are gone within a second; with a watcher thread alone they are not"),
    "F3": Row("the host is SIGKILLed at a random moment up to 300 ms after a spawn",
              "nobody is left, the next host's sweep leaves nothing"),
    "F4": Row("the host, or a worker, replaces its program by `execv`", "the worker is ended by name and collected by its number"),
    "F5": Row("the host forks a raw child, then dies", "the child does not keep the worker alive"),
    "F6": Row("the thread that made a worker be born ends", "later calls reach the same worker of the same generation"),
    "F7": Row("a wrapper between host and worker is killed, or the host is while the wrapper lives", "nobody of the tree is left"),
    "F8": Row("segfault, abort, `os._exit(0)`, `sys.exit` and SIGKILL at ten moments of a worker's life",
              "a named error with the real status; the next call is served by a new worker"),
    "F9": Row("the worker ends at 1, 50 and 99 % of a reply of 64 MiB", "a named error with the real status, no half value"),
    "F10": Row("the worker ignores TERM, INT and HUP, or stops itself", "it is ended all the same"),
    "F11": Row("the worker forks 200 processes a second, half of them in sessions of their own", "the kill ends them all"),
    "F12": Row("the leader is dead and a member of its group lives", "the member is ended while the leader's number is kept"),
    "F13": Row("a worker that the kernel will not end (simulated)", "WEDGED with pid and device; no twin; the host stays responsive"),
    "F14": Row("a worker takes more memory than there is", "the error says so"),
    "F15": Row("native code holds the GIL for minutes", "no kill; the side lane times out and recovers; the call completes"),
    "F16": Row("a limit is hit and the worker answers later", "the late reply is dropped, 1,000 of 1,000"),
    "F17": Row("a reaper meets a caller, 10,000 times", "every call is answered, whoever wins"),
    "F18": Row("host and workers are stopped for longer than every limit; the wall clock jumps by an hour", "nothing is killed"),
    "F19": Row("a worker is replaced while somebody walks over the list of stand-ins", "the list is not changed meanwhile"),
    "F20": Row("a worker is killed while the host holds an array it returned", "the array stays readable"),
    "F21": Row("names in /dev/shm and the run folder are unlinked under us", "calls and births go on"),
    "F22": Row("every system call of spawn, call and kill fails once", "an error or a success; never a hang, never a leak"),
}
INPUT = {
    "X1": Row("strangers on a lane: silent, garbage, wrong key, replay, another user", "dropped; joining goes on"),
    "X2": Row("frames of impossible lengths, truncated, of bad magic, unknown kind, fuzzed",
              "refused before anything is allocated; a hostile pickle runs no code"),
    "X3": Row("a pickle bomb in every field that a worker can send", "never executed"),
    "X4": Row("exceptions that cannot be pickled or whose `__str__` raises", "the call fails by name, the worker serves on"),
    "X5": Row("results that cannot cross: recursive, 10^6 deep, lambda, generator, open file, weakref",
              "a named refusal; the lane stays usable"),
    "X6": Row("arrays and tensors of every kind, between numpy 1 and 2", "equal bytes or a named refusal, never a silent cast"),
    "X7": Row("200 MB of output: NULs, half characters, C-level, lines that look like frames", "calls and lanes do not notice"),
    "X8": Row("planted records: reused pid, other boot, other namespace, bad JSON, later schema, pid 0, 1, -1 and our own",
              "nobody is ended who is not proved to be ours"),
    "X9": Row("a bystander with our paths in its arguments", "lives"),
    "X10": Row("a temporary folder that is long, spaced, not ASCII, noexec, read-only or full",
               "works, or is named with the setting that mends it"),
    "X11": Row("a host that is PID 1, ignores SIGCHLD, has closed standard streams, 64 descriptors, umask 0777",
               "works, or says by name what is missing"),
    "X12": Row("a backend that raises, answers the wrong type, hangs, lies, kills twice, forgets to kill", "a named error; nobody is left"),
}
ROWS = {**LOAD, **FAULTS, **INPUT}
GROUPS = {"Load": LOAD, "Faults": FAULTS, "Bad input": INPUT}


def marked() -> dict[str, set[str]]:
    """Return the tests that carry each row's mark, by the sources of all tests: "folder/file.py::test"."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for row, name in _marks_of(path):
            found.setdefault(row, set()).add(f"{path.relative_to(TESTS)}::{name}")
    return found


def _marks_of(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if "mark.row(" not in text:
        return
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield from ((row, node.name) for row in _rows_in(node.decorator_list))
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "pytestmark":
            names = [f.name for f in tree.body if isinstance(f, ast.FunctionDef) and f.name.startswith("test")]
            yield from ((row, name) for row in _rows_in([node.value]) for name in names)


def _rows_in(nodes: list[ast.expr]) -> Iterator[str]:
    for call in (found for node in nodes for found in ast.walk(node) if isinstance(found, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "row":
            yield from (str(argument.value) for argument in call.args if isinstance(argument, ast.Constant))


def order(row: str) -> tuple[int, int]:
    """Return the key by which rows are sorted as the table has them."""
    letter, number = re.fullmatch(r"([LFX])(\d+)", row).groups()  # type: ignore[union-attr]
    return "LFX".index(letter), int(number)
