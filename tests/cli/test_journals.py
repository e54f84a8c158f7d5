"""`ps` and `story` read what hosts wrote down; damage and vanished files never end the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfy_env.cli.exits import Exit
from comfy_env.cli.journals import hosts, tales

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def entry(key: str, **more: object) -> dict[str, object]:
    facts = {"key": key, "generation": 2, "state": "ready", "pid": 4711, "python": "3.10.13", "held": 2048, "calls": 7,
             "born": time.time() - 90, "story": ["1.000 s ago  #2  born", "0.500 s ago  #2  proved"]}
    return facts | more


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("COMFY_ENV_RUNTIME", str(folder))
    return folder


def write_host(runtime: Path, nonce: str, *envs: dict[str, object]) -> Path:
    folder = runtime / f"host-{nonce}"
    folder.mkdir()
    page = {"pid": os.getpid(), "host_nonce": nonce, "written": time.time(), "envs": list(envs)}
    (folder / "journal.json").write_text(json.dumps(page), encoding="utf-8")
    lock = runtime / f"host-{nonce}.lock"
    lock.touch()
    return lock


def write_ended(runtime: Path, key: str, *lines: str) -> None:
    (runtime / "stories").mkdir(exist_ok=True)
    page = {"key": key, "story": list(lines), "ended": time.time() - 60}
    (runtime / "stories" / f"{key}.json").write_text(json.dumps(page), encoding="utf-8")


@pytest.fixture
def living_host(runtime: Path) -> Iterator[Path]:
    """A host whose lock another process holds."""
    lock = write_host(runtime, "aaaa", entry("demo"))
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield lock


def test_a_host_is_alive_while_it_holds_its_lock(runtime, living_host):
    write_host(runtime, "bbbb", entry("other"))
    assert {host.nonce: host.alive for host in hosts(runtime)} == {"aaaa": True, "bbbb": False}


def test_ps_shows_the_workers_of_living_hosts(cli, runtime, living_host):
    write_host(runtime, "bbbb", entry("left-over"))
    answer = cli("ps")
    assert answer.code == Exit.DONE
    assert "demo" in answer.out and "4711" in answer.out and "2 KiB" in answer.out and "2 min" in answer.out
    assert "left-over" not in answer.out


def test_ps_as_json_has_every_field_of_the_journal(cli, runtime, living_host):
    (host,) = cli("ps", "--json").data["hosts"]
    assert host["pid"] == os.getpid()
    assert host["envs"][0]["generation"] == 2


def test_ps_without_hosts_says_so(cli, runtime):
    assert "no host" in cli("ps").out


def test_a_damaged_journal_is_passed_over(cli, runtime, living_host):
    for nonce, text in (("cccc", "{"), ("dddd", "[]"), ("eeee", "null")):
        write_host(runtime, nonce)
        (runtime / f"host-{nonce}" / "journal.json").write_text(text, encoding="utf-8")
    assert [host.nonce for host in hosts(runtime)] == ["aaaa"]
    assert cli("ps").code == Exit.DONE


def test_a_worker_that_is_not_born_yet_has_no_age(cli, runtime, living_host):
    page = json.loads((runtime / "host-aaaa" / "journal.json").read_text(encoding="utf-8"))
    page["envs"] = [entry("cold", born=None, pid=None, state="spawning")]
    (runtime / "host-aaaa" / "journal.json").write_text(json.dumps(page), encoding="utf-8")
    assert "spawning" in cli("ps").out


def test_story_tells_the_life_from_a_running_host(cli, runtime, living_host):
    answer = cli("story", "demo")
    assert f"told by host {os.getpid()}" in answer.out
    assert "#2  born" in answer.out and "#2  proved" in answer.out


def test_story_also_tells_what_closed_and_dead_hosts_left(cli, runtime):
    write_ended(runtime, "demo", "9.000 s ago  #1  born")
    write_host(runtime, "bbbb", entry("demo"))
    answer = cli("story", "demo")
    assert "a host that closed" in answer.out
    assert "which died" in answer.out


def test_story_as_json_holds_every_telling(cli, runtime):
    write_ended(runtime, "demo", "one", "two")
    (told,) = cli("story", "demo", "--json").data["stories"]
    assert told["lines"] == ["one", "two"]


def test_story_of_an_unknown_environment_names_the_near_one(cli, runtime):
    write_ended(runtime, "demo", "one")
    answer = cli("story", "dem")
    assert answer.code == Exit.NOTHING
    assert "did you mean 'demo'?" in answer.err


def test_story_without_a_name_lists_what_there_is(cli, runtime):
    write_ended(runtime, "demo", "one", "two")
    assert "demo" in cli("story").out
    assert [one["key"] for one in cli("story", "--json").data["stories"]] == ["demo"]


def test_a_running_hosts_tale_comes_last(runtime, living_host):
    write_ended(runtime, "demo", "old")
    assert [tale.alive for tale in tales(runtime)] == [False, True]
