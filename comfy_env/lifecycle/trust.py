"""Judges a worker's proof. The backend brings evidence; only this decides whether the worker is used."""

from __future__ import annotations

from dataclasses import dataclass

from comfy_env.values import Proof


@dataclass(frozen=True, slots=True)
class Verdict:
    """``refused`` and ``demoted`` say why; empty: it is not. ``gpu_ok``: device memory may be shared."""

    refused: str = ""
    demoted: str = ""
    gpu_ok: bool = True


def judge(proof: Proof, expected: str) -> Verdict:
    """Return whether a worker may be used, and whether its device memory may be shared.

    Contents are compared, never flags: a broken channel can deliver zeros without any error.
    """
    refused = _differs("canary", proof.cpu, expected) or _differs("canary's echo", proof.echo, expected)
    if refused:
        return Verdict(refused=refused, gpu_ok=False)
    demoted = _device_fault(proof, expected)
    alone = proof.gpu is None and (proof.host_device is None) is not (proof.worker_device is None)
    return Verdict(demoted=demoted, gpu_ok=not demoted and not alone)


def _differs(what: str, digest: str | None, expected: str) -> str:
    if digest is None:
        return f"the {what} did not come back"
    return "" if digest == expected else f"the {what} came back changed"


def _device_fault(proof: Proof, expected: str) -> str:
    shared = proof.host_device is not None and proof.worker_device is not None
    if shared and proof.host_device != proof.worker_device:
        return f"this process sees device {proof.host_device}, the worker {proof.worker_device}"
    if proof.gpu is None and proof.gpu_echo is None and not shared:
        return ""
    return _differs("canary on the device", proof.gpu, expected) or _differs("canary's echo from the device", proof.gpu_echo, expected)
