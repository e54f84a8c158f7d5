"""V3 nodes and coroutine functions of an isolated pack behave in a workflow as they do in the host itself."""

import pytest

NODES = '''
import asyncio
import os

from comfy_api.latest import ComfyAPI, ComfyExtension, io

RUNS = {"n": 0}


class Mix(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="Mix", display_name="Mix two", category="test", description="Mixes.",
            inputs=[io.Int.Input("a", default=1, min=0, max=50), io.Int.Input("b", optional=True),
                    io.Combo.Input("mode", options=["add", "times"])],
            outputs=[io.Int.Output(display_name="mixed")], hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.dynprompt],
        )

    @classmethod
    def validate_inputs(cls, a):
        return True if a != 13 else "not thirteen"

    @classmethod
    def fingerprint_inputs(cls, a, **kwargs):
        return f"print {a}"

    @classmethod
    def execute(cls, a, mode, b=2):
        RUNS["n"] += 1
        return io.NodeOutput(a + b if mode == "add" else a * b)


class Tell(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(node_id="Tell", category="test", inputs=[io.AnyType.Input("value", optional=True)], outputs=[io.String.Output()],
                         hidden=[io.Hidden.unique_id, io.Hidden.dynprompt], not_idempotent=True)

    @classmethod
    def fingerprint_inputs(cls, **kwargs):
        return float("nan")

    @classmethod
    def execute(cls, value=None):
        hidden = cls.hidden
        return io.NodeOutput(f"{hidden.unique_id} {hidden.dynprompt.get_node(hidden.unique_id)['class_type']} {RUNS['n']} {os.getpid()}")


class Wait(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(node_id="Wait", category="test", is_output_node=True,
                         inputs=[io.Float.Input("seconds"), io.String.Input("tag")], outputs=[io.String.Output()])

    @classmethod
    async def execute(cls, seconds, tag):
        for step in range(4):
            await asyncio.sleep(seconds / 4)
            await ComfyAPI.Execution().set_progress(step + 1, 4)
        return io.NodeOutput(f"waited {tag}", ui={"text": [f"waited {tag}"]})


class Blocks(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(node_id="Blocks", category="test", inputs=[io.Int.Input("n")], outputs=[io.Int.Output()])

    @classmethod
    def execute(cls, n):
        return io.NodeOutput(n, block_execution="no further")


class Own(io.ComfyNode):
    """Types of its own, in and out."""
    @classmethod
    def define_schema(cls):
        kind = io.Custom("TEST_THING")
        return io.Schema(node_id="Own", category="test", inputs=[kind.Input("thing", optional=True)], outputs=[kind.Output()])

    @classmethod
    def execute(cls, thing=None):
        return io.NodeOutput(thing or Thing())


class Thing:
    pass


class Extension(ComfyExtension):
    async def get_node_list(self):
        return [Mix, Tell, Wait, Blocks, Own]


async def comfy_entrypoint():
    return Extension()
'''
V1 = '''
import asyncio
import threading
import time
import comfy.utils


class AsyncBase:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seconds": ("FLOAT",), "tag": ("STRING",)}}


class Sleep(AsyncBase):
    async def run(self, seconds, tag):
        begun = time.time()
        bar = comfy.utils.ProgressBar(2)
        await asyncio.sleep(seconds / 2)
        bar.update(1)
        await asyncio.sleep(seconds / 2)
        bar.update(1)
        return (f"{begun} {time.time()}",)


class Fails(AsyncBase):
    async def run(self, seconds, tag):
        await asyncio.sleep(seconds)
        raise KeyError(tag)


class Busy(AsyncBase):
    def run(self, seconds, tag):
        time.sleep(seconds)
        return (tag,)


CANCELLED = []


class Cancelled(AsyncBase):
    async def run(self, seconds, tag):
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            CANCELLED.append(tag)
            raise
        return (tag,)


class WasCancelled(AsyncBase):
    @classmethod
    def IS_CHANGED(cls, **kwargs):
        return float("nan")

    def run(self, seconds, tag):
        return (repr(CANCELLED),)


NODE_CLASS_MAPPINGS = {cls.__name__: cls for cls in (Sleep, Fails, Busy, Cancelled, WasCancelled)}
'''

pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


@pytest.fixture(scope="module")
def host(start, packs):
    other = V1
    for name in ("Sleep", "Fails", "Busy", "Cancelled"):
        other = other.replace(name, f"{name}2")
    return start(packs.isolated("pack_v3", NODES), packs.isolated("pack_async", V1), packs.isolated("pack_other", other))


def show(*links, **nodes):
    prompt = {id.removeprefix("n"): {"class_type": kind, "inputs": inputs} for id, (kind, inputs) in nodes.items()}
    for number, link in enumerate(links or (["1", 0],)):
        prompt[f"show{number}"] = {"class_type": "HostShow", "inputs": {"value": link}}
    return prompt


MIX = {"a": 3, "mode": "add"}


def test_a_v3_node_runs_and_is_cached(host):
    prompt = show(n1=("Mix", dict(MIX)))
    assert host.texts(prompt)["show0"] == ["5"]
    assert host.run_ok(prompt)["executed"] == []


