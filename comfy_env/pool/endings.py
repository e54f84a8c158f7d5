"""The effects of a death: the stack, the one kill, and what is tidied when the tree is gone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.deaths import Reason
from comfy_env.pool.performer import within
from comfy_env.pool.seat import LAST_WORDS, Seat, Worker
from comfy_env.process import procs, tree
from comfy_env.process.waits import readable
from comfy_env.values import ExitStatus, Process

if TYPE_CHECKING:
    from comfy_env.pool.house import House

EXIT_WAIT = 2.0
"""Seconds a lost lane waits for the exit status, so that a death is told with its real status."""


def exit_of(process: Process) -> ExitStatus | None:
    """Return how a process whose lane was lost ended, since the lane often ends a moment earlier; None if it lives on."""
    known = process.exit_status()
    with contextlib.suppress(OSError):  # then it is not waited for
        if known is None:
            readable([process.exit_handle()], EXIT_WAIT)
    return known or process.exit_status()


def news_of(worker: Worker, lost: errors.ComfyEnvError) -> events.Event:
    """Return what a lost lane tells of its worker: mostly that its process ended."""
    replaced = _replaced_program(worker)
    status = exit_of(worker.process) if worker.process is not None and not replaced else None
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
    status, note = end(worker, seat, reason, replaced)
    if status is None:
        seat.post(events.WontDie(generation, note))
        return
    try:
        tidy(house, seat, worker)
    except OSError as error:  # the death is complete all the same, and must be told
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
    if error is not None or not finished:
        seat.log.warning("backend %s: kill %s", worker.relay.name, f"failed: {error}" if error else f"took longer than {limit:g} s")
    if process.pid is not None:
        done = tree.end(process, nonce=worker.launch.nonce, deadline_seconds=limit)
        return done.status, done.note
    status = process.exit_status()
    return status, getattr(killed, "note", "") if status is None else ""


def end_late(house: House, seat: Seat, worker: Worker) -> None:
    """End a process that arrived after its generation was given up."""
    end(worker, seat, Reason.UNWANTED, False)
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
