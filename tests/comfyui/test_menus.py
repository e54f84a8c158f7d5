"""Menus, validation and fingerprints: from the worker if one answers, from what is known if not, and never by starting one."""

import os

import pytest

NODES = '''
import os
import folder_paths

FOLDER = os.environ["TEST_FOLDER"]


class Pick:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"name": (sorted(os.listdir(FOLDER)),), "lora": (["none"] + folder_paths.get_filename_list("loras"),)}}

    def run(self, name, lora):
        return (f"{name} {lora}",)


class Watched:
    """Runs again only when a file's content changed."""
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)
    RUNS = 0

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"path": ("STRING",)}, "optional": {"link": ("INT",)}}

    @classmethod
    def IS_CHANGED(cls, path, link=0):
        text = open(path).read()
        if text == "raise":
            raise RuntimeError("asked to")
        return float("nan") if text == "nan" else [text, link is None]

    def run(self, path, link=0):
        type(self).RUNS += 1
        return (f"run {type(self).RUNS}",)


class Even:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT",), "other": ("INT", {"max": 5})}, "optional": {"link": ("INT",)}}

    @classmethod
    def VALIDATE_INPUTS(cls, value, link=0):
        if link not in (0, None):
            return "a link was filled in"
        return True if value % 2 == 0 else f"{value} is odd"

    def run(self, value, other, link=0):
        return (value,)


class Any(str):
    def __ne__(self, other):
        return False


class Open(dict):
    def __contains__(self, name):
        return True

    def __getitem__(self, name):
        return (Any("*"),)


class Strange:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", (Any("*"), "STRING")

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (Any("*"), {"tooltip": "anything", "call": print})}, "optional": Open()}

    def run(self, value, **more):
        return (value, repr(sorted(more)))


class Broken:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ()

    @classmethod
    def INPUT_TYPES(cls):
        raise OSError("no menu today")

    def run(self):
        return ()


NODE_CLASS_MAPPINGS = {cls.__name__: cls for cls in (Pick, Watched, Even, Strange, Broken)}
'''

pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


@pytest.fixture(scope="module")
def folder(place):
    folder = place / "files"
    folder.mkdir()
    (folder / "alpha").write_text("")
    return folder


@pytest.fixture(scope="module")
def host(start, packs, folder):
    os.environ["TEST_FOLDER"] = str(folder)
    yield start(packs.isolated("pack_menus", NODES), TEST_FOLDER=str(folder), COMFY_ENV_CRASH_LIMIT="1000")
    del os.environ["TEST_FOLDER"]


@pytest.fixture
def cold(host):
    host.python("from comfy_env.comfyui.host import host\nhost().pool.kill(next(iter(host().isolated)))")
    return host


@pytest.fixture
def warm(host):
    host.run_ok(show(n1=("Even", {"value": 2, "other": 1})))
    return host


def show(*links, **nodes):
    prompt = {id.removeprefix("n"): {"class_type": kind, "inputs": inputs} for id, (kind, inputs) in nodes.items()}
    for number, link in enumerate(links or (["1", 0],)):
        prompt[f"show{number}"] = {"class_type": "HostShow", "inputs": {"value": link}}
    return prompt


def menus(host):
    return host.python("import nodes\nanswer = nodes.NODE_CLASS_MAPPINGS['Pick'].INPUT_TYPES()['required']")


def worker(host):
    return host.python("""
from comfy_env.comfyui.host import host
record = host().pool.record(next(iter(host().isolated)))
answer = record and record.pid
""")


# ---------------------------------------------------------------- menus

def test_a_new_file_is_in_the_menu_of_a_living_worker_at_the_next_prompt(warm, folder):
    (folder / "beta").write_text("")
    try:
        assert warm.texts(show(n1=("Pick", {"name": "beta", "lora": "none"})))["show0"] == ["'beta none'"]
        assert menus(warm)["name"] == [["alpha", "beta"]]
    finally:
        (folder / "beta").unlink()


def test_a_menu_of_a_living_worker_refuses_what_is_not_in_it(warm):
    result = warm.run(prompt=show(n1=("Pick", {"name": "zeta", "lora": "none"})))
    assert "'zeta' not in" in result["rejected"]["1"][0]


def test_a_value_that_a_cold_menu_does_not_know_is_let_through(cold, folder):
    (folder / "gamma").write_text("")
    try:
        assert menus(cold)["name"] == [["alpha"]]
        assert worker(cold) is None
        assert cold.texts(show(n1=("Pick", {"name": "gamma", "lora": "none"})))["show0"] == ["'gamma none'"]
    finally:
        (folder / "gamma").unlink()


