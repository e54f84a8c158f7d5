"""A channel, settings and backends for the tests of conda environments."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import stat
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.backends.pixi import PixiBackend
from comfy_env.packs.pixi_platforms import here
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvPlan

from . import channel as channels


@pytest.fixture(scope="session")
def channel(tmp_path_factory):
    """The folder of a small real channel."""
    pytest.importorskip("rattler")
    return channels.make(tmp_path_factory.mktemp("conda") / "channel", here())


@pytest.fixture
def damaged(channel, tmp_path):
    """`damaged("greeting-1.1-0.conda")` returns a copy of the channel in which that package is not what the index says."""

    def make(name: str) -> Path:
        copy = tmp_path / "damaged"
        shutil.copytree(channel, copy, copy_function=os.link)
        (file,) = copy.rglob(name)
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data.replace(b"good day", b"bad dayy"))
        assert file.read_bytes() != data
        return copy

    return make


@pytest.fixture(scope="session")
def tool_settings(tmp_path_factory):
    """Settings of the whole run, so that packages are unpacked once."""
    place = tmp_path_factory.mktemp("pixi")
    return Settings(envs_folder=place / "envs", log_folder=place / "logs", pixi="off")


@pytest.fixture(scope="session")
def rattled(tool_settings):
    """The backend with py-rattler, whatever else this machine has."""
    return PixiBackend(tool_settings)


@pytest.fixture(scope="session")
def fake_pixi(tmp_path_factory):
    """A program that answers like pixi and lets py-rattler do the work: it says so itself."""
    folder = tmp_path_factory.mktemp("tools")
    program, script = folder / "pixi", folder / "fake.py"
    start = "from tests.backends.pixi.fake_pixi import main\nsys.exit(main(sys.argv[1:]))\n"
    script.write_text(f"import sys\nsys.path[:] = {sys.path!r}\n{start}")
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I '{script}' \"$@\"\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.fixture(scope="session")
def faked(tool_settings, fake_pixi):
    """The backend with that program."""
    return PixiBackend(replace(tool_settings, pixi=fake_pixi))


@pytest.fixture
def plan(channel):
    """`plan(key, "greeting")` returns a plan of conda packages from the channel."""

    def make(key: str, *conda: str, **more) -> EnvPlan:
        return EnvPlan(key=key, backend="pixi", conda=Conda((channel.as_uri(),), conda), **more)

    return make


@pytest.fixture
def quiet():
    return lambda step: None


@pytest.fixture
def served(channel):
    """The channel on a web server; returns its address and what was asked of it: path and user agent."""
    asked = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append((self.path, self.headers.get("User-Agent")))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(channel))) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{web.server_address[1]}", asked
        web.shutdown()
        thread.join()


@pytest.fixture
def web():
    """`web(folder)` serves a folder and returns its address."""
    with contextlib.ExitStack() as stack:

        def serve(folder: Path) -> str:
            class Quiet(http.server.SimpleHTTPRequestHandler):
                def log_message(self, *args):
                    """Say nothing."""

            web = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))))
            thread = threading.Thread(target=web.serve_forever, args=(0.02,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(web.shutdown)
            return f"http://127.0.0.1:{web.server_address[1]}"

        yield serve
