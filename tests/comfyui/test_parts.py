"""Parts of the ComfyUI layer by themselves: what is written down of classes, fingerprints, tracebacks, what leaves a worker."""

import json
import math
import sys
import threading
import traceback
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfy_env import errors
from comfy_env.comfyui import choices, failures, paths
from comfy_env.comfyui.fingerprints import Fingerprints
from comfy_env.packs import plain as reading
from comfy_env.packs import snapshot
from comfy_env.packs.sources import read_sources
from comfy_env.worker.comfy import model_management, results
from comfy_env.worker.comfy import outbox as outboxes
from comfy_env.worker.comfy import plain as writing
from comfy_env.worker.comfy.census import Census
from comfy_env.worker.comfy.files import FileNames
from comfy_env.worker.comfy.questions import mark

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
                      | st.dictionaries(st.integers(), inner), max_leaves=15)


# ---------------------------------------------------------------- declarations as JSON

@given(VALUES)
def test_a_declaration_comes_back_as_it_was(value):
    back = reading.decode(json.loads(json.dumps(writing.encode(value))))
    assert back == value and repr(back) == repr(value)


class Any(str):
    def __ne__(self, other):
        return False


def test_a_type_that_accepts_anything_still_does():
    back = reading.decode(writing.encode((Any("*"), {"x": 1})))
    assert not back[0] != "IMAGE" and not "IMAGE" != back[0] and not back[0] == "INT"


def test_what_json_lacks_accepts_anything():
    assert writing.encode({"fn": print}) == {"fn": {"$any": "*", "of": "builtin_function_or_method"}}


def test_a_dict_that_takes_every_name_still_does():
    class Open(dict):
        def __contains__(self, name):
            return True

    back = reading.decode(writing.encode(Open(a=("INT",))))
    assert "whatever" in back and back["a"] == ("INT",) and list(back) == ["a"]


@pytest.mark.parametrize(("made", "expected"), [
    (lambda names: names, ["now"]),
    (lambda names: ["none"] + names, ["none", "now"]),
    (lambda names: names + ["last"], ["now", "last"]),
    (lambda names: names + names, ["now", "now"]),
    (lambda names: sorted(names), ["then"]),
    (lambda names: names[:], ["then"]),
])
def test_files_of_a_folder_are_listed_anew_unless_the_pack_changed_the_list(made, expected):
    written = json.loads(json.dumps(writing.encode(made(FileNames(["then"], ["loras"])))))
    assert reading.decode(written, lambda folder: ["now"] if folder == "loras" else []) == expected


def test_a_cold_menu_takes_every_value_and_shows_its_own():
    inputs = choices.lenient({"required": {"a": (["x"],), "b": ("COMBO", {"options": ["y"]}), "c": ("INT",)}, "hidden": {"p": "PROMPT"}})
    assert "new" in inputs["required"]["a"][0] and "new" in inputs["required"]["b"][1]["options"]
    assert json.dumps(inputs) == '{"required": {"a": [["x"]], "b": ["COMBO", {"options": ["y"]}], "c": ["INT"]}, "hidden": {"p": "PROMPT"}}'


# ---------------------------------------------------------------- snapshots

def test_a_snapshot_is_read_as_it_was_written_and_other_files_are_none(tmp_path: Path):
    key = snapshot.Key("s", "e", "c", "o")
    taken = snapshot.Snapshot({"A": {"api": "v1"}}, {"A": "an A"}, "./web", (["GET route", "/x"],), "3.11", False, key)
    snapshot.write(tmp_path / "s.json", taken)
    assert snapshot.read(tmp_path / "s.json") == taken
    (tmp_path / "bad.json").write_text("{")
    assert snapshot.read(tmp_path / "bad.json") is None and snapshot.read(tmp_path / "none.json") is None


def test_a_changed_source_changes_the_key(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "readme.md").write_text("x")
    before = snapshot.sources_key(tmp_path)
    (tmp_path / "readme.md").write_text("y")
    assert snapshot.sources_key(tmp_path) == before
    (tmp_path / "a.py").write_text("x = 2")
    assert snapshot.sources_key(tmp_path) != before


SOURCE = '''
class Base:
    CATEGORY = "c"
    RETURN_TYPES = ("INT",)

    def run(self, **kw):
        pass


class A(Base):
    FUNCTION = "run"
    A, B = 1, 2

    @classmethod
    def INPUT_TYPES(s):
        return {"required": {"x": ("INT", {"default": 3}), "menu": (make(),), "kind": KIND}, "hidden": {"id": "UNIQUE_ID"}}

    @classmethod
    def VALIDATE_INPUTS(cls, x):
        return True


class B(Base):
    RETURN_TYPES = compute()
    FUNCTION = "go"

    @classmethod
    def INPUT_TYPES(cls):
        inputs = {}
        return inputs

    async def go(self):
        pass


NODE_CLASS_MAPPINGS = {"A": A}
NODE_CLASS_MAPPINGS["Bee"] = B
NODE_CLASS_MAPPINGS.update({"Again": A})
NODE_DISPLAY_NAME_MAPPINGS = {"A": "the A"}
'''


