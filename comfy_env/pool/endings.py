"""The effects of a death: the stack, the one kill, and what is tidied when the tree is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.deaths import Reason
from comfy_env.pool import crashes, exits
from comfy_env.pool.performer import within
from comfy_env.pool.seat import LAST_WORDS, Seat, Worker
from comfy_env.process import procs, tree
from comfy_env.values import ExitStatus

if TYPE_CHECKING:
    from comfy_env.pool.house import House

def news_of(seat: Seat, worker: Worker, lost: errors.ComfyEnvError, enough: Callable[[], bool] = lambda: False) -> events.Event:
    """Return what a lost lane tells of its worker: mostly that its process ended, for which it waits until there is ``enough``."""
    crash = crashes.told_by(worker)
    if crash is not None:
        return crash
    replaced = _replaced_program(worker)
    status = exits.exit_of(seat, worker, enough) if not replaced else None
    if status is not None:
        return events.ProcessExited(worker.generation, status)
    return events.LaneLost(worker.generation, lost.message + (replaced or _replaced_program(worker) or "; its process goes on"))


def _replaced_program(worker: Worker) -> str:
    """Tell what a process whose lane ended runs now, if that is not what it was started as: by exec it lost its lanes."""
    pid = worker.process.pid if worker.process else None
    now = procs.command_line(pid) if pid and worker.program else ""
    return f"; it replaced its program by: {now}" if now and now != worker.program else ""


def ask_stack(seat: Seat, generation: int) -> None:
    """Ask for the worker's Python stack; answers StackRead, with nothing in it if none came in time."""
    worker = seat.workers.get(generation)
    text = ""
    if worker is not None and worker.process is not None and worker.process.pid is not None:
        limit = seat.env.limits.stack
        tree.stack(worker.process, limit, arrived=lambda: _has_stack(worker))
        text = worker.output.stack_text()
    seat.post(events.StackRead(generation, text))


def _has_stack(worker: Worker) -> bool:
    worker.drain(LAST_WORDS)
    return bool(worker.output.stack_text())


def kill(house: House, seat: Seat, generation: int, reason: Reason, replaced: bool) -> None:
    """End a generation's process and everything it started; answers TreeGone or WontDie."""
    worker = seat.workers.get(generation)
    if worker is None or worker.process is None:
        seat.post(events.TreeGone(generation, ExitStatus(note="no process was started")))
        return
    if worker.ending.acquire(blocking=False):   # else somebody ends it already: told twice after a Ctrl-C
        try:
            _end_once(house, seat, worker, reason, replaced)
        finally:
            worker.ending.release()


def _end_once(house: House, seat: Seat, worker: Worker, reason: Reason, replaced: bool) -> None:
    generation = worker.generation
    if worker.closed:
        return   # it was ended, and that was told
    try:
        status, note = end(worker, seat, reason, replaced)
    except Exception as error:  # a backend's process is somebody else's code, and a kill is answered in any case
        seat.log.exception("generation %s could not be ended", generation)
        status, note = None, f"backend {worker.relay.name!r}: its process could not be ended: {type(error).__name__}: {error}"
    if status is None:
        seat.post(events.WontDie(generation, note))
        return
    try:
        tidy(house, seat, worker)
    except Exception as error:  # the death is complete all the same, and must be told; a backend's process closes itself
        seat.log.warning("generation %s: not everything could be given back: %s", generation, error)
    seat.post(events.TreeGone(generation, status))


def end(worker: Worker, seat: Seat, reason: Reason, replaced: bool) -> tuple[ExitStatus | None, str]:
    """Run the backend's kill, then the core's own; return the exit status, or None and why it still lives."""
    process = worker.process
    assert process is not None
    if worker.session is not None:
        worker.session.close()
    limit = seat.env.limits.kill
    job = lambda: worker.relay.kill(process, reason.name.lower(), replaced)  # noqa: E731
    finished, killed, error = within(limit, job, f"comfy-env kill {seat.key}")
    trouble = str(error) if error else "" if finished else f"backend {worker.relay.name!r}: kill took longer than {limit:g} s"
    if trouble:
        seat.remark(trouble)
        seat.log.warning("[%s #%s] %s", seat.key, worker.generation, trouble)
    if process.pid is not None:
        done = tree.end(process, nonce=worker.launch.nonce, deadline_seconds=limit)
        return done.status, done.note
    status = exits.status_of(seat, worker) or getattr(killed, "status", None)
    if status is None and worker.complained and not trouble and not getattr(killed, "note", ""):
        status = exits.unknown(worker)  # its backend says it was ended, and cannot say how
    return status, (getattr(killed, "note", "") or trouble) if status is None else ""


def end_late(house: House, seat: Seat, worker: Worker) -> None:
    """End a process that arrived after its generation was given up."""
    try:
        end(worker, seat, Reason.UNWANTED, False)
    finally:
        release_handles(house, worker)


def tidy(house: House, seat: Seat, worker: Worker) -> None:
    """Give back everything one generation held; its last words stay for error messages still to be built."""
    worker.drain(LAST_WORDS)
    release_handles(house, worker)


def release_handles(house: House, worker: Worker) -> None:
    """Give back every handle, also those after one that could not be."""
    with contextlib.ExitStack() as last_first:
        last_first.callback(worker.run.close)
        last_first.callback(worker.close_process)
        last_first.callback(worker.endpoint.close)
        if worker.session is not None:
            last_first.callback(worker.session.close)
        last_first.callback(house.watcher.remove, worker)
