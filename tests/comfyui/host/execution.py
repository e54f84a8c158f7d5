"""Checks and runs prompts: what is asked of a class, in which order, on which thread, and what is remembered under what."""

import asyncio
import copy
import heapq
import inspect
import logging
import threading
import traceback
from collections.abc import Mapping

import comfy.model_management
import nodes
from comfy_api.internal import _ComfyNodeInternal, _NodeOutputInternal, first_real_override
from comfy_api.latest import io
from comfy_execution import progress
from comfy_execution.graph import DynamicPrompt
from comfy_execution.graph_utils import ExecutionBlocker, GraphBuilder, is_link
from comfy_execution.utils import CurrentNodeContext

CONVERT = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


def is_v3(cls):
    return issubclass(cls, _ComfyNodeInternal)


def method(cls, v1, v3):
    """The author's method under either name, None if there is none."""
    return first_real_override(cls, v3) if is_v3(cls) else getattr(cls, v1, None)


def declared(cls):
    if is_v3(cls):
        groups, schema = cls.INPUT_TYPES(include_hidden=False, return_schema=True)
        return groups, list(schema.hidden or [])
    groups = cls.INPUT_TYPES()
    return groups, groups.get("hidden", {})


def info_of(groups, name):
    for group in ("required", "optional"):
        if name in groups.get(group, {}):
            info = groups[group][name]
            return info[0], group, info[1] if len(info) > 1 else {}
    return None, None, None


def gather(inputs, cls, node_id, outputs=None, dynprompt=None, extra=None):
    """The arguments of every call as lists, which inputs are not there yet, and the hidden inputs of a V3 class."""
    groups, hidden = declared(cls)
    given, missing = {}, set()
    for name, value in inputs.items():
        _, group, _ = info_of(groups, name)
        if is_link(value):
            found = outputs(value[0]) if outputs else None
            if found is None:
                missing.add(name)
                given[name] = (None,)
            else:
                given[name] = found[int(value[1])]
        elif group is not None:
            given[name] = [value]
    extra = extra or {}
    values = {
        "PROMPT": dynprompt.get_original_prompt() if dynprompt else {}, "DYNPROMPT": dynprompt, "UNIQUE_ID": node_id,
        "EXTRA_PNGINFO": extra.get("extra_pnginfo"), "AUTH_TOKEN_COMFY_ORG": extra.get("auth_token_comfy_org"),
        "API_KEY_COMFY_ORG": extra.get("api_key_comfy_org"),
    }
    if is_v3(cls):
        return given, missing, {kind: values[kind.value] for kind in hidden}
    given.update({name: [values[kind]] for name, kind in hidden.items() if kind in values})
    return given, missing, {}


async def each(prompt_id, node_id, obj, given, name, hidden=None, execute=False, on_block=None):
    """Call a method once per element of the longest list; coroutines become tasks."""
    as_list = getattr(obj, "INPUT_IS_LIST", False)
    count = 1 if as_list else max((len(values) for values in given.values()), default=1)
    results = []
    for index in range(count):
        if execute:
            nodes.before_node_execution()
        args = given if as_list else {key: values[min(index, len(values) - 1)] for key, values in given.items()}
        block = next((one for value in args.values() for one in (value if as_list else [value]) if isinstance(one, ExecutionBlocker)), None)
        if block is not None:
            results.append(on_block(block) if on_block else block)
            continue
        if execute:
            GraphBuilder.set_default_prefix(node_id, index, 0)
        cls = obj if isinstance(obj, type) else type(obj)
        target = getattr(cls.PREPARE_CLASS_CLONE(hidden) if is_v3(cls) else obj, name)
        if inspect.iscoroutinefunction(target):
            results.append(asyncio.create_task(_in_context(prompt_id, node_id, index, target, args)))
            await asyncio.sleep(0)
        else:
            with CurrentNodeContext(prompt_id, node_id, index):
                results.append(target(**args))
    return results


async def _in_context(prompt_id, node_id, index, target, args):
    with CurrentNodeContext(prompt_id, node_id, index):
        return await target(**args)


async def settled(results):
    return [await one if isinstance(one, asyncio.Task) else one for one in results]


# ---------------------------------------------------------------- validation, on the event loop's thread

