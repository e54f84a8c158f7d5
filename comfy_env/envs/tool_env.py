"""The variables an installer runs with: this process's own, without what would send the install somewhere else.

A launcher's variables may name another target, demand another environment or hold paths relative to another folder;
what tells an installer how to reach its indexes (mirror, proxy, certificates, time limits) is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from comfy_env.process.launch import host_environment

_KEPT = re.compile(
    r"PIP_(INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|CERT|CLIENT_CERT|PROXY|TRUSTED_HOST|TIMEOUT|DEFAULT_TIMEOUT|RETRIES|RESUME_RETRIES"
    r"|KEYRING_PROVIDER|CACHE_DIR|CONFIG_FILE|CONSTRAINT|USE_FEATURE|USE_DEPRECATED|DISABLE_PIP_VERSION_CHECK)"
    r"|UV_(INDEX|INDEX_URL|DEFAULT_INDEX|EXTRA_INDEX_URL|INDEX_STRATEGY|INDEX_.*_(USERNAME|PASSWORD)|FIND_LINKS|NO_INDEX|OFFLINE|INSECURE_HOST"
    r"|NATIVE_TLS|SYSTEM_CERTS|HTTP_TIMEOUT|HTTP_CONNECT_TIMEOUT|HTTP_RETRIES|REQUEST_TIMEOUT|KEYRING_PROVIDER|CREDENTIALS_DIR|CACHE_DIR|CONFIG_FILE|CONSTRAINT"
    r"|LINK_MODE|CONCURRENT_.*|PYTHON_INSTALL_DIR|PYTHON_INSTALL_MIRROR|PYTHON_DOWNLOADS|TORCH_BACKEND)"
    r"|PIXI_(HOME|CONFIG_FILE|NO_CONFIG|OFFLINE|TLS_ROOT_CERTS|CACHE_DIR)|RATTLER_(AUTH_FILE|CACHE_DIR)"
)
_JUDGED = re.compile(r"(PIP|UV|CONDA|PIXI|RATTLER|MAMBA|POETRY|PDM|PYENV)_.*|PYTHON.*|VIRTUAL_ENV.*|__PYVENV_LAUNCHER__|_CE_.*")
_HARMLESS = re.compile(
    r"PYENV_ROOT|PYTHONUTF8|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONIOENCODING|CONDA_OVERRIDE_.*"
    r"|(CONDA|MAMBA)_(SSL_VERIFY|CHANNEL_ALIAS|CACHE_DIR)"
)
_FILES = re.compile(r".*_(CONSTRAINT|CONFIG_FILE|AUTH_FILE|HOME|CERT|CACHE_DIR|INSTALL_DIR|CREDENTIALS_DIR)")
LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class ToolEnv:
    """The variables to use and the names of those left out."""

    variables: dict[str, str]
    dropped: tuple[str, ...]


def inherited() -> dict[str, str]:
    """Return the variables a program started from here inherits."""
    return host_environment()


def select(environ: Mapping[str, str]) -> ToolEnv:
    """Return what an installer gets of the given variables."""
    dropped = sorted(name for name, value in environ.items() if not _passes(name.upper(), value))
    kept = {name: value for name, value in environ.items() if name not in dropped}
    for name in ("NO_PROXY", "no_proxy"):
        kept[name] = _with_local(environ.get("NO_PROXY") or environ.get("no_proxy") or "")
    return ToolEnv(kept, tuple(dropped))


def _passes(name: str, value: str) -> bool:
    if _JUDGED.fullmatch(name) and not (_KEPT.fullmatch(name) or _HARMLESS.fullmatch(name)):
        return False
    if _KEPT.fullmatch(name) and _FILES.fullmatch(name):
        return all(os.path.isabs(Path(part).expanduser()) or part == os.devnull for part in value.split())
    return True


def _with_local(no_proxy: str) -> str:
    hosts = [host.strip() for host in no_proxy.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in LOCAL if host not in hosts)])