def test_sources_are_read_as_far_as_they_tell(tmp_path: Path):
    (tmp_path / "nodes.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def")
    found = read_sources(tmp_path)
    assert sorted(found.nodes) == ["A", "Again", "Bee"] and found.names == {"A": "the A"} and found.origin == "sources"
    a, bee = found.nodes["A"], found.nodes["Bee"]
    assert reading.decode(a["attributes"]) == {"RETURN_TYPES": ("INT",), "CATEGORY": "c", "FUNCTION": "run", "A": 1, "B": 2}
    assert reading.decode(a["input"])["required"] == {"x": ("INT", {"default": 3}), "menu": ("*",), "kind": ("*",)}
    assert a["methods"]["VALIDATE_INPUTS"]["args"] == ["cls", "x"] and a["function"]["more"] is True
    assert bee["function"]["async"] is True and "whatever" in reading.decode(bee["input"])["optional"]
    assert len(reading.decode(bee["attributes"]["RETURN_TYPES"])) == 1


OPTIONS = '''
class A:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"x": ("INT", {"default": 8 * 8, "min": -1, "max": 2**32 - 1, "step": STEP}), "y": ["INT", {"max": 9**9**9}],
                             "z": ("A,B", {"options": list_them()})}}


NODE_CLASS_MAPPINGS = {"A": A}
'''


def test_an_option_that_is_computed_is_left_out_since_core_compares_with_it(tmp_path: Path):
    (tmp_path / "nodes.py").write_text(OPTIONS)
    inputs = reading.decode(read_sources(tmp_path).nodes["A"]["input"])["required"]
    assert inputs["x"] == ("INT", {"default": 64, "min": -1, "max": 2**32 - 1})
    assert inputs["y"][1] == {} and inputs["z"] == ("A,B", {})


# ---------------------------------------------------------------- fingerprints

def test_a_token_changes_with_the_value_and_only_then():
    prints = Fingerprints()
    first = prints.told("N", {"a": 1}, "m1")
    assert prints.told("N", {"a": 1}, "m1") == first != prints.told("N", {"a": 1}, "m2")
    assert prints.told("N", {"a": 2}, "m2") != prints.told("N", {"a": 1}, "m2")


def test_an_unknown_value_gets_a_token_that_is_bound_later():
    prints = Fingerprints()
    token, known = prints.remembered("N", {"a": None})
    assert not known
    prints.bind("N", {"a": None}, "m1")
    assert prints.told("N", {"a": None}, "m1") == token
    assert prints.remembered("N", {"a": None}) == (token, True)


def test_nan_is_a_fresh_one_each_time():
    prints = Fingerprints()
    one, two = prints.told("N", {}, None), prints.told("N", {}, None)
    assert math.isnan(one) and math.isnan(two) and one is not two
    assert math.isnan(prints.remembered("N", {})[0])


def test_the_table_of_tokens_is_bounded():
    prints = Fingerprints()
    for number in range(6000):
        prints.told("N", {"a": number}, "m")
    assert len(prints._entries) <= 4096


@pytest.mark.parametrize(("one", "other", "same"), [
    ({"a": [1, 2]}, {"a": [1, 2]}, True), ([1], [2], False), ("1", 1, False), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ((1,), [1], True),
])
def test_a_mark_is_equal_where_cores_cache_would_find_the_values_equal(one, other, same):
    assert (mark(one) == mark(other)) is same


@pytest.mark.parametrize("value", [float("nan"), [1, float("nan")], object(), {"a": object()}])
def test_a_value_that_never_equals_itself_has_no_mark(value):
    assert mark(value) is None


# ---------------------------------------------------------------- results

def test_a_result_of_plain_values_is_taken_apart_and_left_as_it_is():
    assert results.taken_apart((1, [2])) == {"kind": "tuple", "values": [1, [2]], "blockers": []}
    told = results.taken_apart({"ui": {"text": ["x"]}, "result": (1,)})
    assert told["kind"] == "dict" and told["rest"] == {"ui": {"text": ["x"]}} and told["result"]["values"] == [1]
    assert results.taken_apart({"not": "ours"}) == {"kind": "value", "value": {"not": "ours"}}


def test_blockers_travel_by_their_place(monkeypatch):
    class ExecutionBlocker:
        def __init__(self, message):
            self.message = message

    graphs = types.ModuleType("comfy_execution.graph_utils")
    graphs.ExecutionBlocker = ExecutionBlocker
    monkeypatch.setitem(sys.modules, "comfy_execution.graph_utils", graphs)
    told = results.taken_apart((ExecutionBlocker("a"), [1, ExecutionBlocker(None)], 3))
    assert told["values"] == [None, [1, None], 3] and told["blockers"] == [((0,), "a"), ((1, 1), None)]
    from comfy_env.comfyui.results import rebuilt

    back = rebuilt(told)
    assert back[0].message == "a" and back[1][1].message is None and back[2] == 3


