"""A pack's own pixi manifest and lock: followed, and never written to."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from comfy_env.backends.pixi import activation
from comfy_env.errors import BuildFailed, PlanError, Unsatisfiable
from comfy_env.packs import identity
from comfy_env.packs.pixi_platforms import here
from comfy_env.packs.plan import EnvPlan
from comfy_env.values import EnvStatus, PackId

from .. import wheels
from . import channel as channels
from . import locks

pytestmark = pytest.mark.real


def run(state, code):
    return subprocess.run([state.interpreter, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def word(state):
    return run(state, "import greeting; print(greeting.WORD)")


@pytest.fixture
def pack(tmp_path, channel):
    """`pack(text)` writes a pack with a manifest over the channel; returns a plan of it."""

    def make(text: str, key: str, **files: str) -> EnvPlan:
        root = tmp_path / "a pack [x]"
        root.mkdir(exist_ok=True)
        head = f'[workspace]\nname = "mine"\nchannels = ["{channel.as_uri()}"]\nplatforms = ["{here()}"]\n'
        (root / "pixi.toml").write_text(head + text)
        for name, content in files.items():
            (root / name.replace("_", ".")).write_text(content)
        return EnvPlan(key=key, backend="pixi", root=root)

    return make


@pytest.fixture(params=["rattled", "faked"])
def maker(request):
    """Each way of making an environment: py-rattler, and fake_pixi, which delegates to it."""
    return request.getfixturevalue(request.param)


def snapshot(folder: Path) -> dict:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


SCRIPT = """[activation]
scripts = ["setup.sh"]
env = { AFTER = "$FROM_SCRIPT!" }
[dependencies]
greeting = "1.0.*"
python = "*"
"""


def test_the_manifest_is_followed_and_the_packs_folder_left_alone(maker, pack, request):
    script = 'export FROM_SCRIPT="$GREETING_STATE, $PIXI_PROJECT_ROOT"\n'
    plan = pack(SCRIPT, f"own-{request.node.callspec.params['maker']}", setup_sh=script)
    before = snapshot(plan.root)
    state = maker.comfy_env_build(plan, print)
    build = state.interpreter.parents[4]
    assert word(state) == "hello" and snapshot(plan.root) == before
    changed = dict(activation.read(build).set)
    assert changed["AFTER"] == f"on, {build}!" and changed["GREETING_HOME"] == f"{state.interpreter.parents[1]}/share"
    (plan.root / "setup.sh").write_text("export FROM_SCRIPT=other\n")
    assert maker.comfy_env_inspect(plan, False).status is EnvStatus.STALE


def test_an_environment_of_the_manifest_is_made_for_the_plan_of_its_name(maker, pack, request):
    plan = pack('[dependencies]\npython = "*"\n[feature.old.dependencies]\ngreeting = "1.0.*"\n[environments]\nold = ["old"]\n', "x")
    who = PackId(f"pack-{request.node.callspec.params['maker']}")
    named = EnvPlan(key=identity.key(who, "old"), backend="pixi", root=plan.root, pack=who)
    state = maker.comfy_env_build(named, print)
    assert word(state) == "hello" and state.interpreter.parents[1].name == "old"


@pytest.fixture
def facts(rattled, plan):
    """What the lock's packages are, from a build of the same."""
    state = rattled.comfy_env_build(plan("facts", "greeting 1.0.*"), print)
    said = [line.split("#") for line in (state.interpreter.parents[4] / "packages.txt").read_text().split()]
    found = []
    for url, digest in said:
        name, version, build = url.rpartition("/")[2].removesuffix(".conda").rsplit("-", 2)
        plain = {"noarch": "python"} if name == "greeting" else {}
        found.append({"name": name, "version": version, "build": build, "url": url, "sha256": digest, "subdir": url.split("/")[-2],
                      "depends": ["python"] if name == "greeting" else [], "noarch": plain})
    return found


