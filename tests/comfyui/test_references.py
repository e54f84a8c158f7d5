"""Objects that stay in a worker: the same object again in their environment, refused by name in another, kept as long as core does."""

import pytest

NODES = '''
import os
import threading


class Handle:
    def __init__(self, name):
        self.name, self.lock, self.uses = name, threading.Lock(), 0


class {prefix}Give:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("TEST_HANDLE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"name": ("STRING",)}}}}

    def run(self, name):
        return (Handle(name),)


class {prefix}Use:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING", "TEST_HANDLE", "TEST_ANY")

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"handle": ("TEST_HANDLE",)}}}}

    @classmethod
    def IS_CHANGED(cls, handle):
        return float("nan")

    def run(self, handle):
        handle.uses += 1
        return (f"{{handle.name}} {{handle.uses}} {{os.getpid()}}", handle, {{"nested": [handle, 1], "id": 1, "class": "Handle"}})


class {prefix}Nested:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"value": ("TEST_ANY",)}}}}

    def run(self, value):
        return (f"{{type(value['nested'][0]).__name__}} {{value['id']}} {{value['class']}}",)


NODE_CLASS_MAPPINGS = {{name: cls for name, cls in list(globals().items()) if name.startswith("{prefix}")}}
'''

CODED = '''
from comfy_env import register_serializer


class Grid:
    def __init__(self, cells):
        self.cells = cells


register_serializer("Grid", lambda grid, recurse: {{"cells": recurse(grid.cells)}}, lambda data, recurse: Grid(data["cells"]),
                    tag="test.grid")


class {prefix}Grid:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("TEST_GRID",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"number": ("INT",)}}}}

    def run(self, number):
        return (Grid([number, (number, b"x")]),)


class {prefix}Cells:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"grid": ("TEST_GRID",)}}}}

    def run(self, grid):
        return (f"{{type(grid).__module__.rpartition('custom_nodes')[2]}} {{grid.cells}}",)


NODE_CLASS_MAPPINGS = {{name: cls for name, cls in list(globals().items()) if name.startswith("{prefix}")}}
'''

pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


@pytest.fixture(scope="module")
def host(start, packs):
    return start(packs.isolated("pack_refs", NODES.format(prefix="A")), packs.isolated("pack_others", NODES.format(prefix="B")),
                 COMFY_ENV_TICK_SECONDS="0.2", COMFY_ENV_IDLE_RELEASE_SECONDS="0.2", COMFY_ENV_IDLE_REAP_SECONDS="1")


def show(*links, **nodes):
    prompt = {id.removeprefix("n"): {"class_type": kind, "inputs": inputs} for id, (kind, inputs) in nodes.items()}
    for number, link in enumerate(links or (["1", 0],)):
        prompt[f"show{number}"] = {"class_type": "HostShow", "inputs": {"value": link}}
    return prompt


def chain(prefix="A", name="h"):
    return show(["3", 0], n1=(f"{prefix}Give", {"name": name}), n2=(f"{prefix}Use", {"handle": ["1", 0]}),
                n3=(f"{prefix}Use", {"handle": ["2", 1]}))


def workers(host):
    return host.python("from comfy_env.comfyui.host import host\nanswer = {r.env: r.pid for r in host().pool.records()}")


def test_an_object_comes_back_as_itself(host):
    name, uses, _ = host.texts(chain())["show0"][0].strip("'").split()
    assert (name, uses) == ("h", "2")


def test_a_reference_inside_a_value_is_the_object_again_and_a_dict_that_looks_like_one_is_left_alone(host):
    prompt = show(["3", 0], n1=("AGive", {"name": "n"}), n2=("AUse", {"handle": ["1", 0]}), n3=("ANested", {"value": ["2", 2]}))
    assert host.texts(prompt)["show0"] == ["'Handle 1 Handle'"]


