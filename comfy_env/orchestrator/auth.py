"""Who may talk to the service: the right host name, a page of its own or none, and a token. Knows nothing of HTTP libraries.

A web page of somebody else's can reach a local port: its Origin, and after a DNS rebinding its Host, give it away. A
one-time code is shown in a link's fragment, which no server and no log ever sees, and buys a device token for a cookie.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from comfy_env.orchestrator import instance

TOKEN_FILE = "token"
SHORTEST_TOKEN = 20
COOKIE = "comfy_env_device"
CODE_SECONDS = 120.0
MOST_CODES = 16
MOST_MISSES = 10
LOCAL = ("localhost", "127.0.0.1", "[::1]")
EVERYWHERE = ("0.0.0.0", "::", "")
_DEFAULTS = {"http": 80, "https": 443}


def token(folder: Path) -> str:
    """Return the instance's token, made where there is none that only this user can know. For the owner of the folder."""
    with instance.usable(folder):
        known = known_token(folder) if _is_private(folder / TOKEN_FILE) else ""
        return known if len(known) >= SHORTEST_TOKEN else _made(folder)


def _is_private(path: Path) -> bool:
    """Tell whether a file is one that only this user can have written and read."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return False


def _made(folder: Path) -> str:
    made, path = secrets.token_urlsafe(32), folder / f".{TOKEN_FILE}.{os.getpid()}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path, folder / TOKEN_FILE)   # whole or not at all: half a token would let strangers in
    return made


def known_token(folder: Path) -> str:
    """Return the instance's token, '' where there is none yet."""
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):  # never made, or not by us
        return (folder / TOKEN_FILE).read_text(encoding="ascii").strip()
    return ""


def digest(device: str) -> str:
    """Return what is kept of a device token."""
    return hashlib.sha256(_bytes(device)).hexdigest()


class Codes:
    """One-time codes: each works once, for two minutes; guessing is stopped by the number of misses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, float] = {}
        self._misses: list[float] = []

    def issue(self) -> str:
        """Return a new code; the oldest goes where there are too many."""
        self._forget()
        while len(self._codes) >= MOST_CODES:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(24)
        self._codes[code] = self._clock() + CODE_SECONDS
        return code

    def redeem(self, given: str) -> bool:
        """Tell whether a code is good; it is none from then on."""
        self._forget()
        if len(self._misses) >= MOST_MISSES:
            return False
        good = next((code for code in self._codes if same(code, given)), None)
        if good is None:
            self._misses.append(self._clock())
            return False
        del self._codes[good]
        return True

    def _forget(self) -> None:
        now = self._clock()
        self._codes = {code: until for code, until in self._codes.items() if until > now}
        self._misses = [at for at in self._misses if now - at < CODE_SECONDS]


class Guard:
    """Judges a request by its headers. `devices` holds the digests of the device tokens that were given out."""

    def __init__(self, token: str, host: str, port: int, devices: Iterable[str] = ()) -> None:
        self._token = token
        self.devices = set(devices)
        names = LOCAL if host in EVERYWHERE else (*LOCAL, f"[{host}]" if ":" in host else host)
        self._hosts = {name.lower() for name in names}
        self._port = port
        self.cookie = f"{COOKIE}_{port}"   # cookies of one host are shared by its ports

    def stranger(self, host: str | None, origin: str | None) -> str:
        """Return why a request comes from elsewhere, '' if it does not."""
        if host is None or not self._is_ours(f"//{host}"):
            return "this host name is not served here"
        if origin is not None and not (origin.startswith(("http://", "https://")) and self._is_ours(origin)):
            return "pages of other sites may not talk to this service"
        return ""

    def unknown(self, authorization: str | None, cookie: str | None) -> str:
        """Return why nobody vouches for a request, '' if somebody does."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and self._token and same(given.strip(), self._token):
            return ""
        given = cookie_value(cookie, self.cookie)
        device = digest(given) if given else ""
        if device and any(same(device, known) for known in self.devices):
            return ""
        return "a token is needed: the one in the file `token` of the service's state folder"

    def _is_ours(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            port, name = parts.port or _DEFAULTS.get(parts.scheme, 80), parts.hostname
        except ValueError:  # a port that is no number, a bracket that does not close
            return False
        shown = f"[{name}]" if name and ":" in name else (name or "")
        return shown.lower() in self._hosts and port == self._port and not parts.username


def cookie_value(cookie: str | None, name: str) -> str:
    """Return one cookie of a Cookie header, '' where it is missing."""
    jar = SimpleCookie()
    with contextlib.suppress(CookieError):  # other cookies of this host that do not parse
        jar.load(cookie or "")
    return jar[name].value if name in jar else ""


def same(one: str, other: str) -> bool:
    """Compare two secrets in a time that says nothing about where they differ."""
    return hmac.compare_digest(_bytes(one), _bytes(other))


def _bytes(text: str) -> bytes:
    """Return the bytes of what a stranger sent: a header or a JSON string may hold what is no text."""
    return text.encode("utf-8", "surrogatepass")