@pytest.mark.parametrize("version", locks.VERSIONS)
def test_a_lock_of_every_version_is_read_and_stays_as_it_is(rattled, pack, facts, channel, version):
    lock = locks.write(version, here(), channel.as_uri() + "/", facts)
    plan = pack('[dependencies]\ngreeting = "*"\npython = "*"\n', f"lock-{version}", pixi_lock=lock)
    state = rattled.comfy_env_build(plan, print)
    assert word(state) == "hello", "what is locked, not the newest"
    assert (plan.root / "pixi.lock").read_text() == lock == (state.interpreter.parents[4] / "pixi.lock").read_text()
    assert sorted(os.listdir(plan.root)) == ["pixi.lock", "pixi.toml"]


def test_a_lock_that_does_not_fit_the_manifest_is_followed_and_told_of(maker, pack, facts, channel, request):
    lock = locks.write(6, here(), channel.as_uri() + "/", facts)
    plan = pack('[dependencies]\ngreeting = ">=1.1"\npython = "*"\n', f"outdated-{request.node.callspec.params['maker']}", pixi_lock=lock)
    steps = []
    assert word(maker.comfy_env_build(plan, steps.append)) == "hello"
    assert any("does not fit its manifest" in step.text for step in steps) and (plan.root / "pixi.lock").read_text() == lock


def test_a_lock_that_fits_its_manifest_is_not_complained_of(rattled, pack, facts, channel):
    lock = locks.write(6, here(), channel.as_uri() + "/", facts)
    text = f'[dependencies]\ngreeting = {{ version = "1.0.*", channel = "{channel.as_uri()}" }}\npython = "{channels.MINOR}.*"\n'
    steps = []
    rattled.comfy_env_build(pack(text, "fitting", pixi_lock=lock), steps.append)
    assert not any("does not fit" in step.text for step in steps)


def test_a_damaged_or_newer_lock_is_refused_by_name(rattled, pack):
    for number, lock in enumerate(("not: [a lock", "version: 99\n")):
        plan = pack('[dependencies]\npython = "*"\n', f"bad-lock-{number}", pixi_lock=lock)
        with pytest.raises(PlanError, match=r"pixi.lock cannot be read") as caught:
            rattled.comfy_env_build(plan, print)
        assert caught.value.message.startswith(f"{plan.root}/pixi.lock"), "the file that stays, not the build's copy"


