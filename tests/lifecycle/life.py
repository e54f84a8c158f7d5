"""Drives the machine as a driver would, one event at a time, checking every rule at every step."""

from __future__ import annotations

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.invariants import violations
from comfy_env.lifecycle.machine import new_env, next_due, step
from comfy_env.lifecycle.memory import Memory, Moment
from comfy_env.lifecycle.record import State
from comfy_env.lifecycle.story import lines_text
from comfy_env.settings import Settings
from comfy_env.values import ExitStatus, Proof

KILLED = ExitStatus(signal=9)
SEGFAULT = ExitStatus(signal=11)
RETURNED = Outcome(Kind.RETURNED)
GOOD = Proof(cpu="d", echo="d")


class Life:
    """An environment's history. ``effects`` are those of the last step, ``settled`` every ticket's outcome so far."""

    def __init__(self, killable: bool = True, **limits: float) -> None:
        self.env = new_env("env", Settings(**limits), killable)
        self.memory = Memory()
        self.now = 0.0
        self.effects: tuple[f.Effect, ...] = ()
        self.settled: dict[int, Outcome] = {}
        self.tickets = 0

    # ---- looking

    @property
    def state(self) -> State:
        return self.env.row.state

    @property
    def generation(self) -> int:
        return self.env.row.generation

    @property
    def story(self) -> str:
        return "\n".join(lines_text(self.env.ledger.story, self.now))

    @property
    def due(self) -> float | None:
        return next_due(self.env)

    def kinds(self) -> list[type[f.Effect]]:
        return [type(effect) for effect in self.effects]

    def one(self, kind: type) -> f.Effect:
        (found,) = (effect for effect in self.effects if type(effect) is kind)
        return found

    def notes(self) -> str:
        return "\n".join(effect.line for effect in self.effects if isinstance(effect, f.Note))

    # ---- going on

    def post(self, event: e.Event, later: float = 0.0) -> Life:
        """Post an event some lived seconds after the last."""
        self.now += later
        before = self.env
        self.env, self.effects = step(before, event, self.now)
        moment = Moment(self.memory, before, event, self.now, self.env, self.effects)
        broken = list(violations(moment))
        assert not broken, f"{broken} after\n{self.story}"
        self.memory = self.memory.after(moment)
        for effect in self.effects:
            if isinstance(effect, f.Settle):
                self.settled[effect.ticket] = effect.outcome
        return self

    def news(self, kind: type, *facts: object, later: float = 0.0) -> Life:
        """Post news of the present generation."""
        return self.post(kind(self.generation, *facts), later)

    def want(self, later: float = 0.0, silence: float | None = None) -> int:
        """Ask for a call and return its ticket."""
        self.tickets += 1
        self.post(e.CallWanted(self.tickets, silence), later)
        return self.tickets

    def tick(self, later: float = 0.0) -> Life:
        return self.post(e.Tick(), later)

    def tick_when_due(self) -> Life:
        assert self.due is not None
        return self.tick(max(0.0, self.due - self.now))

    # ---- stretches of an ordinary life

    def born(self) -> Life:
        """Have a cold environment's worker born for one call and that call answered."""
        ticket = self.want()
        return self.join().prove().accept(ticket).end(ticket)

    def join(self) -> Life:
        return self.news(e.Spawned, 100 + self.generation, "card").news(e.LanesOpen)

    def prove(self, proof: Proof = GOOD) -> Life:
        return self.news(e.Proved, proof, "d")

    def accept(self, ticket: int) -> Life:
        return self.news(e.Accepted, ticket)

    def end(self, ticket: int, outcome: Outcome = RETURNED, later: float = 0.0) -> Life:
        return self.news(e.CallEnded, ticket, outcome, later=later)

    def busy(self, silence: float | None = None) -> int:
        """Have a worker born and in a call; return the call's ticket."""
        if self.state is State.COLD:
            self.born()
        ticket = self.want(silence=silence)
        self.accept(ticket)
        assert self.state is State.BUSY
        return ticket

    def dies(self, status: ExitStatus = KILLED, later: float = 0.0) -> Life:
        return self.news(e.ProcessExited, status, later=later)

    def gone(self, status: ExitStatus = KILLED) -> Life:
        return self.news(e.TreeGone, status)

    def killed_for(self, reason: Reason) -> None:
        kill = self.one(f.Kill)
        assert kill.reason is reason and kill.generation == self.generation