def test_core_sees_a_real_v3_class(host):
    code = """
import nodes
from comfy_api.internal import _ComfyNodeInternal, first_real_override
cls = nodes.NODE_CLASS_MAPPINGS["Mix"]
info = cls.GET_NODE_INFO_V1()
found = {name: first_real_override(cls, name) is not None for name in
         ("define_schema", "execute", "validate_inputs", "fingerprint_inputs", "check_lazy_status")}
answer = [issubclass(cls, _ComfyNodeInternal), "INPUT_TYPES" in cls.__dict__, found, info["input"]["required"]["a"][1],
          list(info["input"]["optional"]), info["category"], info["description"], info["output_name"], info["python_module"],
          cls.FUNCTION, nodes.NODE_CLASS_MAPPINGS["Wait"].FUNCTION, nodes.NODE_CLASS_MAPPINGS["Wait"].OUTPUT_NODE]
"""
    told = host.python(code)
    assert told[:2] == [True, False]
    assert [name for name, found in told[2].items() if not found] == ["check_lazy_status"]
    assert {key: told[3][key] for key in ("default", "min", "max")} == {"default": 1, "min": 0, "max": 50}
    assert told[4:] == [["b"], "test", "Mixes.", ["mixed"], "custom_nodes.pack_v3", "EXECUTE_NORMALIZED", "EXECUTE_NORMALIZED_ASYNC", True]


def test_validation_of_a_v3_node_refuses_a_prompt(host):
    host.run_ok(show(n1=("Mix", dict(MIX))))
    result = host.run(prompt=show(n1=("Mix", {"a": 13, "mode": "add"})))
    assert result["rejected"]["1"] == ["a - not thirteen"]


def test_hidden_inputs_of_a_v3_node_arrive(host):
    text = host.texts(show(["t1", 0], nt1=("Tell", {})))["show0"][0].strip("'")
    assert text.split()[:2] == ["t1", "Tell"]


def test_a_v3_node_blocks_what_follows(host):
    result = host.run(prompt=show(n1=("Blocks", {"n": 1})))
    assert result["error"]["exception_message"] == "Execution Blocked: no further" and "show0" not in result["outputs"]


def test_an_object_of_a_v3_node_comes_back_as_itself(host):
    text = host.texts(show(["2", 0], n1=("Own", {}), n2=("Own", {"thing": ["1", 0]})))["show0"][0]
    assert "RemoteRef" in text and "Thing" in text


def test_a_coroutine_reports_through_the_api(host):
    code = "import comfy_execution.progress as p\nanswer = p.get_progress_state().nodes.get('w')"
    host.run_ok({"w": {"class_type": "Wait", "inputs": {"seconds": 0.4, "tag": "x"}}})
    told = host.python(code)
    assert (told["value"], told["max"]) == (4, 4)


# ---------------------------------------------------------------- overlapping

def spans(texts):
    return [tuple(map(float, text[0].strip("'").split())) for text in texts.values()]


def test_two_coroutines_of_one_environment_overlap(host):
    prompt = show(["1", 0], ["2", 0], n1=("Sleep", {"seconds": 1.0, "tag": "a"}), n2=("Sleep", {"seconds": 1.0, "tag": "b"}))
    (a, b), (c, d) = spans(host.texts(prompt))
    assert max(a, c) < min(b, d)


def test_two_environments_work_in_one_prompt_at_the_same_time(host):
    host.run_ok(show(["1", 0], ["2", 0], n1=("Busy", {"seconds": 0.0, "tag": "w"}), n2=("Busy2", {"seconds": 0.0, "tag": "w"})))
    prompt = show(["1", 0], ["2", 0], n1=("Sleep", {"seconds": 1.0, "tag": "c"}), n2=("Sleep2", {"seconds": 1.0, "tag": "c"}))
    (a, b), (c, d) = spans(host.texts(prompt))
    assert max(a, c) < min(b, d)


def test_a_plain_node_runs_while_a_coroutine_of_its_environment_waits(host):
    prompt = show(["1", 0], ["2", 0], n1=("Sleep", {"seconds": 1.5, "tag": "d"}), n2=("Busy", {"seconds": 0.1, "tag": "d"}))
    assert host.run_ok(prompt)["seconds"] < 4


def test_progress_of_a_coroutine_reaches_its_node(host):
    result = host.run_ok(show(["p", 0], np=("Sleep", {"seconds": 0.4, "tag": "e"})))
    assert result["progress"] == [["p", 1, 2], ["p", 2, 2]]


def test_an_error_of_a_coroutine_keeps_its_class(host):
    error = host.run(prompt=show(n1=("Fails", {"seconds": 0.3, "tag": "f"})))["error"]
    assert (error["exception_type"], error["exception_message"].strip()) == ("KeyError", "'f'")
    assert any("nodes.py" in line and "raise KeyError" in line for line in error["traceback"])


def test_a_coroutine_is_cancelled_when_its_prompt_fails(host, eventually):
    prompt = show(["1", 0], ["2", 0], n1=("Cancelled", {"seconds": 30.0, "tag": "g"}), n2=("Fails", {"seconds": 0.3, "tag": "g"}))
    result = host.run(prompt=prompt)
    assert not result["ok"] and result["seconds"] < 15
    ask = show(n1=("WasCancelled", {"seconds": 0.0, "tag": ""}))
    assert eventually(lambda: "g" in host.texts(ask)["show0"][0], seconds=10)


def test_an_interrupt_ends_a_coroutine(host):
    result = host.run(prompt=show(n1=("Sleep", {"seconds": 30.0, "tag": "h"})), interrupt_after=0.5)
    assert result["error"]["event"] == "execution_interrupted" and result["seconds"] < 15
    assert host.run_ok(show(n1=("Busy", {"seconds": 0.0, "tag": "i"})))["ok"]


def test_a_worker_that_dies_under_a_coroutine_fails_it_by_name(host):
    code = """
import os, signal, threading
from comfy_env.comfyui.host import host
key = next(key for key in host().isolated if key.startswith("pack-async"))
threading.Timer(0.7, lambda: os.kill(host().pool.record(key).pid, signal.SIGKILL)).start()
"""
    host.python(code)
    result = host.run(prompt=show(n1=("Sleep", {"seconds": 8.0, "tag": "j"})))
    assert result["error"]["exception_type"] == "comfy_env.errors.WorkerCrashed"
