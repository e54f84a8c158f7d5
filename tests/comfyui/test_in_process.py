"""The in-process backend under ComfyUI's proxies: the same nodes, on a thread of the host."""

import pytest

NODES = '''
import os
import comfy.utils


class Here:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT",)}}

    def run(self, value):
        comfy.utils.ProgressBar(2).update(2)
        return (f"{os.getpid()} {value}",)


NODE_CLASS_MAPPINGS = {"Here": Here}
'''

pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


@pytest.fixture(scope="module")
def host(start, packs):
    return start(packs.isolated("pack_inproc", NODES, table='backend = "in-process"\n'), snapshots=False)


def prompt(value):
    return {"1": {"class_type": "Here", "inputs": {"value": value}}, "s": {"class_type": "HostShow", "inputs": {"value": ["1", 0]}}}


def test_a_node_runs_in_the_hosts_own_process_and_reports_as_ever(host):
    result = host.run_ok(prompt(4))
    assert result["outputs"]["s"]["text"] == [f"'{host.process.pid} 4'"]
    assert ["1", 2, 2] in result["progress"]


def test_the_hosts_own_modules_are_left_alone(host):
    host.run_ok(prompt(5))
    code = """
import sys, nodes, server
pack = next(name for name in sys.modules if name.endswith("pack_inproc"))
answer = [hasattr(nodes, "load_custom_node"), hasattr(server.PromptServer.instance, "prompt_queue"),
          sys.modules[pack].NODE_CLASS_MAPPINGS["Here"] is nodes.NODE_CLASS_MAPPINGS["Here"]]
"""
    assert host.python(code) == [True, True, True]
