"""The fake worker program: the real worker of a run folder, with a fault planted at one moment of its life.

    python -I -u fake_worker.py WORKER_FOLDER --boot FD

Speaks the real wire through the real code, so that what the host meets is what it would meet. The fault stands in the
variable CENV_FAULT as JSON: ``when`` (a moment), ``how`` (a way to end, or what else to do), ``until`` (the last
generation that carries it), ``log`` (a file that gets one line per fault fired). Standard library only, Python 3.9.
"""

import ctypes
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import time

VARIABLE = "CENV_FAULT"
WAYS = {
    "segfault": "signal 11", "abort": "signal 6", "exit 0": "status 0", "sys.exit": "status 3", "kill": "signal 9",
}
MOMENTS = ("import", "hello", "auth", "canary", "idle", "receive", "run", "callback", "reply header", "reply body")


class Fault:
    """One planted fault."""

    def __init__(self, plan):
        self.plan = plan
        self.when = plan.get("when", "")
        self.share = plan.get("share", 0.5)
        self.replies = 0

    def note(self):
        """Write down that the fault was fired, in one piece and at once: what follows may be the end."""
        fd = os.open(self.plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, b"%d\n" % os.getpid())
        os.close(fd)

    def end(self):
        """End in the way that is asked for; a worker that survived it once is spared from then on."""
        how, self.plan["how"] = self.plan["how"], "spared"
        if how != "spared":
            self.note()
        if how == "segfault":
            ctypes.string_at(0)
        elif how == "abort":
            os.abort()
        elif how == "exit 0":
            os._exit(0)
        elif how == "sys.exit":
            sys.exit(3)
        elif how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "sleep":
            time.sleep(600)
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def plant(fault):
    """Plant the fault in the worker's code, which is imported and has not begun."""
    kinds = importlib.import_module("comfy_env.worker.wire.kinds").Kind
    plants = {
        "hello": lambda: before_frame(fault, kinds.HELLO),
        "auth": lambda: before_frame(fault, kinds.RESPONSE),
        "canary": lambda: before_frame(fault, kinds.CANARY_BACK),
        "receipt": lambda: before_frame(fault, kinds.RECEIPT),
        "pong": lambda: before_frame(fault, kinds.PONG),
        "callback": lambda: in_frame(fault, kinds.CALLBACK, lambda size: size),
        "reply header": lambda: in_frame(fault, kinds.REPLY, lambda size: 10),
        "reply body": lambda: in_frame(fault, kinds.REPLY, lambda size: max(33, int(size * fault.share))),
        "idle": lambda: when_idle(fault),
        "receive": lambda: in_the_middle_of_a_frame(fault),
        "run": lambda: in_the_call(fault),
        "arena": lambda: in_shared_memory(fault),
        "stale": lambda: before_replies(fault, kinds.REPLY),
        "bomb": lambda: in_fields(fault, kinds),
    }
    plants[fault.when]()


def streams():
    return importlib.import_module("comfy_env.worker.wire.stream").FrameStream


def around_send(act):
    """Have `act(stream, frame, send)` run in place of each send."""
    cls = streams()
    real = cls.send
    cls.send = lambda self, frame, deadline=None: act(self, frame, lambda other=None: real(self, other or frame, deadline))


def before_frame(fault, kind):
    def act(stream, frame, send):
        if frame.kind == kind:
            fault.end()
        send()

    around_send(act)


def in_frame(fault, kind, how_much):
    """Write so many bytes of a frame, then end."""
    pack = importlib.import_module("comfy_env.worker.wire.frames").pack

    def act(stream, frame, send):
        if frame.kind != kind:
            return send()
        head, payload, buffers = pack(frame)
        data = b"".join([head, payload, *buffers])
        stream.sock.sendall(data[:how_much(len(data))])
        fault.end()

    around_send(act)


def in_shared_memory(fault):
    """End when so many of the reply's buffers lie in shared memory and none of it was told."""
    cls = importlib.import_module("comfy_env.worker.wire.outbox").Outbox
    real, placed = cls.place, []

    def place(self, view):
        if view.nbytes == fault.plan["size"]:
            placed.append(1)
            if len(placed) == fault.plan["nth"]:
                fault.end()
        return real(self, view)

    cls.place = place


def when_idle(fault):
    """End while nothing was asked for a while, after the first reply."""
    cls = streams()
    send, read = cls.send, cls._read

    def counted(self, frame, deadline=None):
        send(self, frame, deadline)
        fault.replies += frame.kind == 11

    def impatient(self, target):
        if fault.replies and not select.select([self.sock], [], [], 0.03)[0]:
            fault.end()
        return read(self, target)

    cls.send, cls._read = counted, impatient


def in_the_middle_of_a_frame(fault):
    cls = streams()
    real = cls._read

    def read(self, target):
        if self._arriving is not None:
            fault.end()
        return real(self, target)

    cls._read = read


def in_the_call(fault):
    cls = importlib.import_module("comfy_env.worker.calls").Calls
    real = cls._apply

    def apply(self, message):
        fault.end()
        return real(self, message)

    cls._apply = apply


def before_replies(fault, kind):
    """Send three replies that are not the asker's before each true one: old generation, old request, a request to come."""
    def act(stream, frame, send):
        if frame.kind == kind:
            for change in ({"generation": frame.generation - 1}, {"request": frame.request - 1}, {"request": frame.request + 1000}):
                fault.note()
                lie = frame.payload.replace(b"truth", b"a lie")
                send(frame._replace(payload=lie, **change))
        send()

    around_send(act)


def in_fields(fault, kinds):
    """Put a payload made by the test in place of that of each frame of one kind."""
    kind, payload = kinds[fault.plan["kind"]], bytes.fromhex(fault.plan["payload"])
    answers = {kinds.REPLY, kinds.RAISED, kinds.REFUSED, kinds.INTERRUPTED}

    def act(stream, frame, send):
        if frame.kind == kind or (kind in answers and frame.kind in answers):
            fault.note()
            frame = frame._replace(kind=kind, payload=payload, buffers=())
        send(frame)

    around_send(act)


def main(folder, option, source):
    fault = Fault(json.loads(os.environ[VARIABLE]))
    wanted = int(os.environ["COMFY_ENV_GENERATION"]) <= fault.plan["until"]
    if wanted and fault.when == "import":
        fault.end()
    spec = importlib.util.spec_from_file_location("comfy_env_worker_program", os.path.join(folder, "__main__.py"))
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.adopt_folder(folder)
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
    if wanted:
        plant(fault)
    boot = importlib.import_module("comfy_env.worker.boot")
    code = boot.run(boot.read_document(option, source))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
