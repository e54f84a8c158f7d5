"""Names: who offers a backend, what a clash says, and that a pack's backend is the pack's alone."""

import configparser
import importlib
import logging
import sys
import threading
from pathlib import Path

import pytest

from comfy_env.errors import BackendError
from comfy_env.hooks import Registry, hookimpl, sources
from comfy_env.hooks.sources import Offer
from comfy_env.values import EnvPlan, PackId
from tests.hooks.worlds import Plain

ROOT = Path(__file__).resolve().parents[2]
PLAIN = "tests.hooks.test_registry:plain"
OTHER = "tests.hooks.test_registry:other"
plain = Plain()
other = Plain()


def registry(*offers, wrappers=(), observers=(), **given):
    groups = {sources.BACKENDS: offers, sources.WRAPPERS: wrappers, sources.OBSERVERS: observers}
    return Registry(find=lambda group: groups[group], **given)


def test_the_table_of_built_ins_says_what_setup_cfg_says():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options.entry_points"][sources.BACKENDS].strip().splitlines()
    assert dict(line.split(" = ", 1) for line in lines) == sources.BUILT_IN


def test_our_backends_are_there_without_an_installed_distribution():
    assert set(sources.BUILT_IN) <= set(registry().names())


def test_an_installed_comfy_env_offers_the_same_backends_once():
    installed = [Offer(name, target, sources.OURS) for name, target in sources.BUILT_IN.items()]
    assert len(registry(*installed).offers()) == len(sources.BUILT_IN)


def test_asking_for_names_imports_no_backend(monkeypatch):
    monkeypatch.delitem(sys.modules, "a_backend_of_nobody", raising=False)
    assert "nobody" in registry(Offer("nobody", "a_backend_of_nobody:backend", "dist")).names()
    assert "a_backend_of_nobody" not in sys.modules


def test_an_installed_backend_is_found_and_has_one_relay():
    found = registry(Offer("plain", PLAIN, "dist"))
    assert found.backend("plain").backend is plain
    assert found.backend("plain") is found.backend("plain")


