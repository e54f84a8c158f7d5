"""Which of the host's environment variables a worker gets: everything but what is known to break it or is a secret.

A deny-list, because an allow-list breaks users whose hardware needs variables nobody listed. What goes: whatever tells
Python, virtual environments, conda and their tools where to look; settings of the host's CUDA allocator that must not
be shared; secrets, unless the plan asks for them by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from comfy_env.process.procs import HOST_NONCE, NONCE
from comfy_env.values import EnvPlan

DENIED = frozenset({
    "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "__PYVENV_LAUNCHER__", "_CE_CONDA", "_CE_M", "CONDARC", "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "JPY_PARENT_PID", "JPY_SESSION_NAME", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_RCFILE",
})
DENIED_PREFIXES = (
    "PYTHON", "CONDA_", "_CONDA_", "MAMBA_", "PIXI_", "_OLD_VIRTUAL_", "PIP_", "UV_", "PYENV_", "PIPENV_", "POETRY_", "PDM_", "HATCH_",
    "RYE_", "SETUPTOOLS_", "DISTUTILS_", "TOX_", "NOX_", "PYTEST_", "COMFY_ENV_ORCH_", "COV_CORE_", "PYDEVD_", "DEBUGPY_", "PYCHARM_",
)
KEPT = frozenset({"PYTHONUTF8", "PYTHONIOENCODING"})  # about text only

SECRET_PREFIXES = ("AWS_",)
SECRET_NAMES = frozenset({"KUBECONFIG", "NETRC", "GPG_AGENT_INFO", "DATABASE_URL", "REDIS_URL", "SSHPASS", "PGPASSFILE"})
SECRET_WORDS = frozenset({
    "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "AUTH", "BEARER",
    "COOKIE", "JWT",
})
SECRET_ENDINGS = (
    "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS", "APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "PWD",
)
"""A word that ends so says what it holds also where it is glued to another (PGPASSWORD); one that only begins so does not (TOKENIZERS)."""
SECRET_LAST_WORDS = frozenset({"KEY", "KEYS", "PASS", "PAT", "DSN"})
FOLDERS = frozenset({"PWD", "OLDPWD"})
SECRET_PAIRS = ("API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "CONNECTION_STRING")

URL_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@:]*:[^\s/?#@]+@", re.IGNORECASE)
PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "SOCKS_PROXY"})
"""Their passwords pass: a worker that downloads a model has no other way out."""

ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_ASYNC_BACKEND = re.compile(r"(^|,)\s*backend\s*:\s*cudaMallocAsync\s*(?=,|$)")
LOCAL = ("localhost", "127.0.0.1")
TUNABLES = "GLIBC_TUNABLES"
HUGE_PAGES = "glibc.malloc.hugetlb"


def select(plan: EnvPlan, host: Mapping[str, str], *, nonce: str, host_nonce: str, generation: int) -> dict[str, str]:
    """Return the whole environment of a plan's worker."""
    chosen = {name: value for name, value in host.items() if passes(name, value, plan.secrets)}
    _strip_allocator(chosen)
    _drop_the_hosts_tools(chosen, host)
    _keep_local_traffic_local(chosen)
    if plan.device is not None:
        chosen["CUDA_VISIBLE_DEVICES"] = visible_device(plan.device, host.get("CUDA_VISIBLE_DEVICES"))
    chosen.update((name, str(value)) for name, value in plan.variables)
    chosen.update({NONCE: nonce, HOST_NONCE: host_nonce, "COMFY_ENV_ENV": plan.key, "COMFY_ENV_GENERATION": str(generation)})
    return chosen


def with_huge_pages(chosen: Mapping[str, str], libc: str | None = None) -> dict[str, str]:
    """Return the variables with the wish that malloc asks for huge pages, unless they speak of that already or the C library knows none.

    The first touch of a large result costs a page fault for each page: a tensor of 192 MiB takes 27 ms instead of 83, a worker with
    torch 2 MiB more (measured, glibc 2.36).
    """
    wishes = chosen.get(TUNABLES, "")
    if not _knows_huge_pages(_libc() if libc is None else libc) or HUGE_PAGES in wishes:
        return dict(chosen)
    return {**chosen, TUNABLES: ":".join(part for part in (wishes, f"{HUGE_PAGES}=1") if part)}


