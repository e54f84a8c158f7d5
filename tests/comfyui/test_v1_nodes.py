"""V1 nodes of an isolated pack behave in a workflow as they do in the host itself."""

import os

import pytest

BARE = """
import sys
from dataclasses import replace

from comfy_env.backends.local import LocalBackend


class Bare(LocalBackend):
    def launch_for(self, launch):
        return replace(launch, argv=(sys._base_executable, *launch.argv[1:]))


backend = Bare()
"""
PLAIN_NODES = '''
import importlib.util
import os

import comfy.model_management
import folder_paths
from comfy.utils import ProgressBar


class Plain:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"number": ("INT",)}}

    def run(self, number):
        comfy.model_management.throw_exception_if_processing_interrupted()
        ProgressBar(2).update(1)
        return (f"{number} {importlib.util.find_spec('torch') is None} {os.path.isdir(folder_paths.get_input_directory())}",)


NODE_CLASS_MAPPINGS = {"Plain": Plain}
'''

NODES = '''
import os
import threading
import time

import comfy.model_management
import comfy.utils
import folder_paths
from comfy_execution.graph_utils import ExecutionBlocker, GraphBuilder


class Base:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT", {"default": 1, "min": 0, "max": 100})}}


class Twice(Base):
    """Doubles."""
    DESCRIPTION = "Doubles a number."
    RETURN_NAMES = ("doubled",)
    OUTPUT_TOOLTIPS = ("twice the value",)
    EXPERIMENTAL = True

    def run(self, value):
        return (2 * value,)


class Where(Base):
    RETURN_TYPES = ("STRING",)

    @classmethod
    def IS_CHANGED(cls, value):
        return float("nan")

    def run(self, value):
        return (f"{os.getpid()}",)


class Spread(Base):
    OUTPUT_IS_LIST = (True,)

    def run(self, value):
        return (list(range(value)),)


class Sum(Base):
    INPUT_IS_LIST = True

    def run(self, value):
        return (sum(value),)


class Pair(Base):
    RETURN_TYPES = ("INT", "STRING")

    def run(self, value):
        return {"ui": {"text": [f"pair {value}"]}, "result": (value, str(value))}


class Block(Base):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT",), "message": ("STRING", {"default": ""})}}

    def run(self, value, message):
        return (ExecutionBlocker(message or None) if value else value,)


class BlockSome(Base):
    OUTPUT_IS_LIST = (True,)

    def run(self, value):
        return ([ExecutionBlocker(None) if i == 1 else i for i in range(value)],)


class Grow(Base):
    def run(self, value):
        graph = GraphBuilder()
        last = value
        for _ in range(3):
            last = graph.node("Twice", value=last).out(0)
        return {"result": (last,), "expand": graph.finalize()}


class Lazy(Base):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"first": ("BOOLEAN",), "a": ("INT", {"lazy": True}), "b": ("INT", {"lazy": True})}}

    def check_lazy_status(self, first, a=None, b=None):
        wanted = "a" if first else "b"
        return [wanted] if (a if first else b) is None else []

    def run(self, first, a=None, b=None):
        return (f"{a} {b}",)


class Hidden(Base):
    RETURN_TYPES = ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}, "hidden": {"me": "UNIQUE_ID", "prompt": "PROMPT", "extra": "EXTRA_PNGINFO", "graph": "DYNPROMPT",
                                           "token": "AUTH_TOKEN_COMFY_ORG"}}

    def run(self, me, prompt, extra, graph, token):
        node = graph.get_node(me)
        return (f"{me} {sorted(prompt)} {extra} {node['class_type']} {sorted(graph.all_node_ids())} {graph.has_node('99')} {token}",)


class Fail(Base):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"how": ("STRING",)}}

    def run(self, how):
        if how == "own":
            raise OwnError("of its own")
        if how == "oom":
            raise comfy.model_management.OOM_EXCEPTION("no memory")
        if how == "interrupt":
            raise comfy.model_management.InterruptProcessingException()
        if how == "exit":
            os._exit(3)
        if how == "system":
            raise SystemExit(4)
        return self.deeper(how)

    def deeper(self, how):
        raise ValueError(how)


class OwnError(Exception):
    pass


class Count(Base):
    """Counts its calls, per instance."""
    def __init__(self):
        self.calls = 0

    @classmethod
    def IS_CHANGED(cls, value):
        return float("nan")

    def run(self, value):
        self.calls += 1
        return (self.calls,)


class Stuck(Count):
    """Counts as well, but holds something that cannot travel."""
    def run(self, value):
        self.lock = threading.Lock()
        return super().run(value)


class Steps(Base):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"steps": ("INT",), "seconds": ("FLOAT",), "polls": ("BOOLEAN",)}}

    def run(self, steps, seconds, polls):
        bar = comfy.utils.ProgressBar(steps)
        for _ in range(steps):
            time.sleep(seconds / steps)
            if polls:
                bar.update(1)
        return (steps,)


class Flood(Base):
    def run(self, value):
        bar = comfy.utils.ProgressBar(1000)
        for _ in range(1000):
            bar.update(1)
        return (1000,)


class FromThread(Base):
    def run(self, value):
        thread = threading.Thread(target=lambda: comfy.utils.ProgressBar(7).update(7))
        thread.start()
        thread.join()
        return (value,)


class Folders(Base):
    RETURN_TYPES = ("STRING",)

    @classmethod
    def IS_CHANGED(cls, value):
        return float("nan")

    def run(self, value):
        return (f"{folder_paths.get_folder_paths('loras')} {folder_paths.get_output_directory()}",)


class Says(Base):
    def run(self, value):
        from server import PromptServer

        PromptServer.instance.send_sync("test.said", {"prompt_id": None, "value": value})
        return (value,)


NODE_CLASS_MAPPINGS = {
    name: cls for name, cls in list(globals().items()) if isinstance(cls, type) and issubclass(cls, Base) and cls is not Base
}
NODE_DISPLAY_NAME_MAPPINGS = {"Twice": "Twice as much"}
'''


