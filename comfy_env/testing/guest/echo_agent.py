"""A scripted agent: does what its message says, one word after the other. Runs in a worker; standard library only.

``say TEXT`` speaks, ``wait SECONDS`` takes its time, ``fail TEXT`` raises, ``die`` ends its process, anything else is
echoed. Several are joined by ``;``. With COMFY_ENV_ECHO_LEDGER set it writes each message it was given into that file.
"""

import os
import signal
import time

from comfy_env.worker.callback import report_progress


def answer(message):
    """Serve one message: {"session", "message", "text"}."""
    _write_down(message)
    done = []
    for step in message["text"].split(";"):
        word, _, rest = step.strip().partition(" ")
        done.append(_STEPS.get(word, _echo)(rest if word in _STEPS else step.strip()))
    return {"text": " ".join(part for part in done if part)}


def _write_down(message):
    ledger = os.environ.get("COMFY_ENV_ECHO_LEDGER")
    if ledger:
        line = f"{message['message']}\t{message['text']}\n"
        descriptor = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def _echo(text):
    return text


def _say(text):
    report_progress(0, 0, preview={"text": text})
    return ""


def _wait(text):
    until = time.monotonic() + float(text)
    while time.monotonic() < until:
        report_progress(0, 0)
        time.sleep(0.02)
    return ""


def _fail(text):
    raise ValueError(text)


def _die(text):
    os.kill(os.getpid(), signal.SIGKILL)


_STEPS = {"say": _say, "wait": _wait, "fail": _fail, "die": _die}
