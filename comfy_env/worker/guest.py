"""Puts a worker together: joins both lanes, serves the side lane from a thread and the main lane from this one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from . import callback, joining
from .calls import Calls
from .codec import GuestSide
from .interrupts import Interrupts, SignalInterrupts
from .loop import Loop, Tools
from .memory import Keepers
from .resident import Resident
from .side import SideLane
from .wire import proof
from .wire.faults import LaneEnd
from .wire.payload import Codec
from .wire.stream import FrameStream


def serve(document: dict[str, Any], main_socket: socket.socket, side_socket: socket.socket,
          make_interrupts: Callable[[], Interrupts] = SignalInterrupts) -> int:
    """Serve until the host says goodbye (0) or is gone (1).

    Runs in the main thread of a worker's process, or with `ThreadInterrupts` on a thread of the host itself.
    """
    main = FrameStream(main_socket, proof.PAYLOAD_LIMIT)
    side = FrameStream(side_socket, proof.PAYLOAD_LIMIT)
    try:
        joining.say_stage(main, "started")
        joining.join(side, proof.SIDE, document)
        joining.join(main, proof.MAIN, document)
        joining.say_stage(main, "authenticated")
        return _serve_joined(document, main, side, make_interrupts())
    except LaneEnd:
        return 1
    finally:
        main.close()
        side.close()


def _serve_joined(document: dict[str, Any], main: FrameStream, side: FrameStream, interrupts: Interrupts) -> int:
    resident, keepers, calls = Resident(), Keepers(), Calls(interrupts)
    folder, generation = document.get("cloudpickle_folder"), document["generation"]
    loop = Loop(Tools(main, Codec(GuestSide(resident, folder)), resident, keepers, generation), calls)
    side_lane = SideLane(side, Codec(GuestSide(resident, folder)), interrupts, generation)
    threading.Thread(target=side_lane.serve, name="comfy_env side lane", daemon=True).start()
    callback.workers.enter(callback.Worker(loop, calls, keepers))
    try:
        joining.say_stage(main, "ready")
        loop.serve()
    finally:
        callback.workers.leave()
    return 0
