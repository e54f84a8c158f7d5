"""The worker's half: a pack is imported once, from where it lies, and described in plain JSON."""

from __future__ import annotations

import json
import sys

import pytest

from comfy_env.worker import nodes
from comfy_env.worker.node_packs import Packs

PLAIN = '''
class Node:
    FUNCTION, RETURN_TYPES = "run", ("INT",)
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}
    def run(self):
        return (5,)
'''


@pytest.fixture(autouse=True)
def modules_put_back():
    """Forget the packs a test imported."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "/" in name:
            del sys.modules[name]


@pytest.mark.parametrize("name", ["plain", "with space", "br[ack]ets (1)", "dots.in.it-2.0", "ünï-cödé"])
def test_a_pack_is_imported_whatever_its_folder_is_called(pack, name):
    assert nodes.execute(str(pack(name, PLAIN).root), "Node", "1", {}) == (5,)


def test_a_pack_is_imported_once_however_often_and_by_whatever_path_it_is_named(pack, tmp_path):
    root = pack(nodes=PLAIN + "\nprint('imported')\nimport builtins\nbuiltins.comfy_env_test_imports.append(1)\n").root
    import builtins

    builtins.comfy_env_test_imports = []
    (tmp_path / "link").symlink_to(root)
    try:
        for folder in (root, root, tmp_path / "link", f"{root}/../{root.name}"):
            nodes.describe(str(folder))
        assert builtins.comfy_env_test_imports == [1]
    finally:
        del builtins.comfy_env_test_imports


WITH_REGISTER = "from comfy_env import register_nodes\n\nNODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()\n"


def test_a_pack_with_the_two_lines_of_the_guide_gives_its_own_classes(pack):
    """`register_nodes()` gives stand-ins in ComfyUI alone; in a worker of the runner it gives the classes themselves."""
    root = pack("two-lines", PLAIN + "NODE_CLASS_MAPPINGS = {'Node': Node}\n", start=WITH_REGISTER).root
    (root / "pyproject.toml").write_text('[project]\nname = "two-lines"\nversion = "1"\n[tool.comfy-env]\ndependencies = ["numpy<1"]\n')
    assert list(nodes.describe(str(root))["nodes"]) == ["Node"]
    assert nodes.execute(str(root), "Node", "1", {}) == (5,)


def test_a_pack_has_the_module_name_comfyui_gives_it(pack):
    root = pack("my.pack", PLAIN).root
    nodes.describe(str(root))
    assert str(root).replace(".", "_x_") in sys.modules


def test_equal_classes_of_two_packs_are_two_classes(pack):
    first, second = (str(pack(name, PLAIN.replace("5", number)).root) for name, number in (("a", "5"), ("b", "6")))
    assert [nodes.execute(root, "Node", "1", {}) for root in (first, second)] == [(5,), (6,)]


@pytest.mark.parametrize(("start", "words"), [
    ("from .nodes import *\n", "has no NODE_CLASS_MAPPINGS"),
    ("NODE_CLASS_MAPPINGS = None\nasync def comfy_entrypoint():\n    pass\n", "declares V3 nodes"),
    ("import surely_not_installed\n", "cannot be imported: ModuleNotFoundError"),
])
def test_a_pack_that_cannot_be_used_says_why(pack, start, words):
    root = str(pack(start=start).root)
    with pytest.raises(ImportError, match=words) as caught:
        nodes.describe(root)
    assert root in str(caught.value)


def test_a_folder_that_is_no_pack_is_named(tmp_path):
    with pytest.raises(ImportError, match="no __init__.py"):
        nodes.describe(str(tmp_path))


def test_a_failed_import_leaves_nothing_and_is_tried_again(pack):
    root = pack(start="from . import nodes\nfrom .later import NODE_CLASS_MAPPINGS\n").root
    with pytest.raises(ImportError):
        nodes.describe(str(root))
    assert not [name for name in sys.modules if name.startswith(str(root))]
    (root / "later.py").write_text("from .nodes import Node\nNODE_CLASS_MAPPINGS = {'Node': Node}\n", encoding="utf-8")
    (root / "nodes.py").write_text(PLAIN, encoding="utf-8")
    assert list(nodes.describe(str(root))["nodes"]) == ["Node"]


def test_an_unknown_class_is_named_with_those_there_are(pack):
    with pytest.raises(LookupError, match="no node class 'Other'; it has: Node"):
        nodes.execute(str(pack(nodes=PLAIN).root), "Other", "1", {})


COUNTING = PLAIN.replace("return (5,)", "self.n = getattr(self, 'n', 0) + 1\n        return (self.n,)")


def test_an_instance_lives_from_call_to_call_until_it_is_forgotten(pack):
    root = str(pack(nodes=COUNTING).root)
    assert [nodes.execute(root, "Node", key, {}) for key in ("r:1", "r:1", "r:2", "s:1")] == [(1,), (2,), (1,), (1,)]
    assert nodes.forget(root, "r:") == 2
    assert [nodes.execute(root, "Node", key, {}) for key in ("r:1", "s:1")] == [(1,), (2,)]


ODD = '''
class AnyType(str):
    def __ne__(self, other):
        return False

class Flexible(dict):
    def __contains__(self, name):
        return True

class Odd:
    FUNCTION, RETURN_TYPES, RETURN_NAMES, CATEGORY = "run", (AnyType("*"), "IMAGE"), ("a", "b"), "odd/ones"
    OUTPUT_IS_LIST, OUTPUT_NODE = (False, True), True
    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"any": (AnyType("*"), {}), "mode": (("x", "y"), {"default": "x"}), "bare": "INT", "strange": (object(),)},
            "optional": Flexible({"call": ("INT", {"default": 1, "how": print, "deep": {"t": (1, 2)}})}),
            "hidden": {"me": "UNIQUE_ID"},
        }
    @classmethod
    def IS_CHANGED(cls, **given):
        return 1
    @classmethod
    def VALIDATE_INPUTS(cls, mode, **more):
        return True
    def run(self, **given):
        return (1, [2])
'''


def test_a_description_is_json_whatever_a_class_declares(pack):
    told = nodes.describe(str(pack(nodes=ODD, start="from . import nodes\nNODE_CLASS_MAPPINGS = {'Odd': nodes.Odd}\n").root))
    assert json.loads(json.dumps(told)) == told
    odd = told["nodes"]["Odd"]
    assert odd["input"]["required"] == {"any": ["*", {}], "mode": [["x", "y"], {"default": "x"}], "bare": ["INT", {}], "strange": ["*", {}]}
    assert odd["input"]["optional"] == {"call": ["INT", {"default": 1, "deep": {"t": [1, 2]}}]}
    assert (odd["return_types"], odd["return_names"], odd["output_is_list"]) == (["*", "IMAGE"], ["a", "b"], [False, True])
    assert (odd["open"], odd["output_node"], odd["input_is_list"], odd["category"]) == (True, True, False, "odd/ones")
    assert (odd["methods"], odd["validates"], odd["hidden"]) == (["IS_CHANGED", "VALIDATE_INPUTS"], ["mode", "**"], {"me": "UNIQUE_ID"})
    assert type(odd["return_types"][0]) is str


def test_a_description_tells_which_libraries_are_installed(pack):
    told = nodes.describe(str(pack(nodes=PLAIN).root), ["pytest", "surely-not-installed"])
    assert told["versions"] == {"pytest": pytest.__version__, "surely-not-installed": None}


def test_about_tells_where_a_module_comes_from():
    told = nodes.about(["json"], ["pytest"])
    assert told["modules"]["json"][1] == json.__file__
    assert told["versions"] == {"pytest": pytest.__version__}
    assert told["executable"] == sys.executable


def test_two_threads_import_a_pack_once(pack):
    from concurrent.futures import ThreadPoolExecutor

    root = str(pack(nodes="import time\ntime.sleep(0.05)\n" + PLAIN).root)
    packs = Packs()
    with ThreadPoolExecutor(8) as threads:
        assert len(set(map(id, threads.map(packs.load, [root] * 8)))) == 1
