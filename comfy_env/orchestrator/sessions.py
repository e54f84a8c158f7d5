"""Sessions and their queues: a message is committed before it is acknowledged, and its turn before its agent is asked.

One agent serves one message at a time, in the order of acceptance. Runs on the service's event loop; everything in here
that is not committed can be made again from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import reprlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import messages
from comfy_env.orchestrator.gate import Blocker, Kind
from comfy_env.orchestrator.messages import HELD, QUEUED, Accepted, Message
from comfy_env.orchestrator.problems import Refused, StoreClosed, StoreTrouble
from comfy_env.orchestrator.store import Job, Store
from comfy_env.orchestrator.workers import Workers
from comfy_env.values import AgentSpec, Busy, CallOptions, Idle, Progress, Verdict

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds after a turn that could not be written down


class Line:
    """One agent's messages: those that wait, and the one whose turn runs."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec
        self.waiting: deque[Message] = deque()
        self.running: Message | None = None
        self.since: float | None = None
        self.changed = asyncio.Event()

    def put(self, message: Message, now: float) -> None:
        self.waiting.append(message)
        self.since = self.since or now
        self.changed.set()


class Sessions:
    """`fenced`: no turn begins. `changed` is called whenever the gate may see something new."""

    def __init__(
        self,
        agents: Mapping[str, AgentSpec],
        workers: Workers,
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agents = agents
        self._now = now
        self._workers = workers
        self._changed = changed
        self._store: Store | None = None
        self._lines = {name: Line(spec) for name, spec in agents.items()}
        self._tasks: list[asyncio.Task[None]] = []
        self._held: dict[int, Message] = {}
        self._held_since: float | None = None
        self._accepting = 0
        self._holding = ""
        self._told_of = ""
        self.fenced = False

    # ------------------------------------------------------------ the store comes and goes

    async def start(self, store: Store) -> None:
        """Take a store that was just opened and go on with what waits in it."""
        self._store = store
        for message in await self.commit(messages.waiting):
            self._take(message)
        self._tasks = [asyncio.create_task(self._serve(line), name=f"agent {name}") for name, line in self._lines.items()]
        self._changed()

    async def stop(self) -> None:
        """Begin nothing more, end turns that run, forget what waits (it is in the store). The store stays open."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for line in self._lines.values():
            line.waiting.clear()
            line.running = line.since = None
        self._held.clear()
        self._store = None

    async def commit(self, job: Job) -> Any:
        """Run a job in the store; raises StoreClosed when it was given up, StoreTrouble when the disk does not let us."""
        if self._store is None:
            raise StoreClosed("the store was given up")
        return await asyncio.wrap_future(self._store.write(job))

    # ------------------------------------------------------------ messages

    async def open(self, id: str, agent: str, title: str = "") -> dict[str, Any]:
        """Make a session with an agent, or return the one there is."""
        if agent not in self.agents:
            raise Refused(f"there is no agent {agent!r}; there are {', '.join(sorted(self.agents)) or 'none'}")
        return await self.commit(lambda t: messages.new_session(t, id, agent, title))

    async def accept(self, session: str, client: str, text: str) -> Accepted:
        """Commit a message and return its number; raises StoreClosed (ask again) or Refused (do not)."""
        self._accepting += 1
        try:
            accepted, agent = await self.commit(lambda t: self._accept(t, session, client, text))
        finally:
            self._accepting -= 1
        if accepted.fresh and self._store is not None:
            self._take(Message(accepted.seq, session, agent, text, accepted.state))
            await self._tell_once_of_holding(accepted)
        self._changed()
        return accepted

    def _accept(self, t: Any, session: str, client: str, text: str) -> tuple[Accepted, str]:
        row = t.db.execute("SELECT agent FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise Refused(f"there is no session {session!r}")
        held = bool(self._holding) and row[0] in self._sharing_gpu()
        return messages.accept(t, session, client, text, HELD if held else QUEUED), row[0]

    def _take(self, message: Message) -> None:
        """Put a committed message where it waits. One whose agent is gone waits until it is back."""
        line = self._lines.get(message.agent)
        if message.state == HELD:
            self._held[message.seq] = message
            self._held_since = self._held_since or self._now()
        elif line is not None:
            line.put(message, self._now())
        else:
            log.warning("message %s waits for the agent %r, which is not installed", message.seq, message.agent)

    # ------------------------------------------------------------ holding

    async def hold(self, render: str) -> None:
        """Hold the messages of agents that share the GPU while a render ('' for none) goes on; queue them at its end.

        Said again and again: what an earlier process held, was just being accepted or could not be queued is queued too.
        """
        self._holding = render
        if not render and self._held:
            await self.flush()

    async def flush(self, session: str | None = None) -> int:
        """Queue what was held, of one session or all, in order; return how many."""
        moved = set(await self.commit(lambda t: messages.flush(t, session=session)))
        for seq in sorted(moved & set(self._held)):
            self._take(replace(self._held.pop(seq), state=QUEUED))
        if not self._held:
            self._held_since = None
        self._changed()
        return len(moved)

    async def _tell_once_of_holding(self, accepted: Accepted) -> None:
        """Say once per render that messages are held."""
        if accepted.state != HELD or self._told_of == self._holding:
            return
        self._told_of = self._holding
        body = json.dumps({"render": self._holding, "text": "held while ComfyUI renders; `send now` does not wait"})
        await self.commit(lambda t: t.event(messages.SERVICE, "held", body))

    def _sharing_gpu(self) -> list[str]:
        return [name for name, spec in self.agents.items() if spec.shares_gpu]

    # ------------------------------------------------------------ turns

    async def _serve(self, line: Line) -> None:
        while True:
            if not line.waiting or self.fenced or self._store is None:
                line.changed.clear()
                await line.changed.wait()
                continue
            line.running, line.since = line.waiting.popleft(), self._now()
            try:
                await self._turn(line, line.running)
            except Exception:  # the store failed: what was begun is undetermined at the next start, the next message is tried
                log.exception("the turn of message %s was not written down", line.running.seq)
                await asyncio.sleep(_PAUSE)
            finally:
                line.running, line.since = None, self._now() if line.waiting else None
                self._changed()

    async def _turn(self, line: Line, message: Message) -> None:
        try:
            turn = await self.commit(lambda t: messages.begin(t, message.seq))
        except Exception:
            line.waiting.appendleft(message)  # nothing was begun
            raise
        if turn is None:
            return log.warning("message %s was begun by somebody else", message.seq)
        state, body = await self._asked(line.spec, message)
        await self._kept(lambda t: messages.end(t, turn, message.seq, state, body))

    async def _kept(self, job: Job) -> None:
        """Commit what must not be lost, again and again while the disk does not let us."""
        while True:
            try:
                return await self.commit(job)
            except StoreTrouble as trouble:
                log.warning("the end of a turn waits: %s", trouble.message)
                await asyncio.sleep(_PAUSE)

    async def _asked(self, spec: AgentSpec, message: Message) -> tuple[str, str]:
        """Ask the agent; return how it ended and what is shown."""
        options = CallOptions(on_progress=self._on_progress(message))
        given = {"session": message.session, "message": message.seq, "text": message.body}
        try:
            answer = await self._workers.call(spec.plan, spec.target, given, options=options)
            return messages.DONE, _body(answer)
        except Exception as error:  # however a call fails, that is how its turn ended
            if not isinstance(error, ComfyEnvError):
                log.exception("the agent %r could not be asked", spec.name)
            return messages.FAILED, json.dumps({"error": type(error).__name__, "text": str(error)})

    def _on_progress(self, message: Message) -> Callable[[Progress], None]:
        """Return what hears the agent's events; it is called on the call's own thread."""
        store = self._store
        assert store is not None

        def heard(progress: Progress) -> None:
            if progress.preview is None and not progress.total:
                return None
            body = (
                _body(progress.preview) if progress.preview is not None else json.dumps({"value": progress.value, "total": progress.total})
            )
            with contextlib.suppress(StoreClosed):  # the service ends: the turn is undetermined, whatever the agent still says
                store.write(lambda t: messages.said(t, message.seq, body))

        return heard

    def interrupt(self, session: str) -> bool:
        """Ask the turn that runs in a session to end."""
        for line in self._lines.values():
            if line.running is not None and line.running.session == session:
                return self._workers.interrupt(line.spec.plan)
        return False

    # ------------------------------------------------------------ the gate

    def fence(self, up: bool) -> None:
        """Let no turn begin, or let them begin again."""
        self.fenced = self._workers.fenced = up
        for line in self._lines.values():
            line.changed.set()

    def blockers(self) -> Iterator[Blocker]:
        """Say what a restart would interrupt or delay."""
        lines = self._lines.values()
        running = [line for line in lines if line.running is not None]
        queued = [line for line in lines if line.waiting]
        yield Blocker(Kind.TURN, self._verdict([f"agent {line.spec.name}" for line in running], running))
        names = [f"{len(line.waiting)} for {line.spec.name}" for line in queued] + (["one being accepted"] if self._accepting else [])
        yield Blocker(Kind.QUEUE, self._verdict(names, queued))
        yield Blocker(Kind.HELD, Busy(f"{len(self._held)} held", self._held_since) if self._held else Idle())
        yield Blocker(Kind.CALL, self._workers.verdict())

    def _verdict(self, names: list[str], lines: list[Line]) -> Verdict:
        since = [line.since for line in lines if line.since is not None]
        return Busy(", ".join(names), min(since, default=None)) if names else Idle()


def _body(value: Any) -> str:
    """Return what an agent gave as JSON that any client can read; what JSON cannot hold is told as text."""
    try:
        return json.dumps(value if isinstance(value, dict) else {"text": value}, default=str, allow_nan=False)
    except (ValueError, TypeError, RecursionError):  # no number, a key that is no string, a value that holds itself
        return json.dumps({"text": reprlib.repr(value)})