def test_many_threads_that_ask_for_one_name_get_one_relay():
    found, relays, start = registry(Offer("plain", PLAIN, "dist")), set(), threading.Barrier(8)

    def ask():
        start.wait(5)
        relays.add(found.backend("plain"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(relays) == 1


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(BackendError, match="there is no backend 'vemv'; there are in-process, pixi, venv") as caught:
        registry().backend("vemv")
    assert caught.value.hint == "did you mean 'venv'?"


def test_a_name_taken_twice_names_both_owners_and_leaves_the_others_usable():
    found = registry(Offer("twice", PLAIN, "dist-one"), Offer("twice", OTHER, "dist-two"), Offer("once", PLAIN, "dist-one"))
    with pytest.raises(BackendError, match="'twice' is taken twice: by dist-one .* and dist-two"):
        found.backend("twice")
    assert found.backend("once").name == "once"


def test_a_stranger_that_takes_our_name_is_named_beside_us():
    with pytest.raises(BackendError, match="by stranger .* and comfy-env"):
        registry(Offer("venv", PLAIN, "stranger")).backend("venv")


def test_a_backend_registered_by_code_is_used_and_its_name_is_taken():
    found = registry()
    relay = found.register("mine", plain, owner="a test")
    assert found.backend("mine") is relay
    with pytest.raises(BackendError, match="'mine' of another test is taken by a test"):
        found.register("mine", other, owner="another test")
    with pytest.raises(BackendError, match="taken by comfy-env"):
        found.register("venv", other)


def test_a_refused_backend_does_not_keep_the_name():
    found = registry()
    with pytest.raises(BackendError):
        found.register("mine", object())
    assert found.register("mine", plain).backend is plain


@pytest.mark.parametrize(
    "target, told",
    [
        ("no_such_module:x", "ModuleNotFoundError"),
        ("tests.hooks.test_registry:nothing", "AttributeError"),
        ("", "ValueError"),
    ],
)
def test_a_backend_that_cannot_be_loaded_names_owner_and_target(target, told):
    with pytest.raises(BackendError, match=f"'bad' of dist .*{told}"):
        registry(Offer("bad", target, "dist")).backend("bad")


def test_a_module_alone_can_be_offered():
    with pytest.raises(BackendError, match="'mine' is refused: it declares no `capabilities`"):
        registry(Offer("mine", "tests.hooks.worlds", "dist")).backend("mine")


def test_entry_points_of_installed_packages_are_read(tmp_path, monkeypatch):
    folder = tmp_path / "third_party-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[comfy_env.backends]\nthird = {PLAIN}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert Offer("third", PLAIN, "third-party") in Registry().offers()
    assert Registry().backend("third").backend is plain


# ---- wrappers and observers

class Nosy:
    @hookimpl(wrapper=True)
    def comfy_env_kill(self, process, reason, replaced):
        return (yield)


nosy = Nosy()


def test_wrappers_by_code_and_installed_surround_every_backend():
    seen = []

    class Counting:
        def __init__(self, word):
            self.word = word

        @hookimpl(wrapper=True)
        def comfy_env_kill(self, process, reason, replaced):
            seen.append(self.word)
            return (yield)

    offer = Offer("counting", "-", "dist", value=Counting("installed"))
    found = registry(Offer("a", PLAIN, "dist"), Offer("b", OTHER, "dist"), wrappers=[offer])
    found._given_wrappers = (Counting("code"),)
    for name in ("a", "b"):
        found.backend(name).kill(None, "asked", False)
    assert seen == ["code", "installed"] * 2


def test_a_wrapper_that_is_wrong_refuses_the_backend_because_it_may_be_a_sandbox():
    found = registry(Offer("plain", PLAIN, "dist"), wrappers=[Offer("sandbox", "no_such_module:x", "dist")])
    with pytest.raises(BackendError, match="'sandbox' of dist"):
        found.backend("plain")


def test_an_installed_observer_that_is_wrong_is_logged_and_left_out(caplog):
    heard = []

    class Ear:
        @hookimpl
        def comfy_env_announce(self, event):
            heard.append(event)

    found = registry(observers=[Offer("bad", "no_such_module:x", "dist"), Offer("ear", "-", "dist", value=Ear())])
    with caplog.at_level(logging.ERROR):
        found.observers.tell("announce", event={"a": 1})
    assert heard == [{"a": 1}]
    assert "no_such_module" in caplog.text


# ---- packs

BACKEND = """
from comfy_env.values import Killed
from tests.hooks.worlds import Plain
from .neighbour import WORD

class Own(Plain):
    word = WORD

backend = Own()
"""


def a_pack(folder, name="pack-a", backend="own", word="a"):
    folder.mkdir()
    table = f'[project.entry-points."comfy_env.backends"]\n{backend} = "its.backend:backend"\n'
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n{table}')
    (folder / "its").mkdir()
    (folder / "its" / "__init__.py").write_text("")
    (folder / "its" / "neighbour.py").write_text(f"WORD = {word!r}\n")
    (folder / "its" / "backend.py").write_text(BACKEND)
    (folder / "__init__.py").write_text("raise SystemExit('a pack itself is not run')\n")
    return EnvPlan(key=name, backend=backend, pack=PackId(name, folder=folder))


def test_a_packs_backend_is_imported_from_its_folder_only_when_its_env_names_it(tmp_path):
    plan = a_pack(tmp_path / "a")
    before = list(sys.path)
    found = registry()
    assert [offer.name for offer in found.load_pack(tmp_path / "a")] == ["own"]
    assert not [name for name in sys.modules if name.endswith(".its.backend")]
    assert found.backend("own", plan).backend.word == "a"
    assert sys.path == before and "its" not in sys.modules


def test_two_packs_with_modules_of_one_name_do_not_shadow_each_other(tmp_path):
    one, two = a_pack(tmp_path / "a"), a_pack(tmp_path / "b", "pack-b", "other", "b")
    found = registry()
    assert found.backend("own", one).backend.word == "a"
    assert found.backend("other", two).backend.word == "b"


def test_a_packs_backend_is_refused_to_other_environments(tmp_path):
    a_pack(tmp_path / "a")
    found = registry()
    found.load_pack(tmp_path / "a")
    with pytest.raises(BackendError, match="belongs to pack pack-a"):
        found.backend("own", EnvPlan(key="x", backend="own"))


def test_a_pack_that_takes_a_taken_name_is_an_error_naming_both(tmp_path):
    plan = a_pack(tmp_path / "a", backend="venv")
    with pytest.raises(BackendError, match="comfy-env .* and pack pack-a"):
        registry().backend("venv", plan)


def test_a_broken_pyproject_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(BackendError, match="pyproject.toml cannot be read"):
        registry().load_pack(tmp_path)


def test_a_pack_without_a_pyproject_offers_nothing(tmp_path):
    assert registry().load_pack(tmp_path) == ()