async def validate_node(prompt_id, prompt, node_id, known):
    if node_id in known:
        return known[node_id]
    known[node_id] = errors = []
    cls, inputs = nodes.NODE_CLASS_MAPPINGS[prompt[node_id]["class_type"]], prompt[node_id]["inputs"]
    groups = cls.INPUT_TYPES()
    check = method(cls, "VALIDATE_INPUTS", "validate_inputs")
    spec = inspect.getfullargspec(check) if check else None
    wanted = spec.args if spec else ()
    types, fine = {}, True
    for name in [*groups.get("required", {}), *groups.get("optional", {})]:
        kind, group, options = info_of(groups, name)
        if name not in inputs:
            if group == "required":
                errors.append(_error("required_input_missing", name))
            continue
        value = inputs[name]
        if isinstance(value, list):
            source = nodes.NODE_CLASS_MAPPINGS[prompt[value[0]]["class_type"]]
            types[name] = source.RETURN_TYPES[value[1]]
            if "input_types" not in wanted and types[name] != kind:
                errors.append(_error("return_type_mismatch", f"{name}, received_type({types[name]}) mismatch input_type({kind})"))
            fine = not await validate_node(prompt_id, prompt, value[0], known) and fine
            continue
        try:
            value = inputs[name] = CONVERT[kind](value) if isinstance(kind, str) and kind in CONVERT else value
        except (TypeError, ValueError) as error:
            errors.append(_error("invalid_input_type", f"{name}, {value}, {error}"))
            continue
        if name not in wanted and not (spec and spec.varkw):
            errors += _out_of_range(name, kind, options, value)
    if spec and (wanted or spec.varkw):
        errors += await _verdicts(prompt_id, cls, node_id, inputs, wanted, spec.varkw, types)
    if errors or not fine:
        errors.append(None) if not errors else None
    return errors


def _out_of_range(name, kind, options, value):
    if "min" in options and value < options["min"]:
        return [_error("value_smaller_than_min", name)]
    if "max" in options and value > options["max"]:
        return [_error("value_bigger_than_max", name)]
    if isinstance(kind, list) and value not in kind:
        return [_error("value_not_in_list", f"{name}: '{value}' not in {kind}")]
    return []


async def _verdicts(prompt_id, cls, node_id, inputs, wanted, takes_any, types):
    given, _, hidden = gather(inputs, cls, node_id)
    given = {name: values for name, values in given.items() if name in wanted or takes_any}
    if "input_types" in wanted:
        given["input_types"] = [types]
    name = "validate_inputs" if is_v3(cls) else "VALIDATE_INPUTS"
    verdicts = await settled(await each(prompt_id, node_id, cls, given, name, hidden))
    bad = [one for one in verdicts if one is not True]
    return [_error("custom_validation_failed", name if one is False else f"{name} - {one}") for one in bad for name in given]


def _error(kind, details):
    return {"type": kind, "message": kind, "details": details, "extra_info": {}}


async def validate_prompt(prompt_id, prompt, partial=None):
    for id, node in prompt.items():
        if node.get("class_type") not in nodes.NODE_CLASS_MAPPINGS:
            return False, _error("invalid_prompt", f"Node ID '#{id}'"), [], {}
    ends = [id for id, node in prompt.items() if getattr(nodes.NODE_CLASS_MAPPINGS[node["class_type"]], "OUTPUT_NODE", False) is True]
    if not ends:
        return False, _error("prompt_no_outputs", ""), [], {}
    known, good = {}, []
    for id in ends:
        try:
            if not await validate_node(prompt_id, prompt, id, known):
                good.append(id)
        except Exception as error:
            known[id] = [_error("exception_during_validation", str(error))]
    told = {id: [one for one in errors if one] for id, errors in known.items()}
    node_errors = {id: {"errors": errors, "class_type": prompt[id]["class_type"]} for id, errors in told.items() if errors}
    if not good:
        return False, _error("prompt_outputs_failed_validation", ""), [], node_errors
    return True, None, good, node_errors


# ---------------------------------------------------------------- execution, on the prompt thread

class Unequal:
    """Equal to nothing: stands for what cannot be a key, and for NaN."""

    def __eq__(self, other):
        return False

    __hash__ = object.__hash__


