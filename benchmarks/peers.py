"""Who is measured: what each peer is called, what its venv needs from the package index, and the driver that speaks to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
BASE = (TORCH, "numpy>=1.26")
"""Installed once, and seen by the venv of every peer, so that all of them load the very same files."""
OURS = "comfy_env"


@dataclass(frozen=True)
class Peer:
    """``key`` is also the driver's name, ``distribution`` the one whose version is told."""

    key: str
    title: str
    requires: tuple[str, ...] = ()
    distribution: str = ""


PEERS = (
    Peer("inprocess", "in process"),
    Peer("socketpair", "bare socketpair"),
    Peer("pipe", "mp.Pipe"),
    Peer("torchqueue", "torch Queue"),
    Peer("execnet", "execnet", ("execnet==2.1.2",), "execnet"),
    Peer("executor", "ProcessPoolExecutor"),
    Peer("loky", "loky", ("loky==3.7.0",), "loky"),
    Peer("appose", "appose", ("appose==0.12.0",), "appose"),
    Peer("zmq", "pyzmq", ("pyzmq==27.3.0",), "pyzmq"),
    Peer("ray", "Ray", ("ray==2.60.0",), "ray"),
    Peer("dask", "dask", ("distributed==2026.8.0",), "distributed"),
    Peer("pyisolate", "pyisolate", ("pyisolate==0.10.2",), "pyisolate"),
    Peer("oldenv", "comfy-env 0.4.46", ("comfy-env==0.4.46",), "comfy-env"),
    Peer(OURS, "comfy_env (this)", ("-e", str(CHECKOUT)), "comfy-env"),
)
BY_KEY = {peer.key: peer for peer in PEERS}
EVERYONE = tuple(BY_KEY)


def named(keys: str) -> list[Peer]:
    """Return the peers of a comma-separated list; raises SystemExit naming those there are."""
    wanted = [key.strip() for key in keys.split(",") if key.strip()]
    unknown = [key for key in wanted if key not in BY_KEY]
    if unknown:
        raise SystemExit(f"no peer is called {', '.join(unknown)}; there are: {', '.join(BY_KEY)}")
    return [BY_KEY[key] for key in wanted]
