"""A host's run folder, and workers that are ended with the test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfy_env.process import launch, tree
from comfy_env.process.handle import LocalProcess
from comfy_env.process.rundir import HostRun
from tests.process.kit import PlainEndpoint, launch_of, python


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime folder of the test's own with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="run"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def host(runtime: Path) -> Iterator[HostRun]:
    run = HostRun.open(runtime)
    yield run
    run.close()


@pytest.fixture
def start(host: HostRun) -> Iterator[Callable[..., LocalProcess]]:
    """`start(code, *arguments, **variables)` starts Python code, `start(argv=…)` any program, as a worker of `host`."""
    made: list[tuple[LocalProcess, PlainEndpoint]] = []

    def begin(code: str = "", *arguments: object, argv: tuple[str, ...] = (), **variables: str) -> LocalProcess:
        endpoint = PlainEndpoint()
        process = launch.start(launch_of(host, argv or python(code, *arguments), endpoint, variables))
        made.append((process, endpoint))
        return process

    yield begin
    for process, endpoint in made:
        tree.end(process, nonce=process.nonce)
        process.close()
        endpoint.close()