def hashable(value):
    if isinstance(value, (int, float, str, bool, type(None))):
        return Unequal() if value != value else value
    if isinstance(value, Mapping):
        return frozenset((key, hashable(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(hashable(one) for one in value)
    return Unequal()


class PromptExecutor:
    def __init__(self, server, cache_type=False, cache_size=None):
        self.server = server
        self.reset()

    def reset(self):
        self.outputs, self.ui, self.objects = {}, {}, {}
        self.success = True

    def tell(self, event, data, broadcast=False):
        self.status_messages.append((event, data))
        if self.server.client_id is not None or broadcast:
            self.server.send_sync(event, data, self.server.client_id)

    def execute(self, prompt, prompt_id, extra_data=None, execute_outputs=()):
        asyncio.run(self.execute_async(prompt, prompt_id, extra_data or {}, list(execute_outputs)))

    async def execute_async(self, prompt, prompt_id, extra, ends):
        nodes.interrupt_processing(False)
        self.server.client_id = extra.get("client_id")
        self.status_messages = []
        self.tell("execution_start", {"prompt_id": prompt_id})
        run = Run(self, DynamicPrompt(prompt), prompt_id, extra)
        progress.reset_progress_state(prompt_id, run.prompt)
        await run.sign(list(prompt))
        self.forget(run)
        cached = [id for id in prompt if run.output(id) is not None]
        self.tell("execution_cached", {"nodes": cached, "prompt_id": prompt_id})
        self.success = await run.all(ends)
        if self.success:
            self.tell("execution_success", {"prompt_id": prompt_id})
        shown = {id: ui for (id, mark), ui in self.ui.items() if run.signatures.get(id) == mark}
        self.history_result = {"outputs": shown, "meta": {}}
        self.server.last_node_id = None

    def forget(self, run):
        """Drop what no node of this prompt would use."""
        kept = set(run.signatures.items())
        self.outputs = {key: value for key, value in self.outputs.items() if key in kept}
        self.ui = {key: value for key, value in self.ui.items() if key in kept}
        self.objects = {key: value for key, value in self.objects.items() if run.prompt.has_node(key[0])}


class Run:
    """One prompt being executed."""

    def __init__(self, executor, prompt, prompt_id, extra):
        self.executor, self.server, self.prompt, self.id, self.extra = executor, executor.server, prompt, prompt_id, extra
        self.changed, self.signatures, self.waiting, self.grown = {}, {}, {}, {}
        self.executed = []

    def cls(self, id):
        return nodes.NODE_CLASS_MAPPINGS[self.prompt.get_node(id)["class_type"]]

    def output(self, id):
        return self.executor.outputs.get((id, self.signatures.get(id)))

    # ---- signatures

    async def sign(self, ids):
        for id in ids:
            await self.is_changed(id)
        for id in ids:
            self.signatures[id] = self.signature(id, {})

    async def is_changed(self, id):
        cls, node = self.cls(id), self.prompt.get_node(id)
        if method(cls, "IS_CHANGED", "fingerprint_inputs") is None:
            self.changed[id] = False
            return
        given, _, _ = gather(node["inputs"], cls, id)
        try:
            name = "fingerprint_inputs" if is_v3(cls) else "IS_CHANGED"
            self.changed[id] = await settled(await each(self.id, id, cls, given, name))
        except Exception as error:
            logging.warning("WARNING: %s", error)
            self.changed[id] = float("nan")

    def signature(self, id, above):
        if id in above:
            return above[id]
        node, cls = self.prompt.get_node(id), self.cls(id)
        above[id] = None
        parts = [node["class_type"], hashable(self.changed.get(id, False))]
        hidden = [] if is_v3(cls) else list(cls.INPUT_TYPES().get("hidden", {}).values())
        if getattr(cls, "NOT_IDEMPOTENT", False) or "UNIQUE_ID" in hidden:
            parts.append(id)
        for name, value in sorted(node["inputs"].items()):
            linked = is_link(value) and self.prompt.has_node(value[0])
            parts.append((name, (self.signature(value[0], above), value[1]) if linked else hashable(value)))
        above[id] = tuple(parts)
        return above[id]

    # ---- running

    async def all(self, ends):
        """Run the output nodes and what they need; False at the first failure."""
        todo = list(ends)
        while todo:
            ready = await self.next_ready(todo)
            if ready is None:
                return True
            node_id = ready
            try:
                await self.run(node_id, todo)
            except comfy.model_management.InterruptProcessingException:
                self.fail("execution_interrupted", node_id, {}, True)
                return False
            except Exception as error:
                if isinstance(error, comfy.model_management.OOM_EXCEPTION):
                    comfy.model_management.unload_all_models()
                cls = type(error)
                name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
                trace = traceback.format_tb(error.__traceback__)
                told = {"exception_type": name, "exception_message": f"{error}\n", "traceback": trace}
                self.fail("execution_error", node_id, told, False)
                return False
        return True

    def fail(self, event, id, more, broadcast):
        real = self.prompt.get_real_node_id(id)
        kind = self.prompt.get_node(real)["class_type"]
        self.executor.tell(event, {"prompt_id": self.id, "node_id": real, "node_type": kind, **more}, broadcast)

    async def next_ready(self, todo):
        """The first node that can run now; waits for a task where every node waits."""
        while True:
            todo[:] = [id for id in todo if self.output(id) is None]
            if not todo:
                return None
            for id in todo:
                found = self.deepest(id, set())
                if found is not None:
                    return found
            tasks = [task for results in self.waiting.values() for task in results if isinstance(task, asyncio.Task)]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for id, results in self.waiting.items():
                if all(not isinstance(one, asyncio.Task) or one.done() for one in results):
                    return id

    def deepest(self, id, seen):
        """A node that `id` needs and that can run; None if all of those wait."""
        if id in seen or self.output(id) is not None or id in self.waiting:
            return None
        seen.add(id)
        if id in self.grown:
            needs = [link[0] for row in self.grown[id] for link in row if is_link(link)]
        else:
            groups, _ = declared(self.cls(id))
            inputs = self.prompt.get_node(id)["inputs"]
            lazy = self.waited_lazily.get(id, ()) if hasattr(self, "waited_lazily") else ()
            needs = [value[0] for name, value in inputs.items()
                     if is_link(value) and (name in lazy or not (info_of(groups, name)[2] or {}).get("lazy"))]
        open_ones = [need for need in needs if self.output(need) is None]
        if not open_ones:
            return id
        return next((found for need in open_ones if (found := self.deepest(need, seen)) is not None), None)

    async def run(self, id, todo):
        cls, node = self.cls(id), self.prompt.get_node(id)
        if id in self.waiting:
            results = [one.result() if isinstance(one, asyncio.Task) else one for one in self.waiting.pop(id)]
            await self.finish(id, cls, results, todo)
            return
        if id in self.grown:
            self.keep(id, self.resolved(id, cls), None)
            return
        given, missing, hidden = gather(node["inputs"], cls, id, self.output, self.prompt, self.extra)
        self.server.last_node_id = id
        self.server.send_sync("executing", {"node": id, "prompt_id": self.id}, self.server.client_id)
        obj = self.executor.objects.setdefault((id, node["class_type"]), None) or cls()
        self.executor.objects[id, node["class_type"]] = obj
        if await self.needs_more(id, cls, obj, given, missing, hidden):
            return
        results = await each(self.id, id, obj, given, obj.FUNCTION, hidden, execute=True, on_block=lambda block: self.blocked(id, block))
        if any(isinstance(one, asyncio.Task) and not one.done() for one in results):
            self.waiting[id] = results
            return
        await self.finish(id, cls, [one.result() if isinstance(one, asyncio.Task) else one for one in results], todo)

    async def needs_more(self, id, cls, obj, given, missing, hidden):
        if (first_real_override(cls, "check_lazy_status") if is_v3(cls) else getattr(obj, "check_lazy_status", None)) is None:
            return False
        answers = await settled(await each(self.id, id, obj, given, "check_lazy_status", hidden, execute=False))
        wanted = {name for answer in answers if isinstance(answer, list) for name in answer if name in missing}
        if wanted:
            self.waited_lazily = {**getattr(self, "waited_lazily", {}), id: wanted}
        return bool(wanted)

    def blocked(self, id, block):
        if block.message is None:
            return block
        self.server.send_sync("execution_error", {
            "prompt_id": self.id, "node_id": id, "node_type": self.prompt.get_node(id)["class_type"],
            "exception_message": f"Execution Blocked: {block.message}", "exception_type": "ExecutionBlocked"}, self.server.client_id)
        return ExecutionBlocker(None)

    async def finish(self, id, cls, results, todo):
        rows, shown, graphs = [], [], []
        for result in results:
            values, ui, graph = parts(result, cls)
            rows.append(values)
            shown += [ui] if ui else []
            graphs += [graph] if graph else []
        ui = {key: [one for part in shown for one in part[key]] for key in shown[0]} if shown else None
        if graphs:
            await self.grow(id, graphs, rows, todo)
            return
        self.keep(id, merged(rows, cls), ui)

    async def grow(self, id, graphs, rows, todo):
        for graph in graphs:
            for new, info in graph.items():
                self.prompt.add_ephemeral_node(new, info, id, id)
            await self.sign(list(graph))
            kinds = {new: nodes.NODE_CLASS_MAPPINGS[info["class_type"]] for new, info in graph.items()}
            todo += [new for new, kind in kinds.items() if getattr(kind, "OUTPUT_NODE", False) is True]
        self.grown[id] = rows

    def resolved(self, id, cls):
        rows = []
        for row in self.grown[id]:
            values = []
            for one in row:
                values += self.output(one[0])[one[1]] if is_link(one) else [one]
            rows.append(tuple(values))
        return merged(rows, cls)

    def keep(self, id, outputs, ui):
        self.executor.outputs[id, self.signatures[id]] = outputs
        if ui:
            self.executor.ui[id, self.signatures[id]] = ui
            self.server.send_sync("executed", {"node": id, "output": ui, "prompt_id": self.id}, self.server.client_id)


def parts(result, cls):
    """Values, what is for the screen, and a graph that replaces the node."""
    if isinstance(result, _NodeOutputInternal):
        ui = result.ui if result.ui is None or isinstance(result.ui, dict) else result.ui.as_dict()
        values = result.result or ()
        if result.block_execution is not None:
            values = (ExecutionBlocker(result.block_execution),) * len(cls.RETURN_TYPES)
        return values, ui, result.expand
    ui = graph = None
    if isinstance(result, dict):
        result, ui, graph = result.get("result", ()), result.get("ui"), result.get("expand")
    if isinstance(result, ExecutionBlocker):
        result = (result,) * len(cls.RETURN_TYPES)
    return result, ui, graph


def merged(rows, cls):
    is_list = list(getattr(cls, "OUTPUT_IS_LIST", ())) or [False] * len(rows[0])
    merged = []
    for slot in range(len(rows[0])):
        if is_list[slot]:
            merged.append([one for row in rows for one in ([row[slot]] if isinstance(row[slot], ExecutionBlocker) else row[slot])])
        else:
            merged.append([row[slot] for row in rows])
    return merged


class PromptQueue:
    def __init__(self, server):
        self.mutex = threading.RLock()
        self.not_empty = threading.Condition(self.mutex)
        self.counter = 0
        self.queue, self.currently_running, self.history, self.flags = [], {}, {}, {}

    def put(self, item):
        with self.mutex:
            heapq.heappush(self.queue, item)
            self.not_empty.notify()

    def get(self, timeout=None):
        with self.not_empty:
            while not self.queue:
                self.not_empty.wait(timeout=timeout)
                if timeout is not None and not self.queue:
                    return None
            item = heapq.heappop(self.queue)
            self.counter += 1
            self.currently_running[self.counter] = copy.deepcopy(item)
            return item, self.counter

    def task_done(self, item_id, history_result, status):
        with self.mutex:
            prompt = self.currently_running.pop(item_id)
            self.history[prompt[1]] = {"prompt": prompt, "outputs": {}, "status": status, **history_result}

    def set_flag(self, name, data):
        with self.mutex:
            self.flags[name] = data
            self.not_empty.notify()

    def get_flags(self, reset=True):
        with self.mutex:
            flags = self.flags
            self.flags = {} if reset else self.flags
            return dict(flags)

    def get_history(self, prompt_id=None):
        with self.mutex:
            return {prompt_id: self.history[prompt_id]} if prompt_id in self.history else {}


__all__ = ["PromptExecutor", "PromptQueue", "io", "validate_prompt"]