def test_files_of_the_hosts_folders_are_listed_by_the_host_itself(cold, place):
    (place / "models" / "loras" / "new.safetensors").write_text("")
    assert menus(cold)["lora"] == [["none", "new.safetensors"]]
    assert worker(cold) is None


def test_types_that_accept_anything_do(warm):
    even = ("Even", {"value": 4, "other": 1})
    texts = warm.texts(show(["1", 0], ["1", 1], n1=("Strange", {"value": ["2", 0], "more": 5, "less": ["2", 0]}), n2=even))
    assert texts == {"show0": ["4"], "show1": ['"[\'less\', \'more\']"']}


def test_a_class_whose_menu_fails_hides_no_other(host):
    code = """
import nodes
try:
    nodes.NODE_CLASS_MAPPINGS["Broken"].INPUT_TYPES()
except Exception as error:
    answer = str(error)
"""
    assert "no menu today" in host.python(code)


# ---------------------------------------------------------------- validation

def test_validation_refuses_in_the_authors_words(warm):
    assert warm.run(prompt=show(n1=("Even", {"value": 3, "other": 1})))["rejected"]["1"] == ["value - 3 is odd"]


def test_inputs_that_the_author_does_not_check_are_checked_by_core(warm):
    assert warm.run(prompt=show(n1=("Even", {"value": 2, "other": 9})))["rejected"]["1"][0] == "other"


def test_a_linked_input_is_none_in_validation(warm):
    prompt = show(n1=("Even", {"value": 2, "other": 1, "link": ["2", 0]}), n2=("Even", {"value": 8, "other": 1}))
    assert warm.texts(prompt)["show0"] == ["2"]


def test_validation_of_a_cold_worker_is_made_up_for_before_the_node_runs(cold):
    result = cold.run(prompt=show(n1=("Even", {"value": 7, "other": 2})))
    assert "7 is odd" in result["error"]["exception_message"]
    assert cold.run(prompt=show(n1=("Even", {"value": 7, "other": 2})))["rejected"]["1"] == ["value - 7 is odd"]


# ---------------------------------------------------------------- fingerprints

def watched(host, path, **more):
    return host.run_ok(show(n1=("Watched", {"path": str(path), **more})))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "watched"
    path.write_text("one")
    return path


def test_a_node_runs_again_only_when_its_fingerprint_changes(warm, file):
    assert watched(warm, file)["executed"] and not watched(warm, file)["executed"]
    file.write_text("two")
    assert watched(warm, file)["executed"] and not watched(warm, file)["executed"]
    file.write_text("one")
    assert watched(warm, file)["executed"]


def test_a_cold_worker_runs_a_node_once_and_is_not_started_for_the_question(cold, file):
    assert watched(cold, file)["executed"] and not watched(cold, file)["executed"]
    cold.python("from comfy_env.comfyui.host import host\nhost().pool.kill(next(iter(host().isolated)))")
    file.write_text("changed while nobody could look")
    assert not watched(cold, file)["executed"]
    assert worker(cold) is None


def test_a_fingerprint_that_is_nan_runs_the_node_every_time_also_from_memory(warm, file):
    file.write_text("nan")
    assert watched(warm, file)["executed"] and watched(warm, file)["executed"]
    warm.python("from comfy_env.comfyui.host import host\nhost().pool.kill(next(iter(host().isolated)))")
    assert watched(warm, file)["executed"]


def test_a_fingerprint_that_raises_counts_as_changed_and_is_told_with_node_class_and_env(warm, file):
    file.write_text("raise")
    assert watched(warm, file)["executed"] and watched(warm, file)["executed"]
    assert any("Watched" in line and "pack-menus" in line and "asked to" in line for line in warm.log)


def test_a_linked_input_is_none_in_a_fingerprint(warm, file):
    prompt = show(n1=("Watched", {"path": str(file), "link": ["2", 0]}), n2=("Even", {"value": 6, "other": 1}))
    assert warm.run_ok(prompt)["executed"] and not warm.run_ok(prompt)["executed"]


def test_menus_and_validation_of_a_cold_worker_take_no_time(cold):
    code = """
import time, nodes
begun = time.perf_counter()
for _ in range(20):
    nodes.NODE_CLASS_MAPPINGS["Pick"].INPUT_TYPES()
    nodes.NODE_CLASS_MAPPINGS["Even"].VALIDATE_INPUTS(value=3)
answer = time.perf_counter() - begun
"""
    assert cold.python(code) < 0.5
