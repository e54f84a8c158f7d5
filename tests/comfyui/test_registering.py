"""What a pack costs before any of its nodes runs, what it needs of its host, and what the host shows of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from comfy_env import EnvPlan, NodeRaised, Settings
from comfy_env.comfyui import snapshot

NODES = '''
class One:
    """Written out, so that it can be read without being run."""
    CATEGORY = "test"
    FUNCTION = "run"
    RETURN_TYPES = ("INT", "MODEL")
    RETURN_NAMES = ("number", "model")

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT", {"default": 1}), "mode": (["a", "b"],), "computed": (make_menu(),)}}

    def run(self, value, mode, computed):
        return (value, None)


class Takes(One):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",)}}

    @classmethod
    def IS_CHANGED(cls, model):
        return 1

    def run(self, model):
        return (1, model)


NODE_CLASS_MAPPINGS = {"One": One, "Takes": Takes}
NODE_DISPLAY_NAME_MAPPINGS = {"One": "Number one"}
'''
UNBUILT = 'backend = "venv"\ndependencies = ["numpy<2"]\n'
ROUTES = '''
from server import PromptServer


@PromptServer.instance.routes.get("/test/route")
async def answer(request):
    return None


PromptServer.instance.add_on_prompt_handler(lambda data: data)


class Kept:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def run(self):
        return (5,)


NODE_CLASS_MAPPINGS = {"Kept": Kept}
'''
FILES = "from comfy_env.backends.local import LocalBackend\n\nbackend = LocalBackend()\n"

pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


@pytest.fixture(scope="module")
def unbuilt(start, packs):
    return start(packs.isolated("pack_unbuilt", NODES, table=UNBUILT), packs.plain("pack_host", HOST), snapshots=False)


HOST = '''
class HostModel:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def run(self):
        return (object(),)


NODE_CLASS_MAPPINGS = {"HostModel": HostModel}
'''


def show(link, **nodes):
    prompt = {id.removeprefix("n"): {"class_type": kind, "inputs": inputs} for id, (kind, inputs) in nodes.items()}
    return {**prompt, "show": {"class_type": "HostShow", "inputs": {"value": link}}}


# ---------------------------------------------------------------- an environment that was never built

def test_the_nodes_of_an_unbuilt_environment_are_listed(unbuilt):
    code = """
import nodes
one = nodes.NODE_CLASS_MAPPINGS["One"]
answer = [nodes.NODE_DISPLAY_NAME_MAPPINGS["One"], one.RETURN_TYPES, one.RETURN_NAMES, one.CATEGORY, one.INPUT_TYPES(),
          hasattr(one, "IS_CHANGED"), hasattr(nodes.NODE_CLASS_MAPPINGS["Takes"], "IS_CHANGED")]
"""
    told = unbuilt.python(code)
    assert told == ["Number one", ["INT", "MODEL"], ["number", "model"], "test",
                    {"required": {"value": ["INT", {"default": 1}], "mode": [["a", "b"]], "computed": ["*"]}}, False, True]


def test_a_call_to_an_unbuilt_environment_names_the_command_that_builds_it(unbuilt):
    error = unbuilt.run(prompt=show(["1", 0], n1=("One", {"value": 1, "mode": "a", "computed": "x"})))["error"]
    assert error["exception_type"] == "comfy_env.errors.EnvNotBuilt"
    assert "comfy-env build" in error["exception_message"] and "pack_unbuilt" in error["exception_message"]


def test_registering_takes_no_time_and_starts_nothing(unbuilt, record_property):
    code = """
import pathlib, time, threading, psutil
from comfy_env.comfyui import entry, host as hosts
threads, children = threading.active_count(), len(psutil.Process().children())
folder = next(iter(hosts.host().isolated.values())).home.folder
begun = time.perf_counter()
fresh = hosts.Host()
entry._registered(fresh, entry.homes(pathlib.Path(folder), "again", "nodes"))
answer = [time.perf_counter() - begun, threading.active_count() - threads, len(psutil.Process().children()) - children]
"""
    seconds, threads, children = unbuilt.python(code)
    record_property("registering an unbuilt pack, ms", round(1000 * seconds, 1))
    assert seconds < 0.2 and (threads, children) == (0, 0)


def test_registering_loads_nothing_that_only_a_call_needs(record_property):
    program = """
