"""Why a row misses its target, in the words of who looked: told on the page only where the row is missed in the run it is made from.

A reason names what was found to take the time, not who else is slow. It goes when the row is kept.
"""

_CALL = (
    "On one core a call costs the host about 75 µs of Python of its own (some 230 calls of functions: two steps of the lifecycle, "
    "ticket, story, the next limit, framing, the reading that names no class) and the worker about 35 µs; the system's part is 10 µs each."
)
_SHARED = (
    "No byte is touched: 192 MiB take as long as 3. On one core such a call took 270 µs where one of nothing took 113: some 110 more calls "
    "of functions in the worker (what the block is called, its lease, the memory, the tensor over it, who is told when it goes), 80 in the "
    "host, and 12 µs for the node's own reading of an element. With a core for each side "
    "the spin spares the wake-ups, not the Python."
)
_FRESH = (
    "The one copy on each side is made into pages that are there already; the rest is the node's own result, for which the worker's "
    "allocator takes new pages in every call (one fault per page, 49,152 for 192 MiB). Huge pages for the allocator, "
    "`COMFY_ENV_HUGE_PAGES`, take a good part of that away."
)

WHY = {
    "noop_pinned": _CALL,
    "noop_pinned_p99": "Not taken apart; in several runs it lay 1.7 to 2.3 times above the median, that of a peer 1.2 to 2.3 times.",
    "noop_free": (
        f"{_CALL} With a core for each side and nobody else about, the fastest tenth took 62 µs: "
        "the spin spares the wake-up, not the Python."
    ),
    "proxy": "Of single runs, 60 to 220 µs lay beside the pool's own call (see `noop_free`); the layer's share was not taken apart.",
    "fresh_3": _FRESH,
    "fresh_192": _FRESH,
    "shared_again_3": _SHARED,
    "shared_again_192": _SHARED,
    "shared_forward_3": _SHARED,
    "shared_forward_192": _SHARED,
    "cold": (
        "The worker's interpreter is most of it (a bare one took 56 ms where a second environment's start took 67, 8 of them handshake "
        "and proof). A host's very first start takes 60 to 90 ms more: some 36 modules that only a start needs, and the run folder with "
        "its copy of the worker."
    ),
    "cold_torch_later": (
        "The zygote imports torch, then proves with a trial child that forking is safe, and only then forks the worker: the trial comes on "
        "top of the import, and the first call waits for both."
    ),
    "six_ratio": (
        "Six starts take about 500 ms of processor time one after another as at once, 420 to 460 of it the workers' interpreters: "
        "two cores cannot have them in less than 250."
    ),
    "replace": (
        "Of 34 ms in one that was taken apart: 8 until the dead worker's group was gone, 10 for the record and the fork, 9 for boot and "
        "handshake, 5 for the proof."
    ),
    "import_used": (
        "All of a pool's modules come with it, some 350 in all with those of the standard library and of psutil, packaging and pluggy; an "
        "unused package costs what the row `import` says."
    ),
}