@pytest.mark.shares("folder")  # uv keeps a lock in the temporary folder
def test_locked_python_packages_are_installed_as_they_are_locked(rattled, pack, facts, channel, tmp_path, web):
    wheel = wheels.make(tmp_path / "w", "zzlocked", "1.0", requires=("not-there",))
    lock = locks.write(6, here(), channel.as_uri() + "/", facts)
    url = f"{web(tmp_path / 'w')}/{wheel.name}"
    said = json.loads(lock)
    said["environments"]["default"]["indexes"] = ["https://pypi.org/simple"]
    said["environments"]["default"]["packages"][here()].append({"pypi": url})
    said["packages"].append({"pypi": url, "name": "zzlocked", "version": "1.0", "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()})
    plan = pack('[dependencies]\ngreeting = "*"\npython = "*"\n', "locked-pypi", pixi_lock=json.dumps(said))
    state = rattled.comfy_env_build(plan, print)
    assert run(state, "import zzlocked; print(zzlocked.__file__)").startswith(str(state.folder))
    more = '[dependencies]\ngreeting = "*"\npython = "*"\n[pypi-dependencies]\nzzmissing = "*"\n'
    steps = []
    rattled.comfy_env_build(pack(more, "locked-too-little", pixi_lock=json.dumps(said)), steps.append)
    assert any("asks for zzmissing; what it locks is installed" in step.text for step in steps)
    del said["packages"][-1]["sha256"]
    said["packages"][-1]["pypi"] = said["environments"]["default"]["packages"][here()][-1]["pypi"] = "git+https://h/x@abc"
    plan = pack('[dependencies]\ngreeting = "*"\npython = "*"\n', "locked-git", pixi_lock=json.dumps(said))
    with pytest.raises(PlanError, match="is not a wheel and would be built from source"):
        rattled.comfy_env_build(plan, print)


@pytest.mark.parametrize("text", ['x = { path = "./x" }', 'x = { git = "https://h/x" }'])
def test_what_py_rattler_cannot_make_is_refused_before_anything_is_made(rattled, pack, text):
    with pytest.raises(PlanError, match="pixi.toml:6: x comes from") as caught:
        rattled.comfy_env_build(pack(f'[dependencies]\n{text}\n', "sources"), print)
    assert caught.value.env == "sources"


def test_a_folder_of_the_pack_is_refused_for_pixi_too(faked, pack):
    with pytest.raises(PlanError, match="pixi.toml:6: x is a folder"):
        faked.comfy_env_build(pack('[pypi-dependencies]\nx = { path = ".", editable = true }\n', "folder"), print)


@pytest.mark.parametrize(("text", "said"), [
    ('[feature.x]\nchannels = ["./mine"]\n[environments]\ndefault = ["x"]\n', "the channel ./mine is a folder of the pack"),
    ('[pypi-options]\nfind-links = [{ path = "wheels" }]\n', "find-links = 'wheels' is a folder of the pack"),
])
def test_a_channel_or_wheels_in_the_pack_are_refused_for_pixi_with_the_way_out(faked, pack, text, said):
    with pytest.raises(PlanError, match=rf"pixi.toml:6: {said}") as caught:
        faked.comfy_env_build(pack(text, "in-the-pack"), print)
    assert "COMFY_ENV_PIXI=off" in caught.value.hint and caught.value.env == "in-the-pack"


def test_a_channel_in_the_pack_is_found_by_py_rattler(rattled, pack, channel):
    plan = pack('[dependencies]\npython = "*"\ngreeting = "1.0.*"\n', "own-channel")
    file = plan.root / "pixi.toml"
    file.write_text(file.read_text().replace(channel.as_uri(), "./mine"))
    (plan.root / "mine").symlink_to(channel)
    assert word(rattled.comfy_env_build(plan, print)) == "hello"


def test_an_activation_script_that_is_not_there_is_told(rattled, pack):
    steps = []
    rattled.comfy_env_build(pack('[activation]\nscripts = ["lost.sh"]\n[dependencies]\npython = "*"\n', "lost"), steps.append)
    assert any("the activation script lost.sh is not there" in step.text for step in steps)


def test_a_script_outside_the_pack_is_refused(rattled, pack):
    with pytest.raises(PlanError, match="lies outside the pack"):
        rattled.comfy_env_build(pack('[activation]\nscripts = ["../evil.sh"]\n', "outside"), print)


def test_an_unsatisfiable_manifest_has_the_same_name_from_both_tools(maker, pack, request):
    plan = pack('[dependencies]\ngreeting = ">=9"\n', f"never-{request.node.callspec.params['maker']}")
    with pytest.raises(Unsatisfiable, match="No candidates were found for greeting") as caught:
        maker.comfy_env_build(plan, print)
    assert "No candidates were found for greeting" in Path(caught.value.hint.split(" in ")[1].split(";")[0]).read_text()


def test_a_failing_pixi_keeps_its_words(faked, pack):
    plan = pack("[dependencies]\npython = \"*\"\n[build-dependencies]\nx = \"*\"\n", "words")
    with pytest.raises(BuildFailed, match="installing with pixi: pixi exited with status 1") as caught:
        faked.comfy_env_build(plan, print)
    assert "fake_pixi: a test's stand-in" in "\n".join(caught.value.output)


def test_the_python_of_the_channel_is_this_one():
    assert channels.VERSION.startswith(channels.MINOR)
