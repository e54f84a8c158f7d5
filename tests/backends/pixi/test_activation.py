"""What activating an environment changes is found out once and given to the worker, which no shell stands in front of."""

from __future__ import annotations

import os

import pytest

from comfy_env.backends.pixi import activation
from comfy_env.backends.pixi.activation import Activation
from comfy_env.errors import BuildFailed

BEFORE = {"PATH": "/usr/bin:/bin", "HOME": "/h", "KEEP": "1", "GOES": "1"}


@pytest.fixture
def prefix(tmp_path):
    """An empty prefix with a blank in its name; `write(place, text)` puts files into it."""
    place = tmp_path / "an env"

    def write(name, text):
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    write("conda-meta/history", "")
    return place, write


def test_a_prefix_without_scripts_needs_no_shell(prefix, monkeypatch):
    place, write = prefix
    write("etc/conda/env_vars.d/a.json", '{"FROM_A": "1"}')
    write("conda-meta/state", '{"env_vars": {"FROM_STATE": "2"}}')
    monkeypatch.setenv("PATH", "/nowhere")
    found, said = activation.capture(place, BEFORE)
    assert found.path == (str(place / "bin"),) and not found.unset and not said
    own = {"CONDA_PREFIX": str(place), "CONDA_SHLVL": "1", "CONDA_DEFAULT_ENV": "an env"}
    assert dict(found.set) == {**own, "FROM_A": "1", "FROM_STATE": "2"}


def test_scripts_run_in_order_and_what_they_change_is_kept(prefix):
    place, write = prefix
    second = ['export WORD="$WORD b"', 'export HERE="$CONDA_PREFIX/share"', "unset GOES", 'export PATH="/opt/x:$PATH"', "private=1", ""]
    write("etc/conda/activate.d/b.sh", "\n".join(second))
    write("etc/conda/activate.d/a.sh", 'export WORD="a"\necho "a says so"\n')
    own = write("own.sh", 'export WORD="$WORD own"\nexport LINES_="one\ntwo"\n')
    found, said = activation.capture(place, BEFORE, (own,), {"LAST": "$WORD-$KEEP", "PLAIN": 'say "$(id)" `id`'})
    changed = dict(found.set)
    assert (changed["WORD"], changed["HERE"], changed["LINES_"]) == ("a b own", f"{place}/share", "one\ntwo")
    assert (changed["LAST"], changed["PLAIN"]) == ("a b own-1", 'say "$(id)" `id`')
    assert found.path == ("/opt/x", str(place / "bin")) and found.unset == ("GOES",)
    assert said == "a says so" and "private" not in changed and not any(name.startswith("_") for name in changed)


def test_a_script_that_fails_is_named_with_its_words(prefix):
    place, write = prefix
    write("etc/conda/activate.d/a.sh", "echo it broke >&2\nexit 3\n")
    with pytest.raises(BuildFailed, match="status 3: it broke") as caught:
        activation.capture(place, BEFORE, env="k")
    assert caught.value.env == "k" and caught.value.output == ("it broke",)


def test_without_a_shell_scripts_are_refused_by_name(prefix, monkeypatch):
    place, write = prefix
    write("etc/conda/activate.d/a.sh", "")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildFailed, match="bash"):
        activation.capture(place, BEFORE)


def test_what_is_kept_beside_a_build_is_read_again(tmp_path):
    given = Activation(("/a",), (("X", "1"),), ("Y",))
    assert activation.read(tmp_path) is None
    activation.write(tmp_path, given)
    assert activation.read(tmp_path) == given


def test_a_workers_own_variables_stay_and_path_is_put_in_front():
    active = Activation(("/env/bin",), (("A", "env"), ("ASKED", "env"), ("COMFY_ENV_ENV", "env")), ("GOES", "COMFY_ENV_NONCE", "ASKED2"))
    variables = {"PATH": f"/bin{os.pathsep}/env/bin", "A": "host", "ASKED": "plan", "ASKED2": "plan", "GOES": "1", "COMFY_ENV_NONCE": "n"}
    assert active.applied(variables, {"ASKED": "plan", "ASKED2": "plan"}) == {
        "PATH": f"/env/bin{os.pathsep}/bin", "A": "env", "ASKED": "plan", "ASKED2": "plan", "COMFY_ENV_NONCE": "n", "COMFY_ENV_ENV": "env"}


def test_only_what_pixi_tells_is_changed_and_its_own_marks_are_left_out():
    marks = {"PIXI_IN_SHELL": "1", "PIXI_PROMPT": "x", "PIXI_EXE": "/p"}
    after = {"PATH": "/env/bin:/usr/bin:/bin", "CONDA_PREFIX": "/env", "HOME": "/h", **marks}
    assert activation.between(BEFORE, after, whole=False) == Activation(("/env/bin",), (("CONDA_PREFIX", "/env"),))