@pytest.fixture(scope="module")
def host(start, packs):
    return start(packs.isolated("pack_v1", NODES))


def show(*links, **nodes):
    prompt = {id.removeprefix("n"): {"class_type": kind, "inputs": inputs} for id, (kind, inputs) in nodes.items()}
    for number, link in enumerate(links or (["1", 0],)):
        prompt[f"show{number}"] = {"class_type": "HostShow", "inputs": {"value": link}}
    return prompt


pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


def test_a_node_runs_in_another_process(host):
    pid = host.texts(show(n1=("Where", {"value": 1})))["show0"][0].strip("'")
    assert int(pid) not in (os.getpid(), host.process.pid)


def test_a_worker_writes_nothing_into_the_folder_of_packs(host, place):
    host.run_ok(show(n1=("Twice", {"value": 1})))
    assert [str(path) for path in (place / "custom_nodes").rglob("__pycache__")] == []
    assert list((place / "envs").rglob("nodes.*.pyc"))


def test_a_value_goes_from_node_to_node(host):
    prompt = show(["2", 0], n1=("Twice", {"value": 3}), n2=("Twice", {"value": ["1", 0]}))
    first = host.run_ok(prompt)
    assert first["outputs"]["show0"]["text"] == ["12"]
    assert first["executed"] == ["1", "2", "show0"]
    again = host.run_ok(prompt)
    assert again["executed"] == [] and sorted(again["cached"]) == ["1", "2", "show0"]


def test_core_sees_what_it_looks_at(host):
    code = """
import nodes
cls = nodes.NODE_CLASS_MAPPINGS
answer = [
    cls["Twice"].INPUT_TYPES() == {"required": {"value": ("INT", {"default": 1, "min": 0, "max": 100})}},
    cls["Twice"].RETURN_TYPES, cls["Twice"].RETURN_NAMES, cls["Twice"].OUTPUT_TOOLTIPS, cls["Twice"].CATEGORY, cls["Twice"].FUNCTION,
    cls["Twice"].DESCRIPTION, cls["Twice"].EXPERIMENTAL, cls["Twice"].RELATIVE_PYTHON_MODULE, nodes.NODE_DISPLAY_NAME_MAPPINGS["Twice"],
    hasattr(cls["Twice"], "IS_CHANGED"), hasattr(cls["Count"], "IS_CHANGED"), hasattr(cls["Twice"], "VALIDATE_INPUTS"),
    hasattr(cls["Twice"], "check_lazy_status"), hasattr(cls["Lazy"], "check_lazy_status"), hasattr(cls["Twice"], "OUTPUT_IS_LIST"),
    hasattr(cls["Twice"], "OUTPUT_NODE"), cls["Spread"].OUTPUT_IS_LIST, cls["Sum"].INPUT_IS_LIST,
]
"""
    assert host.python(code) == [
        True, ["INT"], ["doubled"], ["twice the value"], "test", "run", "Doubles a number.", True, "custom_nodes.pack_v1", "Twice as much",
        False, True, False, False, True, False, False, [True], True]


def test_lists_are_taken_apart_and_put_together(host):
    prompt = show(["3", 0], ["2", 0], n1=("Spread", {"value": 4}), n2=("Twice", {"value": ["1", 0]}), n3=("Sum", {"value": ["2", 0]}))
    assert host.texts(prompt) == {"show0": ["12"], "show1": ["0", "2", "4", "6"]}


