"""Models of workers in core's list: counted, evicted, outliving their worker, never raising."""

import importlib.util

import pytest

NODES = '''
import os
import comfy.model_management as mm


class Weights:
    pass


class Patcher:
    """As much of core's model patcher as its list of loaded models asks."""
    parent = None

    def __init__(self, size):
        self.load_device = self.offload_device = mm.get_torch_device()
        self.model = Weights()
        self.model.device = self.load_device
        self.size, self.loaded = size, 0

    def model_size(self): return self.size
    def loaded_size(self): return self.loaded
    def model_dtype(self): return None
    def current_loaded_device(self): return self.load_device
    def model_patches_models(self): return []
    def model_patches_to(self, device): pass
    def is_clone(self, other): return other is self
    def lowvram_patch_counter(self): return 0
    def is_dynamic(self): return False
    def partially_load(self, device, extra=0, force_patch_weights=False):
        self.loaded = self.size
        return self.size
    def partially_unload(self, device, wanted, **more):
        freed = min(self.loaded, int(wanted))
        self.loaded -= freed
        return freed
    def detach(self, unpatch_all=True): self.loaded = 0


class Base:
    CATEGORY, FUNCTION = "test", "run"


class Load(Base):
    RETURN_TYPES = ("TEST_MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"size": ("INT",)}}

    def run(self, size):
        patcher = Patcher(size)
        mm.load_models_gpu([patcher])
        return (patcher,)


class Loaded(Base):
    RETURN_TYPES = ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("TEST_MODEL",)}}

    @classmethod
    def IS_CHANGED(cls, model):
        return float("nan")

    def run(self, model):
        return (model.loaded,)


class Exit(Base):
    RETURN_TYPES = ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("TEST_MODEL",)}}

    def run(self, model):
        os._exit(9)


NODE_CLASS_MAPPINGS = {"Load": Load, "Loaded": Loaded, "Exit": Exit}
'''