# ---------------------------------------------------------------- errors

def raised(text, remote_type="ValueError", cause=None, trace=""):
    error = errors.NodeRaised(f"{remote_type}: {text}", env="e", generation=2, pid=7)
    error.remote_type, error.remote_traceback, error.__cause__ = remote_type, trace, cause
    return error


TRACE = '''Traceback (most recent call last):
  File "/pack/nodes.py", line 12, in run
    return inner()
           ^^^^^^^
  File "/pack/inner.py", line 3, in inner
    raise ValueError("x")
ValueError: x
'''


def test_a_known_class_is_raised_itself_with_the_frames_of_the_worker():
    told = failures.translated(raised("x", cause=ValueError("x"), trace=TRACE), "e")
    assert type(told) is ValueError and str(told) == "x"
    lines = traceback.format_tb(told.__traceback__)
    assert ["worker of env e, generation 2, pid 7" in lines[0], "/pack/nodes.py\", line 12, in run" in lines[1],
            "/pack/inner.py\", line 3, in inner" in lines[2]] == [True] * 3
    assert any("generation 2" in note for note in told.__notes__)


def test_an_unknown_class_keeps_its_name():
    told = failures.translated(raised("of its own", "pack.nodes.Odd"), "e")
    assert (type(told).__module__, type(told).__qualname__, str(told)) == ("pack.nodes", "Odd", "of its own")
    assert type(failures.translated(raised("again", "pack.nodes.Odd"), "e")) is type(told)


def test_cores_interrupt_that_is_no_exception_is_an_interrupt_all_the_same(monkeypatch):
    class InterruptProcessingException(BaseException):
        pass

    flag = []
    core = types.SimpleNamespace(InterruptProcessingException=InterruptProcessingException, interrupt_current_processing=flag.append)
    monkeypatch.setitem(sys.modules, "comfy.model_management", core)
    error = errors.NodeRaised("InterruptProcessingException: ", env="e", generation=1)
    error.remote_type = "comfy.model_management.InterruptProcessingException"
    assert type(failures.translated(error, "e")) is InterruptProcessingException and flag == [False]


@pytest.mark.parametrize(("verbose", "told"), [("INFO", {"verbose": "INFO"}), (["DEBUG", "/log.txt"], {})])
def test_a_flag_that_names_a_log_file_is_not_handed_to_workers(monkeypatch, verbose, told):
    monkeypatch.setitem(sys.modules, "comfy.cli_args", types.SimpleNamespace(args=types.SimpleNamespace(verbose=verbose, port=8188)))
    assert paths.flags() == told


def test_an_error_of_the_pool_stays_itself():
    error = errors.EnvNotBuilt("the environment is not built")
    assert failures.translated(error, "e") is error


# ---------------------------------------------------------------- what a worker holds

def test_a_worker_without_torch_holds_no_models_and_says_so_quietly(monkeypatch):
    monkeypatch.setitem(sys.modules, "comfy.model_management", model_management)   # what stands in for core's there
    assert Census().models() == [] and Census().held() == 0
    Census().unload()
    Census().unload_one("m1", None)


# ---------------------------------------------------------------- reports

@pytest.fixture
def sent(monkeypatch):
    told = []
    monkeypatch.setattr(outboxes.callback, "is_called", lambda: True)
    monkeypatch.setattr(outboxes.callback, "report_progress", lambda value, total, node="", preview=None: told.append((value, preview)))
    return told


def test_reports_are_merged_and_the_last_one_leaves(sent, eventually):
    box = outboxes.Outbox()
    for value in range(1, 101):
        box.progress("bar", ("p", "n"), value, 100, "picture" if value == 50 else None)
    eventually(lambda: sent and sent[-1][0] == 100)
    assert len(sent) < 20 and any(preview["preview"] == "picture" for _, preview in sent)


def test_what_is_said_between_two_calls_waits_for_the_next(sent, monkeypatch):
    monkeypatch.setattr(outboxes.callback, "is_called", lambda: False)
    box = outboxes.Outbox()
    box.message("sync", "event", {}, None)
    box.progress("bar", ("p", "n"), 1, 2)
    assert sent == []
    monkeypatch.setattr(outboxes.callback, "is_called", lambda: True)
    box.flush()
    assert len(sent) == 2


def test_reports_from_many_threads_keep_the_last_word(sent, eventually):
    box = outboxes.Outbox()
    threads = [threading.Thread(target=lambda: [box.progress("bar", ("p", "n"), value, 50) for value in range(51)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert eventually(lambda: sent[-1][0] == 50)