def test_what_is_for_the_screen_gets_there(host):
    result = host.run_ok(show(["1", 1], n1=("Pair", {"value": 5})))
    assert result["outputs"]["show0"]["text"] == ["'5'"]


@pytest.mark.parametrize("message", ["", "not today"])
def test_a_blocker_keeps_what_follows_from_running(host, message):
    result = host.run(prompt=show(n1=("Block", {"value": 1, "message": message})))
    assert result["ok"] and "show0" not in result["outputs"]
    assert (result["error"] or {}).get("exception_message", "") == (f"Execution Blocked: {message}" if message else "")


def test_a_blocker_inside_a_list_blocks_its_own_element(host):
    assert host.texts(show(n1=("BlockSome", {"value": 3})))["show0"] == ["0", "2"]


def test_a_node_replaces_itself_by_a_graph(host):
    result = host.run_ok(show(n1=("Grow", {"value": 5})))
    assert result["outputs"]["show0"]["text"] == ["40"]
    assert result["executed"] == ["1", "1.0.0.1", "1.0.0.2", "1.0.0.3", "show0"]


def test_only_the_lazy_input_that_is_wanted_runs(host):
    prompt = show(["3", 0], n1=("Twice", {"value": 4}), n2=("Fail", {"how": "must not run"}),
                  n3=("Lazy", {"first": True, "a": ["1", 0], "b": ["2", 0]}))
    assert host.texts(prompt)["show0"] == ["'8 None'"]


def test_hidden_inputs_arrive(host):
    text = host.texts(show(n1=("Hidden", {})), extra={"extra_pnginfo": {"a": 1}, "auth_token_comfy_org": "secret"})["show0"][0]
    assert text == "\"1 ['1', 'show0'] {'a': 1} Hidden ['1', 'show0'] False secret\""
    assert "secret" not in "".join(host.log)


# ---------------------------------------------------------------- errors

def fail(host, how):
    return host.run(prompt=show(n1=("Fail", {"how": how})))["error"]


def test_an_error_keeps_class_message_and_the_packs_file_and_line(host):
    error = fail(host, "for a reason")
    assert (error["exception_type"], error["exception_message"].splitlines()[0]) == ("ValueError", "for a reason")
    assert error["node_id"] == "1" and error["node_type"] == "Fail"
    assert any("pack_v1/nodes.py" in line and "deeper" in line for line in error["traceback"])
    assert any("worker of env pack-v1" in line and "generation" in line for line in error["traceback"])


def test_an_error_of_the_packs_own_class_keeps_its_name(host):
    error = fail(host, "own")
    assert error["exception_type"].endswith("pack_v1.nodes.OwnError") and error["exception_message"].startswith("of its own")


def test_out_of_memory_is_cores_own_class(host):
    pytest.importorskip("torch")
    code = """
import comfy.model_management as mm
from comfy_env.comfyui.host import host
cls = drive.nodes.NODE_CLASS_MAPPINGS["Fail"]
try:
    cls().run(how="oom")
except mm.OOM_EXCEPTION as error:
    answer = str(error)
"""
    assert host.python(code) == "no memory"


def test_an_interrupt_that_a_node_raises_is_no_red_error(host):
    assert fail(host, "interrupt")["event"] == "execution_interrupted"


def test_a_node_that_exits_fails_by_name_and_the_next_prompt_runs(host):
    error = fail(host, "exit")
    assert error["exception_type"] == "comfy_env.errors.WorkerCrashed" and "exited with status 3" in error["exception_message"]
    assert host.texts(show(n1=("Twice", {"value": 21})))["show0"] == ["42"]


def test_a_node_that_raises_systemexit_ends_nothing(host):
    assert fail(host, "system")["exception_type"] in ("SystemExit", "builtins.SystemExit")
    assert host.texts(show(n1=("Twice", {"value": 2})))["show0"] == ["4"]


# ---------------------------------------------------------------- instances

def test_an_instance_belongs_to_a_node_id_and_keeps_its_state(host):
    prompt = show(["1", 0], ["2", 0], n1=("Count", {"value": 1}), n2=("Count", {"value": 1}))
    assert host.texts(prompt) == {"show0": ["1"], "show1": ["1"]}
    assert host.texts(prompt) == {"show0": ["2"], "show1": ["2"]}


def test_an_instance_keeps_its_state_when_its_worker_is_replaced(host):
    prompt = show(["7", 0], n7=("Count", {"value": 1}))
    assert [host.texts(prompt)["show0"] for _ in range(2)] == [["1"], ["2"]]
    kill(host)
    assert host.texts(prompt)["show0"] == ["3"]


