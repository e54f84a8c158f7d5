"""What is run, in which order and with what around it."""

import pytest

from benchmarks import comfyui_nodes, peers, rows, running, venvs
from benchmarks.__main__ import arguments


def test_a_round_has_every_pair_once_and_the_rounds_differ_in_order():
    told = list(running.plan(["noop", "cold"], ["pipe", "zmq", "loky", "comfy_env"], 3, seed=7))
    by_round = [[(job, peer) for number, job, peer in told if number == wanted] for wanted in range(3)]
    assert all(sorted(one) == sorted(by_round[0]) and len(set(one)) == 8 for one in by_round)
    assert by_round[0] != by_round[1]


def test_the_same_seed_gives_the_same_order():
    again = [list(running.plan(["noop", "cold"], peers.EVERYONE, 2, seed=1)) for _ in range(2)]
    assert again[0] == again[1] != list(running.plan(["noop", "cold"], peers.EVERYONE, 2, seed=2))


def test_only_those_who_have_a_part_in_a_job_are_asked():
    assert {peer for _, _, peer in running.plan(["flat"], peers.EVERYONE, 1, 0)} == {peers.OURS}


def test_a_job_sees_one_thread_and_nothing_that_steers_a_peer():
    seen = running.variables("/somewhere", {"PATH": "/bin", "PYTHONPATH": "/x", "COMFY_ENV_ISOLATE": "0", "RAY_ADDRESS": "a", "HOME": "/h"})
    assert seen["PATH"] == "/bin" and seen["HOME"] == "/h" and seen["OMP_NUM_THREADS"] == "1"
    assert seen["PYTHONPATH"] == str(running.INSIDE)
    assert "COMFY_ENV_ISOLATE" not in seen and "RAY_ADDRESS" not in seen


def test_what_a_job_says_goes_to_its_row():
    found, trouble = {}, {}
    for fact in ({"row": "cold", "value": 1.0}, {"row": "cold", "value": 2.0}, {"row": "cold", "note": "n"}, {"done": "cold"}):
        running.record(found, trouble, "cold", "pipe", fact)
    assert found == {"cold": {"pipe": {"rounds": [1.0, 2.0], "note": "n"}}}


def test_what_a_peer_cannot_do_is_kept_by_name():
    found, trouble = {}, {}
    running.record(found, trouble, "tensors", "zmq", {"job": "shared", "cannot": "no shared memory"})
    running.record(found, trouble, "noop", "zmq", {"failed": "OSError"})
    assert trouble == {"shared": {"zmq": {"cannot": "no shared memory"}}, "noop": {"zmq": {"failed": "OSError"}}}


@pytest.mark.parametrize("words", ["noop", "noop_free", "noop_pinned,noop_free"])
def test_rows_are_chosen_by_name_or_beginning(words):
    assert "noop" in rows.chosen(words)


def test_all_rows_are_chosen_by_none():
    assert rows.chosen("") == [job.key for job in rows.JOBS]


def test_an_unknown_row_or_peer_is_refused_by_name_with_those_there_are():
    with pytest.raises(SystemExit, match="no row is called nonsense; there are: noop_pinned"):
        rows.chosen("nonsense")
    with pytest.raises(SystemExit, match="no peer is called nobody; there are: inprocess"):
        peers.named("nobody")


def test_a_quick_look_is_two_options():
    given = arguments(["--only", "comfy_env", "--rows", "noop"])
    assert [peer.key for peer in peers.named(given.only)] == ["comfy_env"] and given.rounds >= 5


def test_every_row_has_a_job_and_every_job_a_row():
    assert {row.job for row in rows.ROWS} == set(rows.JOB_BY_KEY)


def test_every_peer_of_a_job_and_of_a_target_is_known_and_has_a_driver():
    asked = {peer for job in rows.JOBS for peer in job.peers} | {t.to for row in rows.ROWS for t in row.targets} - {"", rows.BEST}
    assert asked <= set(peers.EVERYONE)
    assert all((running.INSIDE / f"drive_{key}.py").is_file() for key in peers.EVERYONE)


def test_without_a_comfyui_the_row_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("COMFY_ENV_COMFYUI", raising=False)
    [fact] = comfyui_nodes.facts()
    assert "COMFY_ENV_COMFYUI" in fact["cannot"] and "COMFY_ENV_COMFYUI_PYTHON" in fact["cannot"]


def test_the_venvs_lie_outside_the_tree_or_where_they_were_asked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("COMFY_ENV_BENCH_VENVS", raising=False)
    assert peers.CHECKOUT not in venvs.folder().parents
    monkeypatch.setenv("COMFY_ENV_BENCH_VENVS", str(tmp_path))
    assert venvs.python_of("pipe") == tmp_path / "pipe" / "bin" / "python"


def test_a_venv_is_made_anew_when_what_it_needs_changes(monkeypatch, tmp_path):
    monkeypatch.setenv("COMFY_ENV_BENCH_VENVS", str(tmp_path))
    made = []
    monkeypatch.setattr(venvs, "_run", lambda command: (made.append(command), venvs.packages_of("zmq").mkdir(parents=True, exist_ok=True)))
    for requires in (("pyzmq==1",), ("pyzmq==1",), ("pyzmq==2",)):
        venvs._ensure("zmq", requires, ())
    installs = [command[-1] for command in made if "install" in command]
    assert installs == ["pyzmq==1", "pyzmq==2"]


def test_a_peer_that_cannot_be_installed_says_why_in_one_line():
    with pytest.raises(venvs.NotInstalled, match="^ERROR: no such thing$"):
        venvs._run(["sh", "-c", "echo looking; echo 'ERROR: no such thing'; echo later; exit 1"])


def test_a_job_that_ends_without_a_word_is_told_as_failed(monkeypatch, tmp_path):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'bench: {\"row\": \"cold\", \"value\": 1}'\necho last words\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(venvs, "python_of", lambda key: script)
    assert running.facts_of("cold", "pipe") == [{"row": "cold", "value": 1}, {"job": "cold", "failed": "ended with 3: last words"}]


def test_a_comfyui_that_does_not_come_up_costs_its_row_and_nothing_else(monkeypatch, tmp_path):
    monkeypatch.setenv("COMFY_ENV_COMFYUI", str(tmp_path))
    monkeypatch.setenv("COMFY_ENV_COMFYUI_PYTHON", "/bin/false")
    [fact] = comfyui_nodes.facts()
    assert fact["failed"].startswith("CalledProcessError")
