"""The effects of a birth: spawn, open the lanes, prove. Each posts exactly one answer.

A verb whose generation was given up while it ran is undone: a process that arrives too late is ended, lanes are closed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.deaths import Kind
from comfy_env.lifecycle.record import State
from comfy_env.pool import crashes, endings, exits, zygotes
from comfy_env.pool.failures import outcome_of
from comfy_env.pool.seat import Seat, Worker
from comfy_env.pool.unmade import unlooked_at
from comfy_env.process import launch as launching
from comfy_env.process import lifeline, procs, tree
from comfy_env.process.output import Output
from comfy_env.process.patience import Patience
from comfy_env.process.variables import with_huge_pages
from comfy_env.transport import canary as canaries
from comfy_env.transport.boot import boot_document
from comfy_env.transport.endpoint import SocketEndpoint, open_endpoint
from comfy_env.transport.session import session_of
from comfy_env.values import EnvState, EnvStatus, Launch

if TYPE_CHECKING:
    from comfy_env.hooks.relay import Relay
    from comfy_env.pool.house import House
    from comfy_env.process.rundir import WorkerRun

_REFUSALS = {EnvStatus.MOVED: errors.EnvMoved}


def spawn(house: House, seat: Seat, generation: int) -> None:
    """Start the generation's process; answers Spawned or SpawnFailed."""
    worker = None
    try:
        worker = _prepare(house, seat, generation)
        if seat.env.row.generation != generation or seat.env.row.state is not State.SPAWNING:
            raise errors.SpawnFailed("nobody wants the worker any more")   # told to nobody, either
        worker.process = worker.relay.spawn(worker.launch)
    except BaseException as error:  # whatever a backend raises is this birth's failure, by name
        if worker is not None:
            discard(worker)
        seat.post(events.SpawnFailed(generation, outcome_of(error)))
        return
    news = events.Spawned(generation, worker.process.pid, seat.plan.device)
    kept = seat.post_if(
        lambda env: env.row.generation == generation and env.row.state is State.SPAWNING,
        news,
        then=lambda: _seat_down(house, seat, worker),
    )
    if not kept:
        seat.log.warning("generation %s arrived after it was given up and is ended", generation)
        endings.end_late(house, seat, worker)


def _seat_down(house: House, seat: Seat, worker: Worker) -> None:
    seat.forget_before(worker.generation)
    seat.workers[worker.generation] = worker
    crashes.attend(seat, worker)
    house.watcher.add(seat, worker)


def _prepare(house: House, seat: Seat, generation: int) -> Worker:
    relay, interpreter = _interpreter(seat)
    run = house.host_run().new_worker(seat.key, generation)
    with contextlib.ExitStack() as undo:
        undo.callback(run.close)
        endpoint = lifeline.opened(open_endpoint)
        undo.callback(endpoint.close)
        worker = _launched(house, seat, relay, str(interpreter), run, endpoint, generation)
        undo.pop_all()
    return worker


def _launched(
    house: House, seat: Seat, relay: Relay, interpreter: str, run: WorkerRun, endpoint: SocketEndpoint, generation: int
) -> Worker:
    host, log_file = house.host_run(), house.log_file(seat.key)
    folder = host.worker_folder
    variables = launching.worker_variables(seat.plan, nonce=run.nonce, host_nonce=host.nonce, generation=generation)
    launch = Launch(
        env=seat.key,
        generation=generation,
        plan=seat.plan,
        argv=launching.command(interpreter, folder, endpoint.boot_fd),
        cwd=run.folder,
        variables=with_huge_pages(variables) if seat.env.limits.huge_pages else variables,
        import_roots=tuple(os.path.abspath(root) for root in seat.plan.roots),
        run_folder=run.folder,
        worker_folder=folder,
        nonce=run.nonce,
        host_nonce=host.nonce,
        endpoint=endpoint,
        auth_key=secrets.token_bytes(32),
        log_file=log_file,
        birth_seconds=seat.env.limits.birth,
        sign=lambda stage: seat.post(events.SignOfLife(generation, stage)),
    )
    launch = zygotes.equip(house, seat, relay, relay.launch(launch))
    endpoint.write_boot(boot_document(launch, endpoint, run.record_path))
    worker = Worker(generation, relay, launch, run, endpoint, Output(seat.key, generation, log_file), interpreter=interpreter)
    house.reloader.attend(seat, worker)
    return worker