def _libc() -> str:
    """Return what the C library of this process calls itself, "glibc 2.36"; '' where it does not say."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):   # another system, another C library
        return ""


def _knows_huge_pages(libc: str) -> bool:
    name, _, version = libc.partition(" ")
    numbers = version.split(".")
    return name == "glibc" and all(number.isdigit() for number in numbers) and [int(number) for number in numbers] >= [2, 35]


def with_tools_of(program: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the environment's own programs first on PATH, if the program lies in an environment."""
    folder = os.path.dirname(program)
    home = os.path.dirname(folder)
    if not any(os.path.exists(os.path.join(home, sign)) for sign in ("pyvenv.cfg", "conda-meta")):
        return dict(chosen)
    others = [entry for entry in chosen.get("PATH", os.defpath).split(os.pathsep) if entry != folder]
    return {**chosen, "PATH": os.pathsep.join([folder, *others])}


def passes(name: str, value: str = "", asked: tuple[str, ...] = ()) -> bool:
    """Return whether a variable of the host reaches a worker. ``asked``: secrets the plan names."""
    if name in KEPT:
        return True
    if name in DENIED or name.startswith(DENIED_PREFIXES):
        return False
    if name == "MPLBACKEND" and value.startswith("module://"):  # a notebook's backend, not installed in the environment
        return False
    return name in asked or not (is_secret(name) or holds_password(name, value))


def holds_password(name: str, value: str) -> bool:
    """Return whether a variable's value is or contains a URL with a password, and it is no proxy."""
    return name.upper() not in PROXIES and URL_WITH_PASSWORD.search(value) is not None


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that it holds a secret."""
    upper = name.upper()
    if upper in FOLDERS:
        return False
    words = [word for word in upper.split("_") if word]
    return (
        upper in SECRET_NAMES
        or upper.startswith(SECRET_PREFIXES)
        or not SECRET_WORDS.isdisjoint(words)
        or any(word.endswith(SECRET_ENDINGS) for word in words)
        or (len(words) > 1 and words[-1] in SECRET_LAST_WORDS)
        or any(pair in upper for pair in SECRET_PAIRS)
    )


def visible_device(device: str, visible: str | None) -> str:
    """Return CUDA_VISIBLE_DEVICES for one device as the host counts it; '' hides all ("cpu")."""
    wanted = device.removeprefix("cuda").removeprefix(":")
    if device == "cpu":
        return ""
    if not wanted:
        wanted = "0"
    listed = [entry.strip() for entry in (visible or "").split(",") if entry.strip()]
    if wanted.isdigit() and listed:
        return listed[int(wanted)] if int(wanted) < len(listed) else ""
    return wanted


def _strip_allocator(chosen: dict[str, str]) -> None:
    for name in ALLOCATORS:
        if name in chosen:
            kept = _ASYNC_BACKEND.sub("", chosen.pop(name)).strip(" ,")
            chosen.update({name: kept} if kept else {})


def _drop_the_hosts_tools(chosen: dict[str, str], host: Mapping[str, str]) -> None:
    """Take the host's own venv off PATH: a `pip` started in a worker must not change the host."""
    venv = host.get("VIRTUAL_ENV")
    if venv and "PATH" in chosen:
        unwanted = {os.path.normpath(os.path.join(venv, folder)) for folder in ("bin", "Scripts")}
        kept = [entry for entry in chosen["PATH"].split(os.pathsep) if os.path.normpath(entry or ".") not in unwanted]
        chosen["PATH"] = os.pathsep.join(kept)


def _keep_local_traffic_local(chosen: dict[str, str]) -> None:
    given = ",".join(chosen.get(name, "") for name in ("NO_PROXY", "no_proxy"))
    listed = [entry.strip() for entry in given.split(",") if entry.strip()]
    chosen["NO_PROXY"] = chosen["no_proxy"] = ",".join(dict.fromkeys([*listed, *LOCAL]))