def test_an_object_is_refused_at_the_border_of_another_environment_by_name(host):
    prompt = show(["2", 0], n1=("AGive", {"name": "x"}), n2=("BUse", {"handle": ["1", 0]}))
    result = host.run(prompt=prompt)
    text = str(result.get("error") or result["rejected"]) + str(result.get("rejected"))
    assert "pack-refs" in text and "pack-others" in text and ("Handle" in text or "TEST_HANDLE" in text)
    assert "AttributeError" not in text


def test_a_link_that_was_seen_to_carry_an_object_is_refused_before_it_runs_again(host):
    host.texts(chain(name="seen"))
    result = host.run(prompt=show(["2", 0], n1=("AGive", {"name": "y"}), n2=("BUse", {"handle": ["1", 0]})))
    assert "a TEST_HANDLE of AGive" in result["rejected"]["2"][0]


def test_a_host_node_never_sees_a_bare_dict(host):
    text = host.texts(show(["1", 0], n1=("AGive", {"name": "z"})))["show0"][0]
    assert text.startswith("<RemoteRef") and "Handle" in text


def test_a_reference_answers_cores_cache_and_is_unlike_any_other(host):
    code = """
from comfy_env.comfyui.host import host
cls = drive.nodes.NODE_CLASS_MAPPINGS["AGive"]
one, two = cls().run(name="1")[0], cls().run(name="1")[0]
answer = [list(one._comfy_cache_tensors()), one == two, one == one, len({one, two})]
"""
    assert host.python(code) == [[], False, True, 2]


def test_a_value_in_cores_cache_keeps_its_worker_and_one_that_is_dropped_does_not(host, eventually):
    host.texts(chain(name="kept"))
    key = next(key for key in workers(host) if key.startswith("pack-refs"))
    pid = workers(host)[key]
    host.python("import time; time.sleep(3)")   # three times the reaper's window
    assert workers(host)[key] == pid
    again = host.run_ok(chain(name="kept"))
    assert "1" in again["cached"] and again["outputs"]["show0"]["text"][0].split()[1] == "4"
    host.run_ok({"s": {"class_type": "HostExec", "inputs": {"code": "import gc; gc.collect()", "number": 1}}})
    assert eventually(lambda: key not in workers(host), seconds=15)


# ---------------------------------------------------------------- objects of packs that brought a codec

@pytest.fixture(scope="module")
def coded(start, packs):
    return start(packs.isolated("pack_grids", CODED.format(prefix="C")), packs.isolated("pack_cells", CODED.format(prefix="D")))


@pytest.mark.parametrize("taker", ["C", "D"])
def test_an_object_with_a_codec_goes_to_its_own_and_to_another_environment(coded, taker):
    prompt = {"g": {"class_type": "CGrid", "inputs": {"number": 5}}, "c": {"class_type": f"{taker}Cells", "inputs": {"grid": ["g", 0]}},
              "s": {"class_type": "HostShow", "inputs": {"value": ["c", 0]}}}
    pack = {"C": "pack_grids", "D": "pack_cells"}[taker]
    assert coded.texts(prompt)["s"] == [repr(f"/{pack}.nodes [5, (5, b'x')]")]


def test_comfyui_keeps_what_a_codec_wrote_unopened_and_over_its_workers_death(coded):
    grid = {"g": {"class_type": "CGrid", "inputs": {"number": 6}}}
    shown = {"s": {"class_type": "HostShow", "inputs": {"value": ["g", 0]}}}
    assert coded.texts({**grid, **shown})["s"] == ["<sealed Grid (test.grid)>"]
    coded.python("from comfy_env.comfyui.host import host\n[host().pool.kill(env.plan) for env in host().isolated.values()]")
    cells = {"c": {"class_type": "CCells", "inputs": {"grid": ["g", 0]}}, "t": {"class_type": "HostShow", "inputs": {"value": ["c", 0]}}}
    result = coded.run_ok({**grid, **shown, **cells})
    assert "g" not in result["executed"] and "[6, (6, b'x')]" in result["outputs"]["t"]["text"][0]