def test_state_that_cannot_travel_begins_anew_and_the_story_says_so(host):
    prompt = show(["8", 0], n8=("Stuck", {"value": 1}))
    assert [host.texts(prompt)["show0"] for _ in range(2)] == [["1"], ["2"]]
    kill(host)
    assert host.texts(prompt)["show0"] == ["1"]
    story = host.python("from comfy_env.comfyui.host import host\nanswer = list(host().pool.story(next(iter(host().isolated))))")
    assert any("Stuck began anew" in line and "lock" in line for line in story)


def test_an_instance_that_core_drops_is_forgotten_in_the_worker(host):
    host.run_ok(show(["9", 0], n9=("Count", {"value": 1})))
    host.run_ok(show(n1=("Twice", {"value": 77})))
    code = """
import gc; gc.collect()
from comfy_env.comfyui.host import host
from comfy_env.values import CallOptions
env = next(iter(host().isolated.values()))
keys = [env.forgotten.popleft() for _ in range(len(env.forgotten))]
order = {"state": host().state.version(), "pack": env.home.order(), "forget": keys}
answer = host().pool.call(env.plan, "comfy_env.worker.comfy.entry:forget", order, options=CallOptions(callbacks=host().callbacks))
"""
    host.python(code)
    assert host.python(code) <= 3


def kill(host):
    host.python("from comfy_env.comfyui.host import host\nhost().pool.kill(next(iter(host().isolated)))")


# ---------------------------------------------------------------- progress, interrupt, messages, files

def test_progress_reaches_the_node_that_makes_it(host):
    result = host.run_ok(show(["5", 0], n5=("Steps", {"steps": 4, "seconds": 0.4, "polls": True})))
    assert result["progress"] == [["5", 1, 4], ["5", 2, 4], ["5", 3, 4], ["5", 4, 4]]


def test_a_flood_of_progress_is_thinned_out_and_its_last_word_kept(host):
    result = host.run_ok(show(["6", 0], n6=("Flood", {"value": 1})))
    assert result["progress"][-1] == ["6", 1000, 1000] and len(result["progress"]) < 100


def test_progress_of_a_thread_reaches_the_node_that_started_it(host):
    assert host.run_ok(show(["4", 0], n4=("FromThread", {"value": 1})))["progress"] == [["4", 7, 7]]


def test_an_interrupt_right_after_another_one_is_not_taken_for_it(host):
    kill(host)
    for _ in range(3):   # the first while the worker is being born, the others while the node sleeps
        result = host.run(prompt=show(n1=("Steps", {"steps": 2, "seconds": 40.0, "polls": False})), interrupt_after=0.3)
        assert result["error"]["event"] == "execution_interrupted" and result["seconds"] < 15


@pytest.mark.parametrize("polls", [True, False])
def test_an_interrupt_ends_a_node_whether_it_polls_or_not(host, polls):
    result = host.run(prompt=show(n1=("Steps", {"steps": 20, "seconds": 20.0 + polls, "polls": polls})), interrupt_after=0.5)
    assert result["error"]["event"] == "execution_interrupted" and result["seconds"] < 15
    assert host.texts(show(n1=("Twice", {"value": 8})))["show0"] == ["16"]


def test_a_message_for_the_browser_is_sent(host):
    assert host.run_ok(show(n1=("Says", {"value": 6})))["others"] == [["test.said", {"prompt_id": None, "value": 6}]]


def test_folders_are_the_hosts_also_when_they_change(host, place):
    prompt = show(n1=("Folders", {"value": 1}))
    assert f"{place}/output" in host.texts(prompt)["show0"][0]
    host.python("import folder_paths; folder_paths.add_model_folder_path('loras', '/elsewhere/loras')")
    assert "/elsewhere/loras" in host.texts(prompt)["show0"][0]


# ---------------------------------------------------------------- an environment without torch, as most are

def test_a_node_runs_in_an_environment_without_torch(start, packs):
    host = start(packs.isolated("pack_bare", PLAIN_NODES, here__py=BARE))
    prompt = {"p": {"class_type": "Plain", "inputs": {"number": 4}}, "s": {"class_type": "HostShow", "inputs": {"value": ["p", 0]}}}
    result = host.run_ok(prompt)
    bare = host.python("import subprocess, sys\nanswer = subprocess.call([sys._base_executable, '-Ic', 'import torch']) != 0")
    assert result["outputs"]["s"]["text"] == [repr(f"4 {bare} True")] and result["progress"][0] == ["p", 1, 2]
