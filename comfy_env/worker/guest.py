"""Puts a worker together: joins both lanes, serves the side lane from a thread and the main lane from this one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Optional

from . import callback, joining
from .calls import Calls
from .codec import GuestSide
from .devices import open_devices
from .interrupts import Interrupts, SignalInterrupts
from .loop import Loop, Tools
from .memory import Keepers
from .resident import Resident
from .side import SideLane
from .wire import proof
from .wire.faults import LaneEnd
from .wire.inbox import Inbox
from .wire.outbox import Outbox
from .wire.payload import Codec
from .wire.sharing import Sharing
from .wire.stream import FrameStream


def serve(document: dict[str, Any], main_socket: socket.socket, side_socket: socket.socket,
          make_interrupts: Callable[[], Interrupts] = SignalInterrupts, spin: bool = False) -> int:
    """Serve until the host says goodbye (0) or is gone (1).

    Runs in the main thread of a worker's process, or with `ThreadInterrupts` on a thread of the host itself. ``spin``:
    the process is the worker's own, so that looking for calls keeps nobody else from running.
    """
    main = FrameStream(main_socket, proof.PAYLOAD_LIMIT)
    side = FrameStream(side_socket, proof.PAYLOAD_LIMIT)
    try:
        joining.say_stage(main, "started")
        joining.join(side, proof.SIDE, document)
        hello = joining.join(main, proof.MAIN, document)
        main.sharing = _arena(hello, main_socket, document)
        if spin:
            main.spin()
        joining.say_stage(main, "authenticated")
        return _serve_joined(document, main, side, make_interrupts())
    except LaneEnd:
        return 1
    finally:
        main.close()
        side.close()


def _arena(hello: dict[str, Any], lane: socket.socket, document: dict[str, Any]) -> Optional[Sharing]:
    """Return this end's half of the arena, None where the host or the lane has no use for one."""
    if proof.ARENA not in hello.get("features", ()) or lane.family != socket.AF_UNIX:
        return None
    return Sharing(Outbox(document["host_nonce"], share=os.dup), Inbox(private=True, wary=False))   # the host may write to results


def _serve_joined(document: dict[str, Any], main: FrameStream, side: FrameStream, interrupts: Interrupts) -> int:
    resident, keepers, calls = Resident(), Keepers(), Calls(interrupts, document.get("import_roots", ()))
    folder, generation = document.get("cloudpickle_folder"), document["generation"]
    devices = None if main.sharing is None else open_devices()
    loop = Loop(Tools(main, Codec(GuestSide(resident, folder, devices), lends=True), resident, keepers, generation, devices), calls)
    side_lane = SideLane(side, Codec(GuestSide(resident, folder)), interrupts, generation)
    threading.Thread(target=side_lane.serve, name="comfy_env side lane", daemon=True).start()
    callback.workers.enter(callback.Worker(loop, calls, keepers))
    try:
        joining.say_stage(main, "ready")
        loop.serve()
    finally:
        callback.workers.leave()
    return 0