pytestmark = [pytest.mark.shares("thread", "process", "fd", "folder"),
              pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")]
SIZES = (1000, 2000, 3000)


@pytest.fixture(scope="module")
def host(start, packs):
    return start(packs.isolated("pack_memory", NODES), COMFY_ENV_CRASH_LIMIT="1000")


@pytest.fixture
def loaded(host):
    """Three models in the worker, loaded just now."""
    host.run_ok(prompt(7))
    host.run_ok(prompt())
    return host


def prompt(*sizes):
    nodes = {}
    for number, size in enumerate(sizes or SIZES):
        nodes[f"m{number}"] = {"class_type": "Load", "inputs": {"size": size}}
        nodes[f"l{number}"] = {"class_type": "Loaded", "inputs": {"model": [f"m{number}", 0]}}
        nodes[f"s{number}"] = {"class_type": "HostShow", "inputs": {"value": [f"l{number}", 0]}}
    return nodes


ENTRIES = """
import comfy.model_management as mm
from comfy_env.comfyui.stand_ins import StandIn
entries = [entry for entry in mm.current_loaded_models if isinstance(entry.model, StandIn)]
"""


def look(host, code, *sizes):
    """Run code on the prompt thread with core's entries at hand, in a prompt that keeps the models."""
    return host.as_node(ENTRIES + code, beside=prompt(*sizes))


def stand_ins(host, *sizes):
    return look(host, "answer = sorted([e.model.model_size(), e.model.loaded_size(), e.model.alive] for e in entries)", *sizes)


def test_core_counts_the_models_of_a_worker(loaded):
    assert stand_ins(loaded) == [[1000, 1000, True], [2000, 2000, True], [3000, 3000, True]]
    record = loaded.python("from comfy_env.comfyui.host import host\nanswer = host().pool.seats()[0].env.row.stand_ins")
    assert record == 3


def test_a_stand_in_is_a_fully_formed_entry(loaded):
    code = """
answer = [[e.real_model() is e.model.model, e.model_finalizer.alive, e.currently_used, e.is_dead(), e.model_memory(),
           e.model_offloaded_memory(), e == e, str(e.device) == str(mm.get_torch_device())] for e in entries]
"""
    assert sorted(look(loaded, code)) == [[True, True, False, False, size, 0, True, True] for size in SIZES]


def test_core_evicts_one_model_and_the_worker_lets_go_of_that_one(loaded):
    answer = look(loaded, """
entry = next(e for e in entries if e.model.model_size() == 2000)
answer = [entry.model_unload(None), entry.model.loaded_size()]
mm.current_loaded_models.remove(entry)
""")
    assert answer == [True, 0]
    assert loaded.texts(prompt()) == {"s0": ["1000"], "s1": ["0"], "s2": ["3000"]}


def test_core_takes_a_part_of_a_model(loaded):
    entry = "entry = next(e for e in entries if e.model.model_size() == 3000)\n"
    assert look(loaded, entry + "answer = [entry.model_unload(500), entry.model.loaded_size()]") == [False, 2500]
    assert loaded.texts(prompt())["s2"] == ["2500"]


@pytest.mark.parametrize("asked", ["1e32", "0", "-5", "float('nan')", "'much'"])
def test_what_core_asks_for_is_taken_as_a_sane_number(loaded, asked):
    code = f"answer = [type(e.model.partially_unload(None, {asked})).__name__ for e in entries]"
    assert set(look(loaded, code)) == {"int"}


def test_freeing_memory_walks_the_real_list_and_empties_it(loaded):
    code = """
mm.unload_all_models()
answer = len([e for e in mm.current_loaded_models if isinstance(e.model, StandIn)])
"""
    assert look(loaded, code) == 0
    assert loaded.texts(prompt()) == {"s0": ["0"], "s1": ["0"], "s2": ["0"]}


def test_a_member_nobody_foresaw_is_named_with_the_core(loaded):
    code = """
try:
    entries[0].model.something_new
except AttributeError as error:
    answer = str(error)
"""
    assert "something_new" in look(loaded, code) and "core" in look(loaded, code)


def test_a_model_that_is_dropped_leaves_the_list(host):
    host.run_ok(prompt(1111))
    host.run_ok(prompt(2222))
    host.run_ok(prompt(2222))
    host.run_ok(prompt(2222))
    assert [size for size, *_ in stand_ins(host, 2222)] == [2222]


# ---------------------------------------------------------------- death

def test_stand_ins_of_a_dead_worker_stay_until_they_may_go_and_answer_as_unloaded(loaded):
    code = """
from comfy_env.comfyui.host import host
key = next(iter(host().isolated))
host().pool.kill(key)
before = [[e.model.loaded_size(), e.model.alive, e.model.partially_unload(None, 10), e.model.detach()] for e in entries]
mm.unload_all_models()
answer = [before, len(host().memory.shelf.of(key))]
"""
    assert look(loaded, code) == [[[0, False, 0, None]] * 3, 3]
    loaded.run_ok(prompt(4444))
    assert stand_ins(loaded, 4444) == [[4444, 4444, True]]
    assert loaded.python("from comfy_env.comfyui.host import host\nanswer = len(host().memory.shelf.of(next(iter(host().isolated))))") == 1


def test_a_worker_that_is_replaced_inside_cores_loop_changes_no_list_there(loaded):
    code = """
import gc
from comfy_env.comfyui.host import host
first = entries[0].model
evict = first._evict
def replaced(env, name, want):
    before = [id(e) for e in mm.current_loaded_models]
    host().pool.kill(env)
    gc.collect()
    assert [id(e) for e in mm.current_loaded_models] == before
    return 0
for entry in entries:
    entry.model._evict = replaced
mm.free_memory(1e30, mm.get_torch_device())
answer = [[e.model is not None, e.real_model is not None] for e in mm.current_loaded_models]
"""
    assert all(all(row) for row in look(loaded, code))
    loaded.run_ok(prompt(5555))
    assert [size for size, *_ in stand_ins(loaded, 5555)] == [5555]


def test_unloading_again_and_again_while_the_worker_dies_raises_nothing(host):
    code = """
import os, signal, threading, time
from comfy_env.comfyui.host import host
key = next(iter(host().isolated))
def killer():
    record = host().pool.record(key)
    if record:
        os.kill(record.pid, signal.SIGKILL)
threading.Timer(0.002 * (round_ % 7), killer).start()
for _ in range(20):
    mm.unload_all_models()
    time.sleep(0.001)
answer = "served"
"""
    for round_ in range(3):
        host.run_ok(prompt(8))
        host.run_ok(prompt())
        assert look(host, f"round_ = {round_}\n" + code) == "served"


# ---------------------------------------------------------------- references

def test_a_value_that_stayed_in_a_worker_is_kept_and_made_anew_after_its_death(loaded):
    again = loaded.run_ok(prompt())
    assert [id for id in again["executed"] if id.startswith("m")] == []
    failed = loaded.run(prompt={**prompt(1000), "x": {"class_type": "Exit", "inputs": {"model": ["m0", 0]}},
                                "sx": {"class_type": "HostShow", "inputs": {"value": ["x", 0]}}})
    assert failed["error"]["exception_type"] == "comfy_env.errors.WorkerCrashed"
    anew = loaded.run_ok(prompt(1000))
    assert "m0" in anew["executed"] and anew["outputs"]["s0"]["text"] == ["1000"]
    assert any("the next prompt makes them anew" in line for line in loaded.log)


def test_a_value_that_core_drops_is_dropped_in_the_worker(host):
    host.run_ok(prompt(1234))
    count = """
from comfy_env.comfyui.host import host
key = next(iter(host().isolated))
answer = host().references(key, host().pool.record(key).generation)
"""
    assert host.python(count) == 1
    host.run_ok(prompt(1235, 1236))
    host.run_ok(prompt(1235, 1236))
    host.python("import gc; gc.collect()")
    assert host.python(count) == 2


# ---------------------------------------------------------------- /free

def test_free_reaches_the_workers_and_says_what_they_gave(loaded, eventually):
    loaded.request(method="POST", path="/free", body={"unload_models": True})
    receipts = eventually(lambda: loaded.python("from comfy_env.comfyui.host import host\nanswer = host().receipts"), seconds=15)
    assert all("still held" in text for text in receipts.values())
    assert loaded.texts(prompt())["s0"] == ["0"]


def test_room_for_a_load_is_made_with_cores_own_means(loaded):
    code = """
import comfy.model_management as mm
from comfy_env.comfyui.host import host
asked = []
original = mm.free_memory
mm.free_memory = lambda needed, device, *more, **kw: asked.append([needed, str(device)]) or []
answer = [host().memory.room(str(mm.get_torch_device()), 12345), asked]
mm.free_memory = original
"""
    told, asked = loaded.python(code)
    assert asked[0][0] == 12345 and told["free"] >= 0
