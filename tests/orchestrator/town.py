"""A real service in a folder of its own: started, asked, watched through its generations, and ended with all it started."""

from __future__ import annotations

import compileall
import contextlib
import functools
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import comfy_env

SOURCES = Path(comfy_env.__file__).resolve().parent
FAST = {
    "COMFYUI_URL": "off",
    "MIN_UPTIME_S": "0",
    "GATE_POLL_S": "0.2",
    "DEV_POLL_S": "0.1",
    "CONFIRM_S": "0.5",
    "UNKNOWN_HOLD_S": "1",
    "SUPERVISED": "0",   # whoever runs the tests may be a container's first process
}


class Town:
    """One service. `tree` is the copy of the sources it runs from, or None for the project's own."""

    def __init__(
        self, folder: Path, *, copied: bool = False, program: Path | None = None, state: Path | None = None, **settings: Any
    ) -> None:
        self.folder = folder
        self.state = state or folder / "state"
        self.ledger = folder / "ledger"
        self.log = folder / "log"
        self.id = secrets.token_hex(8)
        self.tree = self._copy() if copied else None
        self.python = sys.executable
        self.program = [str(program)] if program else ["-m", "comfy_env.orchestrator"]
        self.environ = self._environ(settings)
        self.more: list[str] = []
        self.first: subprocess.Popen[bytes] | None = None

    def _copy(self) -> Path:
        tree = self.folder / "tree"
        compiled()
        shutil.copytree(SOURCES, tree / "comfy_env")  # byte code too: it is valid, and starts are quick
        return tree

    def _environ(self, settings: dict[str, Any]) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("COMFY_ENV_", "SYSTEMD_", "LISTEN_"))}
        watch = {} if self.tree else {"COMFY_ENV_AUTO_UPDATE_DISABLE": "1"}  # the project's own tree may be edited meanwhile
        more = {f"COMFY_ENV_ORCH_{name}": str(value) for name, value in {**FAST, **settings}.items()}
        paths = [str(self.tree or SOURCES.parent), str(Path(__file__).parents[2])]
        return {
            **given,
            **more,
            **watch,
            "TOWN": self.id,
            "COMFY_ENV_RUNTIME": str(self.folder / "run"),
            "COMFY_ENV_LOGS": str(self.folder / "logs"),
            "COMFY_ENV_ORCH_STATE_DIR": str(self.state),
            "COMFY_ENV_ECHO_LEDGER": str(self.ledger),
            "PYTHONPATH": os.pathsep.join(paths),
        }

    # ------------------------------------------------------------ life

    def argv(self, *more: str) -> list[str]:
        return [self.python, *self.program, "serve", "--port", "0", "--agents", "comfy_env.testing.echo:plugin", *self.more, *more]

    def start(self, **environ: str) -> Town:
        self.state.mkdir(exist_ok=True)
        (self.state / "service.json").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.first = subprocess.Popen(
                self.argv(),
                env={**self.environ, **environ},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait(lambda: self.owner or self._died(), 30, "the service serves")
        return self

    def _died(self) -> None:
        assert self.first is not None
        if self.first.poll() is not None:
            raise AssertionError(f"the service ended with {self.first.returncode}:\n{self.words()[-3000:]}")

    def words(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, question: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
        limit = time.monotonic() + seconds
        while not (answer := question()):
            if time.monotonic() > limit:
                raise AssertionError(f"not within {seconds} s: {what or question}\n{self.words()[-4000:]}")
            time.sleep(0.01)
        return answer

    def generation(self, number: int, seconds: float = 40.0) -> int:
        """Wait until a generation serves; return its pid."""
        return self.wait(lambda: self.owner.get("generation", 0) >= number and self.owner["pid"], seconds, f"generation {number}")

    @property
    def owner(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.state / "service.json").read_text())
        return {}

    def pids(self) -> list[int]:
        """Every process of this town, workers included."""
        mark, found = f"TOWN={self.id}".encode(), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and int(name) != os.getpid() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def services(self) -> list[int]:
        """The processes that serve or stand by."""
        return [pid for pid in self.pids() if b"serve\0" in self._command(pid) and not is_zombie(pid)]

    def _command(self, pid: int) -> bytes:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    def close(self) -> None:
        for _ in range(200):
            left = [pid for pid in self.pids() if not is_zombie(pid)]
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        if self.first is not None:
            self.first.wait(10)
        if os.getpid() == 1:
            collect_orphans()

    # ------------------------------------------------------------ asking

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.owner["url"])
        return parts.hostname or "", parts.port or 0

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*self.address, timeout=15)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self.headers if headers is None else headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, document = self.ask("GET", path)
        assert status == 200, (status, document)
        return document

    def do(self, what: str, **facts: Any) -> Any:
        status, document = self.ask("POST", f"/api/do/{what}", facts)
        assert status == 200, (status, document)
        return document

    def phase(self) -> str:
        return self.get("/api/state")["restart"]["phase"]

    def notes(self) -> list[str]:
        return [note["text"] for note in self.get("/api/state")["notes"]]

    def session(self, id: str = "s", agent: str = "echo") -> None:
        assert self.ask("POST", "/api/sessions", {"session": id, "agent": agent})[0] == 200

    def send(self, text: str, id: str | None = None, session: str = "s") -> Any:
        """Send a message, again and again under the same id until it is accepted."""
        given = {"session": session, "id": id or secrets.token_hex(8), "text": text}
        return self.wait(lambda: self._sent(given), 30, f"{text!r} is accepted")

    def _sent(self, given: dict[str, str]) -> Any:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, document = self.ask("POST", "/api/messages", given)
            assert status in (200, 503), (status, document)
            return document if status == 200 else None

    def events(self, session: str = "s") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while more := self.get(f"/api/events?session={session}&after={found[-1]['seq'] if found else 0}")["events"]:
            found += more
        return found

    def ends(self, session: str = "s") -> dict[int, list[str]]:
        """How each message ended, by number."""
        ended: dict[int, list[str]] = {}
        for event in self.events(session):
            if event["what"] == "message":
                ended.setdefault(event["message"], [])
            elif event["what"] in ("done", "failed", "undetermined"):
                ended.setdefault(event["message"], []).append(event["what"])
        return ended

    def served(self) -> list[str]:
        """The texts that agents were given, in order."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [line.partition("\t")[2] for line in lines]

    # ------------------------------------------------------------ the sources

    def source(self, name: str) -> Path:
        assert self.tree is not None
        return self.tree / "comfy_env" / name

    def touch(self, name: str = "orchestrator/proto.py") -> None:
        path = self.source(name)
        now = time.time_ns()
        os.utime(path, ns=(now, now))

    def edit(self, name: str, old: str, new: str) -> None:
        """Change a source file, whole or not at all."""
        path = self.source(name)
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} does not hold {old!r}"
        path.with_suffix(".new").write_text(text.replace(old, new, 1), encoding="utf-8")
        os.replace(path.with_suffix(".new"), path)

    def attempts(self) -> int:
        """How many replacements were started so far."""
        return self.words().count("was started")

    def contents(self) -> dict[str, bytes]:
        """Every file of the tree, byte code included."""
        assert self.tree is not None
        return {str(path.relative_to(self.tree)): path.read_bytes() for path in self.tree.rglob("*") if path.is_file()}


@contextlib.contextmanager
def town(folder: Path, **more: Any) -> Iterator[Town]:
    place = Town(folder, **more)
    try:
        yield place
    finally:
        place.close()


def collect_orphans() -> None:
    """Collect what ended and was ours only because we are a container's first process: nobody else does."""
    limit = time.monotonic() + 2.0
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < limit:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.01)


@functools.cache
def compiled() -> bool:
    """Have byte code for all of the sources, once: services of a copied tree write none, and would compile it at each start."""
    return compileall.compile_dir(str(SOURCES), quiet=2)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def is_refused(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) != 0
