"""Where a client owns input and output, nothing replaces this process: constructing what would raises, and its tools answer."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys

import pytest

from comfy_env.cli import mcp
from comfy_env.orchestrator.ownership import Ownership
from comfy_env.orchestrator.problems import NotOurLife
from comfy_env.orchestrator.restart import Rules
from comfy_env.orchestrator.restarter import Restarter

from .kit import run

CLAIMED = """
import asyncio, sys
from comfy_env.cli import mcp
from comfy_env.cli.screen import Screen
from comfy_env.orchestrator.restart import Rules
from comfy_env.orchestrator.restarter import Restarter
from comfy_env.orchestrator.problems import NotOurLife
mcp.importlib.util.find_spec = lambda name: None
try:
    mcp.act(None, Screen())
except Exception as error:
    print(type(error).__name__)
async def construct():
    try:
        Restarter(None, Rules())
    except NotOurLife as error:
        print(error.message)
asyncio.run(construct())
"""


def test_a_claim_cannot_be_undone():
    life = Ownership()
    life.must_be_ours()
    life.claim("a client")
    life.claim("")
    with pytest.raises(NotOurLife, match="a client owns"):
        life.must_be_ours()


def test_constructing_the_restarter_in_stdio_mode_raises():
    answer = subprocess.run([sys.executable, "-c", CLAIMED], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.splitlines() == ["ComfyEnvError", "an MCP client owns this process's life; it must not replace itself"]


def test_constructing_it_elsewhere_does_not():
    async def story():
        return Restarter(None, Rules()).restart.phase.value

    assert run(story) == "idle"


def test_the_tools_answer_where_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COMFY_ENV_ORCH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COMFY_ENV_RUNTIME", str(tmp_path / "run"))
    assert mcp.status()["running"] is False and mcp.status()["next"] == "comfy-env serve"
    assert mcp.workers() == [] and "there are: none" in mcp.story("x")[0]
    assert not (tmp_path / "state").exists(), "a question made a folder"


@pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="the mcp package is not installed")
def test_an_mcp_client_lists_and_calls_the_tools_and_hears_why_one_failed(tmp_path):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    given = {**os.environ, "COMFY_ENV_ORCH_STATE_DIR": str(tmp_path / "state")}

    async def story():
        program = StdioServerParameters(command=sys.executable, args=["-c", "from comfy_env.cli import main; main(['mcp'])"], env=given)
        async with stdio_client(program) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            names = [tool.name for tool in (await session.list_tools()).tools]
            answer = await session.call_tool("story", {"env": "no such env"})
            problem = await session.call_tool("release", {"env": "no such env"})
            return names, answer, problem

    names, answer, problem = asyncio.run(story())
    assert problem.isError if hasattr(problem, "isError") else problem.is_error
    assert "no service runs over" in str(problem) and "comfy-env serve" in str(problem), "the client is not told what to do"
    assert names == ["status", "workers", "story", "release", "run"] and "no story" in str(answer)
