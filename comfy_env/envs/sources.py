"""Where packages come from: pip's own settings of this machine and the plan's indexes, said in pip's and in uv's words.

pip's files are read once through pip itself and handed on by name, so a file that sets a target or demands another
environment changes nothing, and uv finds the mirror, the certificates and the proxy that pip was set up with.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from comfy_env.envs import tools
from comfy_env.packs.redact import secrets_of

_PIP_NAMES = (
    "index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy", "trusted-host", "timeout",
    "retries", "constraint", "keyring-provider", "cache-dir",
)
_UV = (
    ("index-url", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")), ("extra-index-url", ("UV_INDEX", "UV_EXTRA_INDEX_URL")),
    ("no-index", ("UV_NO_INDEX",)), ("find-links", ("UV_FIND_LINKS",)), ("cert", ("SSL_CERT_FILE",)), ("client-cert", ("SSL_CLIENT_CERT",)),
    ("proxy", ("HTTPS_PROXY", "https_proxy")), ("proxy", ("HTTP_PROXY", "http_proxy")), ("trusted-host", ("UV_INSECURE_HOST",)),
    ("timeout", ("UV_HTTP_TIMEOUT",)), ("constraint", ("UV_CONSTRAINT",)), ("keyring-provider", ("UV_KEYRING_PROVIDER",)),
)
"""pip's setting and uv's variable for it, with other names of that which a user may have set."""


@dataclass(frozen=True)
class Sources:
    """pip's settings by long name, the plan's indexes on the net, and its folders of wheels."""

    pip: Mapping[str, str] = field(default_factory=dict)
    indexes: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any output."""
        return secrets_of([*self.indexes, *" ".join(self.pip.values()).split()])

    def folder_options(self) -> list[str]:
        """Return the options, the same for pip and uv, that name the folders of wheels."""
        return [part for folder in self.folders for part in ("--find-links", str(folder))]

    def for_pip(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for a pip that reads no file of its own."""
        given = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in self.pip.items()}
        extra = " ".join(filter(None, [given.get("PIP_EXTRA_INDEX_URL", ""), *self.indexes]))
        given.update({"PIP_EXTRA_INDEX_URL": extra} if extra else {})
        return {**environ, **given, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}

    def for_uv(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for uv; what the user set for uv itself goes before pip's settings."""
        given = {
            "UV_INDEX_STRATEGY": "unsafe-best-match",   # what pip does: the best version of all indexes
            **{names[0]: self._for_uv(setting) for setting, names in _UV if setting in self.pip and environ.keys().isdisjoint(names)},
            **{name: value for name, value in environ.items() if not name.startswith("PIP_")},
        }
        if self.indexes:
            given["UV_INDEX"] = " ".join(filter(None, [*self.indexes, given.get("UV_INDEX", "")]))
        return given

    def _for_uv(self, setting: str) -> str:
        value = self.pip[setting]
        return ",".join(value.split()) if setting == "find-links" else value


def gather(indexes: tuple[str, ...], environ: Mapping[str, str]) -> tuple[Sources, str]:
    """Return the sources of a build and a remark where pip's settings could not be read."""
    settings, remark = pip_settings(environ)
    local = {index: _folder(index) for index in indexes}
    nets = tuple(index for index, folder in local.items() if folder is None)
    return Sources(settings, nets, tuple(folder for folder in local.values() if folder is not None)), remark


def pip_settings(environ: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return pip's settings on this machine, the variables' before the files', as `pip config list` tells them."""
    troubles = []
    for argv in _pips():
        answer = tools.ask([*argv, "config", "list"], 60, env=environ)
        if not answer.trouble:
            return _merged(answer.out), ""
        troubles.append(f"{argv[0]}: {answer.trouble}")
    return {}, f"no pip answers, so its files are not read ({'; '.join(troubles) or 'none found'})"


def _pips() -> list[list[str]]:
    found = [path for path in (shutil.which("pip3"), shutil.which("pip")) if path]
    return [[sys.executable, "-m", "pip"], *([path] for path in found)]


def _merged(listing: str) -> dict[str, str]:
    """Merge the sections in the order pip does: global, the command's own, the variables."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        key, found, value = line.partition("=")
        section, _, name = key.strip().rpartition(".")
        name = {"default-timeout": "timeout"}.get(name, name)
        if found and section in sections and name in _PIP_NAMES:
            sections[section][name] = " ".join(str(ast.literal_eval(value.strip())).split())
    merged = {**sections["global"], **sections["install"], **sections[":env:"]}
    return {name: value for name, value in merged.items() if value and _is_usable(name, value)}


def _is_usable(name: str, value: str) -> bool:
    return name not in ("constraint", "cache-dir", "cert", "client-cert") or all(os.path.isabs(part) for part in value.split())


def _folder(index: str) -> Path | None:
    """Return the folder an index names; None for one on the net."""
    parts = urlsplit(index)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in index else Path(index).absolute()