def _interpreter(seat: Seat) -> tuple:
    """Return the relay that serves this birth and the interpreter it starts."""
    state = seat.relay.inspect(seat.plan, probe=False)
    if state is None or state.status is EnvStatus.READY:
        if state is None and unlooked_at(seat.plan):
            seat.log.warning("backend %s makes no environments and looks at none: %s", seat.relay.name, unlooked_at(seat.plan))
        found = (state.interpreter if state else None) or seat.plan.interpreter
        return seat.relay, found or Path(sys.executable)
    if seat.plan.fallback is None:
        raise _refusal(seat, state)
    seat.log.warning("env %s is %s; its nodes run %s as its plan allows", seat.key, state.status.value, seat.plan.fallback)
    return seat.fallback(), Path(sys.executable)


def _refusal(seat: Seat, state: EnvState) -> errors.SpawnFailed:
    own = seat.plan.interpreter
    if own is not None and not (own.is_file() and os.access(own, os.X_OK)):
        return errors.InterpreterMissing(state.reason or f"the interpreter {own} cannot be used", hint=state.fix)
    kind = _REFUSALS.get(state.status, errors.EnvNotBuilt)
    return kind(_words(state), hint=state.fix)


def _words(state: EnvState) -> str:
    if state.reason.startswith("it "):
        return f"the environment {state.reason[3:]}"
    status = {EnvStatus.MISSING: "not built", EnvStatus.MOVED: "not where it was built"}.get(state.status, state.status.value)
    return f"the environment is {status}{f': {state.reason}' if state.reason else ''}"


def open_lanes(seat: Seat, generation: int) -> None:
    """Join the lanes; answers LanesOpen or LanesFailed."""
    worker = seat.workers.get(generation)
    if worker is None or worker.process is None:
        return  # its death was completed meanwhile; there is nobody to answer for
    try:
        with contextlib.ExitStack() as undo:
            lanes = worker.relay.transport(worker.process, worker.launch)
            undo.callback(lanes.close)
            session = session_of(lanes, worker.process)
            session.patience = Patience
            session.heed(worker.crashes)
            session.devices.policy = seat.env.limits.gpu
            undo.pop_all()
    except BaseException as error:  # a birth's failure, by name
        crashes.post_told(seat, worker)
        status = exits.status_of(seat, worker) if isinstance(error, errors.DiedBeforeJoining) else None
        seat.post(events.ProcessExited(generation, status) if status else events.LanesFailed(generation, outcome_of(error)))
        return
    worker.lanes, worker.session = lanes, session
    worker.python = str(lanes.hello.get("python", ""))
    worker.program = procs.command_line(worker.process.pid) if worker.process.pid else ""
    kept = seat.post_if(lambda env: env.row.generation == generation and env.row.state is State.JOINING, events.LanesOpen(generation))
    if not kept:
        lanes.close()


def prove(seat: Seat, generation: int) -> None:
    """Send the canary; answers Proved or ProofFailed."""
    worker = seat.workers.get(generation)
    if worker is None or worker.process is None or worker.lanes is None:
        return  # its death was completed meanwhile; there is nobody to answer for
    canary = canaries.make(secrets.randbits(64))
    try:
        proof = worker.relay.verify(worker.process, worker.lanes, canary)
    except BaseException as error:  # a birth's failure, by name
        crashes.post_told(seat, worker)
        status = exits.exit_of(seat, worker) if isinstance(error, errors.LaneLost) else None
        seat.post(events.ProcessExited(generation, status) if status else events.ProofFailed(generation, outcome_of(error, Kind.REFUSED)))
        return
    if seat.keeper is not None:
        seat.keeper.proved(generation)
    seat.post(events.Proved(generation, proof, canary.digest))


def discard(worker: Worker) -> None:
    """Close what was prepared for a worker that was never handed over, and end what a backend may have started of it."""
    tree.end_carriers(worker.launch.nonce)
    worker.endpoint.close()
    worker.run.close()
