"""`python -m comfy_env.orchestrator serve | selftest`.

Little is imported before it is known that this process may serve, so a second one says in a moment who does; everything
is imported before it says that it can, so the disk may change under it afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import devwatch, front, listener, logs, selftest, supervise
from comfy_env.orchestrator.instance import Instance, state_folder
from comfy_env.orchestrator.pipe import COMMIT, FAILED, GENERATION, HANDOVER, HELLO, LISTENER, LISTENING, Heir
from comfy_env.orchestrator.problems import OWNED_BY_ANOTHER, STORE_REFUSED, Owned, StoreRefused
from comfy_env.orchestrator.settings import OrchestratorSettings
from comfy_env.process.launch import host_environment

log = logging.getLogger(__name__)

FRONT = Path(front.__file__).read_text(encoding="utf-8")
"""Read now: when it is needed the file may be another one."""

ANSWER = 30.0
FAILURE = 1
INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m comfy_env.orchestrator", description="A local service that keeps itself current.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve until told to stop")
    serve.add_argument("--port", type=_port, help="the port to listen on (default: COMFY_ENV_ORCH_PORT)")
    serve.add_argument("--state", type=Path, metavar="FOLDER", help="the instance's state folder (default: COMFY_ENV_ORCH_STATE_DIR)")
    serve.add_argument("--agents", action="append", default=[], metavar="MODULE:OBJECT", help="a plugin beside those installed; repeatable")
    serve.add_argument("--verbose", action="store_true", help="log more")
    commands.add_parser("selftest", help="see whether the code on disk can serve; writes one JSON document")
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 takes a free one, else 1 to 65535")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    boot = devwatch.snapshot()   # before anything else is imported: what changes later is not what runs
    options = build_parser().parse_args(argv)
    return selftest.main() if options.command == "selftest" else serve(options, boot)


def serve(options: argparse.Namespace, boot: devwatch.Snapshot) -> int:
    environ = host_environment()
    heir = Heir.of(environ)
    environ = {name: value for name, value in environ.items() if name not in (HANDOVER, GENERATION)}
    _log(options, heir)
    try:
        return _start(options, boot, environ, heir)
    except Exception as error:  # said to the predecessor, or to people, and ended by its kind
        return _refused(error, heir)
    except KeyboardInterrupt:  # before it served: from then on a signal is an ordinary end
        return INTERRUPTED


def _log(options: argparse.Namespace, heir: Heir | None) -> None:
    logs.speaking.number = str(heir.generation) if heir else "new"
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(logs.speaking)
    handler.setFormatter(logging.Formatter("%(asctime)s [%(process)d generation %(generation)s] %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.INFO, handlers=[handler])


def _refused(error: Exception, heir: Heir | None) -> int:
    told = str(error) if isinstance(error, ComfyEnvError) else f"{type(error).__name__}: {error}"
    log.error("%s", told, exc_info=None if isinstance(error, ComfyEnvError) else error)
    if heir is not None:
        heir.say(FAILED, why=told)
    if isinstance(error, Owned):
        return OWNED_BY_ANOTHER
    return STORE_REFUSED if isinstance(error, StoreRefused) else FAILURE


def _start(options: argparse.Namespace, boot: devwatch.Snapshot, environ: Mapping[str, str], heir: Heir | None) -> int:
    settings = OrchestratorSettings.read(environ)
    folder = state_folder(options.state or settings.state_dir)
    given = _inherited(heir) if heir is not None else {}
    instance = Instance.inherit(folder, given["lock"]) if heir is not None else Instance.take(folder)
    with contextlib.closing(instance):
        selftest.import_all()
        inner = importlib.import_module("comfy_env.orchestrator.startup")
        with _listener(options, settings, environ, given) as socket:
            terminal = given["lineage"] is not None if heir is not None else any(map(os.isatty, range(3)))
            start = inner.Start(
                instance=instance, listener=socket, settings=settings, life=_life(environ, settings, heir), boot=boot,
                argv=(sys.executable, *sys.orig_argv[1:]), environ=environ, heir=heir, lineage=given.get("lineage"), terminal=terminal,
            )
            code, successor = inner.run(start, options.agents, lambda: _await_word(heir))
    return code if successor is None else become_front(*successor)


def _inherited(heir: Heir) -> dict[str, Any]:
    """Say hello and hear what was passed on."""
    heir.say(HELLO, pid=os.getpid())
    given = heir.hear(LISTENER, ANSWER)
    if given["lineage"] is not None:
        os.set_inheritable(given["lineage"], False)
    return given


def _await_word(heir: Heir | None) -> None:
    """Say that everything is ready and wait for the word, however long: a predecessor that ends is heard."""
    if heir is not None:
        heir.say(LISTENING)
        heir.hear(COMMIT, None)


def _listener(options: argparse.Namespace, settings: OrchestratorSettings, environ: Mapping[str, str], given: Mapping[str, Any]) -> Any:
    if given:
        return listener.inherited(given["listener"])
    found = listener.from_supervisor(environ.get("LISTEN_FDS", ""), environ.get("LISTEN_PID", ""), os.getpid())
    return found or listener.bind(settings.host, settings.port if options.port is None else options.port, settings.bind)


def _life(environ: Mapping[str, str], settings: OrchestratorSettings, heir: Heir | None) -> supervise.Life:
    parent = os.getppid()
    name = ""
    with contextlib.suppress(OSError):  # a system without /proc, or a parent that is gone
        name = Path(f"/proc/{parent}/comm").read_text(errors="replace").strip()
    return supervise.judge(supervise.Facts(os.getpid(), parent, name, environ, settings.told_supervised, heir is not None))


def become_front(lineage: int, pid: int) -> int:
    """Stay in the terminal as the waiter, under the same number; where the interpreter is gone, wait as we are."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.set_inheritable(lineage, True)
    with contextlib.suppress(OSError):  # the interpreter vanished: this very process waits
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", FRONT, str(lineage), str(pid)])
    return front.Front(lineage, pid).run()


if __name__ == "__main__":
    sys.exit(main())
