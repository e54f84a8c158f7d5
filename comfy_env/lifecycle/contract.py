"""Which effect is carried out by whom, and which events answer it: the one table the driver is held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e


@dataclass(frozen=True, slots=True)
class Duty:
    """``by`` names the hook, port or thread that carries an effect out; ``answers`` are the events that may follow."""

    by: str
    answers: tuple[type[e.Event], ...] = ()
    limit: str = ""


DUTIES: Mapping[type[f.Effect], Duty] = {
    f.Spawn: Duty("hook `spawn`", (e.Spawned, e.SpawnFailed), "spawn"),
    f.OpenLanes: Duty("hook `transport`", (e.SignOfLife, e.LanesOpen, e.LanesFailed), "birth"),
    f.Prove: Duty("hook `verify`", (e.Proved, e.ProofFailed), "verify"),
    f.Dispatch: Duty("the asking thread", (e.Accepted, e.CallWithdrawn)),
    f.Ping: Duty("the main lane", (e.Ponged, e.PingFailed), "ping"),
    f.Release: Duty("hook `release`", (e.Receipt, e.ReleaseFailed), "release"),
    f.SendInterrupt: Duty("the side lane", (), "interrupt_grace"),
    f.Goodbye: Duty("the main lane", (e.ProcessExited,), "shutdown"),
    f.AskStack: Duty("the worker's signal handler", (e.StackRead,), "stack"),
    f.Kill: Duty("hook `kill`, then the core's own kill", (e.TreeGone, e.WontDie), "kill"),
    f.DropZygote: Duty("the zygote's keeper"),
    f.Quarantine: Duty("port `StandInShelf`"),
    f.DropQuarantine: Duty("port `StandInShelf`"),
    f.Settle: Duty("the asking thread"),
    f.Note: Duty("the log"),
}
