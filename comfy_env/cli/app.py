"""Runs one command: parses, acts, and turns whatever goes wrong into words and an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Sequence

from comfy_env.cli.exits import Exit, exit_code
from comfy_env.cli.parser import build_parser
from comfy_env.cli.screen import Screen


def main(argv: Sequence[str] | None = None, screen: Screen | None = None) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    if screen is None:
        screen = Screen(as_json=options.json)
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING, format="%(name)s: %(message)s", stream=screen.err)
    try:
        code = int(options.act(options, screen))
        screen.out.flush()  # here, where a reader that left is met, and not at the interpreter's end
        return code
    except BrokenPipeError:
        _leave_the_pipe()
        return int(Exit.DONE)
    except KeyboardInterrupt:
        screen.note("interrupted")
        return int(Exit.INTERRUPTED)
    except Exception as error:  # a command ends in words and a code, whatever happened; --verbose shows the traceback
        logging.getLogger(__name__).debug("the command failed", exc_info=True)
        screen.failure(error)
        return int(exit_code(error))


def _leave_the_pipe() -> None:
    """Stop the interpreter from writing to the closed pipe once more at its end."""
    with contextlib.suppress(OSError, ValueError):  # stdout has no descriptor under a test's capture
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