import asyncio, json, logging, sys, time
begun = time.process_time()
from comfy_env import register_nodes
print(json.dumps([time.process_time() - begun, sorted(name for name in sys.modules if name.split(".")[:2] in (
    ["comfy_env", "pool"], ["comfy_env", "hooks"], ["comfy_env", "transport"], ["comfy_env", "process"]))]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    seconds, loaded = json.loads(done.stdout)
    record_property("loading what register_nodes needs, ms of processor time", round(1000 * seconds, 1))
    assert loaded == []


def test_object_info_is_complete_and_starts_nothing(unbuilt):
    status, text = unbuilt.request(method="GET", path="/object_info")
    assert status == 200 and {"One", "Takes", "HostShow"} <= set(json.loads(text))
    assert unbuilt.python("from comfy_env.comfyui.host import host\nanswer = len(host().pool.records())") == 0


def test_a_link_that_cannot_work_is_refused_before_anything_runs(unbuilt):
    result = unbuilt.run(prompt=show(["2", 0], n1=("HostModel", {}), n2=("Takes", {"model": ["1", 0]})))
    assert list(result["rejected"]) == ["2"] and "a MODEL of HostModel" in result["rejected"]["2"][0]
    assert "cannot go to the environment pack-unbuilt" in result["rejected"]["2"][0]
    assert unbuilt.run(prompt=show(["1", 0], n1=("HostModel", {})))["ok"]


def test_the_status_page_tells_what_to_do(unbuilt):
    status, text = unbuilt.request(method="GET", path="/comfy-env/status", query={"json": "1"})
    env = json.loads(text)["envs"][0]
    assert (status, env["state"], env["nodes"], env["described"], env["worker"]) == (200, "missing", ["One", "Takes"], "sources", None)
    assert "comfy-env build" in env["fix"]
    status, text = unbuilt.request(method="GET", path="/comfy-env/status")
    assert status == 200 and "comfy-env build" in text and "<table>" in text


def test_the_v3_nodes_of_an_unbuilt_environment_are_listed_and_say_how_to_build_it(start, packs):
    inputs = 'inputs=[io.Int.Input("n", default=2**3, max=TOP), io.Image.Input("i", optional=True)]'
    source = V3.replace("V3Here", "V3There").replace("inputs=[]", inputs)
    host = start(packs.isolated("pack_v3_unbuilt", source, table=UNBUILT), snapshots=False)
    code = """
import nodes
cls = nodes.NODE_CLASS_MAPPINGS["V3There"]
answer = [cls.INPUT_TYPES(), cls.RETURN_TYPES, cls.CATEGORY, nodes.NODE_DISPLAY_NAME_MAPPINGS["V3There"]]
"""
    assert host.python(code) == [{"required": {"n": ["INT", {"default": 8}]}, "optional": {"i": ["IMAGE", {}]}}, ["INT"], "test", "V3 here"]
    error = host.run(prompt=show(["1", 0], n1=("V3There", {"n": 1})))["error"]
    assert error["exception_type"] == "comfy_env.errors.EnvNotBuilt" and "comfy-env build" in error["exception_message"]


def test_v3_nodes_that_were_read_from_the_sources_run_once_there_is_a_worker(start, packs):
    host = start(packs.isolated("pack_v3_read", V3.replace("V3Here", "V3Read")), snapshots=False)
    for _ in range(2):
        assert host.texts(show(["1", 0], n1=("V3Read", {})))["show"] == ["3"]
        host.python("import nodes\nanswer = repr(nodes.NODE_CLASS_MAPPINGS['V3Read'].INPUT_TYPES())")


# ---------------------------------------------------------------- a pack that registers more than nodes

@pytest.fixture(scope="module")
def routes(start, packs):
    return start(packs.isolated("pack_routes", ROUTES))


def test_a_pack_that_registers_routes_keeps_its_nodes_and_the_routes_are_told(routes):
    assert routes.texts(show(["1", 0], n1=("Kept", {})))["show"] == ["5"]
    env = json.loads(routes.request(method="GET", path="/comfy-env/status", query={"json": "1"})[1])["envs"][0]
    assert ["GET route", "/test/route"] in env["not_registered"] and any("handler" in entry[0] for entry in env["not_registered"])


def test_the_buttons_of_the_status_page_act(routes):
    routes.texts(show(["1", 0], n1=("Kept", {})))
    env = json.loads(routes.request(method="GET", path="/comfy-env/status", query={"json": "1"})[1])["envs"][0]
    assert env["worker"]["state"] in ("ready", "busy", "releasing")
    status, text = routes.request(method="POST", path="/comfy-env/release", body={"env": env["key"]})
    assert status == 200 and "still held" in json.loads(text)["done"]
    done = json.loads(routes.request(method="POST", path="/comfy-env/restart", body={"env": env["key"]})[1])["done"]
    assert done.startswith("its worker was ended")
    assert "no such" in json.loads(routes.request(method="POST", path="/comfy-env/restart", body={"env": "x"})[1])["error"]
    assert routes.texts(show(["1", 0], n1=("Kept", {})))["show"] == ["5"]


def test_restarting_an_environment_that_was_parked_ends_its_pause(routes):
    code = """
import os, signal
from comfy_env import errors
from comfy_env.comfyui.host import host
plan, answer = next(iter(host().isolated.values())).plan, []
try:
    for _ in range(5):
        pid = host().pool.call(plan, "os:getpid")
        os.kill(pid, signal.SIGKILL)
except errors.ComfyEnvError as error:
    answer = type(error).__name__
"""
    died = 0
    while (told := routes.python(code)) != "Parked":
        died += 1
        assert died < 10, told
    env = json.loads(routes.request(method="GET", path="/comfy-env/status", query={"json": "1"})[1])["envs"][0]
    assert "pause is over" in json.loads(routes.request(method="POST", path="/comfy-env/restart", body={"env": env["key"]})[1])["done"]
    pid = """
from comfy_env.comfyui.host import host
answer = host().pool.call(next(iter(host().isolated.values())).plan, "os:getpid")
"""
    assert routes.python(pid) > 0


def test_a_request_that_holds_no_json_object_breaks_nothing(routes):
    assert "no such" in json.loads(routes.request(method="POST", path="/comfy-env/restart", body=[1])[1])["error"]
    code = """
import asyncio
from comfy_env.comfyui import core
class Request:
    async def json(self):
        raise ValueError("Expecting value")
answer = asyncio.run(core.json_of(Request()))
"""
    assert routes.python(code) == {}


# ---------------------------------------------------------------- no isolated pack

def test_without_an_isolated_pack_loading_us_costs_and_changes_nothing(core, record_property):
    root, python = core
    program = f"""
import atexit, os, sys, threading, time
sys.path.insert(0, {str(root)!r})
sys.argv = ["main.py", "--cpu", "--disable-all-custom-nodes"]
import comfy.options; comfy.options.enable_args_parsing()
import main, nodes, server, execution, comfy.model_management, comfy.utils
modules = [nodes, server, execution, comfy.model_management, comfy.utils, server.PromptServer, execution.PromptExecutor]
before = [dict(vars(module)) for module in modules]
threads, exits, fds = threading.active_count(), atexit._ncallbacks(), len(os.listdir("/proc/self/fd"))
begun = time.perf_counter()
import comfy_env
from comfy_env import WorkerPool
took = time.perf_counter() - begun
begun = time.perf_counter()
importlib = __import__("importlib"); importlib.reload(sys.modules["comfy_env"])
same = all(then == dict(vars(module)) for then, module in zip(before, modules))
print("RESULT", took, threading.active_count() - threads, atexit._ncallbacks() - exits, len(os.listdir("/proc/self/fd")) - fds, same)
"""
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=120, cwd=root)
    result = next(line for line in done.stdout.splitlines() if line.startswith("RESULT")).split()
    assert result[2:] == ["0", "0", "0", "True"], done.stderr
    program = "import time\nbegun = time.perf_counter()\nimport comfy_env\nprint(time.perf_counter() - begun)"
    seconds = min(float(subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout) for _ in range(5))
    record_property("import of comfy_env, ms", round(1000 * seconds, 2))
    assert seconds < 0.03


def test_a_pack_without_an_environment_is_imported_in_the_host(start, packs):
    host = start(packs.undeclared("pack_none", "class Kept" + ROUTES.split("class Kept")[1]), snapshots=False)
    code = "import nodes\nfrom comfy_env.comfyui.proxies import Proxy\nanswer = issubclass(nodes.NODE_CLASS_MAPPINGS['Kept'], Proxy)"
    assert host.python(code) is False
    assert host.texts(show(["1", 0], n1=("Kept", {})))["show"] == ["5"]


V3 = '''
from comfy_api.latest import ComfyExtension, io


class Here(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(node_id="V3Here", display_name="V3 here", category="test", inputs=[], outputs=[io.Int.Output()])

    @classmethod
    def execute(cls):
        return io.NodeOutput(3)


class Extension(ComfyExtension):
    async def get_node_list(self):
        return [Here]


async def comfy_entrypoint():
    return Extension()
'''


def test_a_v3_pack_without_an_environment_is_imported_in_the_host(start, packs):
    host = start(packs.undeclared("pack_v3_none", V3), snapshots=False)
    assert host.texts(show(["1", 0], n1=("V3Here", {})))["show"] == ["3"]
    assert host.python("import nodes\nanswer = nodes.NODE_DISPLAY_NAME_MAPPINGS['V3Here']") == "V3 here"


# ---------------------------------------------------------------- describing without a ComfyUI

TWO = '''
[tool.comfy-env.envs.classic]
backend = "pack_two"
nodes = ["Classic*"]

[tool.comfy-env.envs.modern]
backend = "pack_two"
nodes = ["Modern*"]
'''


def test_a_shipped_snapshot_holds_the_nodes_of_every_environment(core, packs, place):
    nodes = ROUTES.split("class Kept")[1]
    pack = packs.isolated("pack_two", f"class ClassicOne{nodes}\n\nclass ModernOne{nodes}".replace('{"Kept": Kept}', "{}")
                          + '\nNODE_CLASS_MAPPINGS = {"ClassicOne": ClassicOne, "ModernOne": ModernOne}\n', table=TWO)
    variables = {f"COMFY_ENV_{name}": str(place / f"two-{name.lower()}") for name in ("ENVS", "RUNTIME", "LOGS")}
    done = comfy_env_cli(core[1], "snapshot", pack, "--comfyui", core[0], "--ship", "--json", **variables)
    assert [row["nodes"] for row in json.loads(done.stdout)["snapshots"]] == [["ClassicOne"], ["ModernOne"]]
    assert sorted(json.loads((pack / "comfy-env-snapshot.json").read_text())["nodes"]) == ["ClassicOne", "ModernOne"]


def comfy_env_cli(python, *arguments, **variables):
    command = [python, "-m", "comfy_env.cli", *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def test_a_pack_outside_comfyuis_folder_is_described_with_the_one_that_ran_it_last(core, unbuilt, place):
    settings = Settings(envs_folder=place / "envs")
    assert snapshot.comfyui_of(place, settings) == Path(core[0]).resolve()
    outside = snapshot.Outside(snapshot.comfyui_of(place, settings), place)
    assert outside.core_version() == unbuilt.python("import comfyui_version\nanswer = comfyui_version.__version__")
    assert snapshot.comfyui_of(place, Settings(envs_folder=place / "nothing")) is None


def test_a_pack_that_needs_comfyui_where_none_is_known_is_told_the_way(tmp_path):
    (tmp_path / "pack" / "nodes").mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("from comfy_env import register_nodes\nNODE_CLASS_MAPPINGS, _ = register_nodes()\n")
    (tmp_path / "pack" / "nodes" / "__init__.py").write_text("import folder_paths\n")
    plan = EnvPlan.existing(sys.executable, "needy", root=tmp_path / "pack")
    settings = Settings(**{f"{name}_folder": tmp_path / name for name in ("envs", "runtime", "log")})
    with pytest.raises(NodeRaised, match="No module named 'folder_paths'") as caught:
        snapshot.take_outside(plan, settings)
    assert "--comfyui" in caught.value.hint


# ---------------------------------------------------------------- requirements

def test_a_symbol_that_is_missing_is_named_in_one_line_and_switches_one_thing_off(start, packs):
    host = start(packs.isolated("pack_missing", ROUTES.replace("Kept", "Kept2")))
    code = """
import comfy.model_management as mm, logging
from comfy_env.comfyui import requirements
heard = []
class Ear(logging.Handler):
    def emit(self, record): heard.append(record.getMessage())
logging.getLogger("comfy_env").addHandler(Ear())
kept = mm.free_memory
del mm.free_memory
answer = [requirements.check(), heard]
mm.free_memory = kept
"""
    missing, heard = host.python(code)
    assert missing == {"comfy.model_management.free_memory": "off"}
    assert len(heard) == 1 and "no room is made" in heard[0]


def test_every_symbol_that_core_touches_of_a_listed_model_is_in_the_table(core):
    from comfy_env.comfyui.requirements import asked_of_entries, members

    source = Path(core[0]) / "comfy" / "model_management.py"
    assert asked_of_entries(source) - set(members()) == set()


def test_a_stand_in_has_every_member_of_the_table():
    from comfy_env.comfyui.requirements import members
    from comfy_env.comfyui.stand_ins import StandIn

    one = StandIn("env", 1, {"name": "m1", "class": "Net", "size": 10, "loaded": 5}, "cpu", lambda env, name, want: 0)
    assert [name for name in members() if not hasattr(one, name)] == []


def test_a_process_that_is_no_comfyui_says_so(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from comfy_env import register_nodes\nNODE_CLASS_MAPPINGS, _ = register_nodes()\n")
    (tmp_path / "pack" / "nodes.py").write_text("NODE_CLASS_MAPPINGS = {}\n")
    (tmp_path / "pack" / "pyproject.toml").write_text('[project]\nname = "pack"\n[tool.comfy-env]\ndependencies = []\n')
    done = subprocess.run([sys.executable, "-c", "import pack"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "this process is no ComfyUI" in done.stderr
