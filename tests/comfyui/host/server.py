"""The server object, and as much of a web framework as routes and middlewares need."""

import json
import types
import uuid

import execution
import folder_paths  # noqa: F401
import nodes
from comfy_api.internal import _ComfyNodeInternal


class Response:
    def __init__(self, text="", status=200, content_type="text/plain"):
        self.text, self.status, self.content_type = text, status, content_type
        self.headers = {}


class Routes(list):
    def _adder(self, verb):
        return lambda path, **more: lambda handler: self.append(types.SimpleNamespace(method=verb, path=path, handler=handler)) or handler

    def get(self, path):
        return self._adder("GET")(path)

    def post(self, path):
        return self._adder("POST")(path)


class App:
    frozen = False

    def __init__(self):
        self.middlewares = []


web = types.SimpleNamespace(
    Response=Response, json_response=lambda data, status=200: Response(json.dumps(data), status, "application/json"),
    middleware=lambda function: function, RouteTableDef=Routes,
)


class PromptServer:
    instance = None

    def __init__(self, loop):
        PromptServer.instance = self
        self.loop = loop
        self.app, self.routes = App(), Routes()
        self.client_id = self.last_node_id = self.last_prompt_id = None
        self.prompt_queue = execution.PromptQueue(self)
        self.sockets_metadata = {}
        self.number = 0
        self.on_prompt_handlers = []
        self._add_own_routes()

    def send_sync(self, event, data, sid=None):
        pass

    def send_progress_text(self, text, node_id, sid=None):
        self.send_sync("progress_text", (text, node_id), sid)

    def add_on_prompt_handler(self, handler):
        self.on_prompt_handlers.append(handler)

    def add_routes(self):
        pass

    def _add_own_routes(self):
        @self.routes.get("/object_info")
        async def object_info(request):
            return web.json_response({name: info(name) for name in nodes.NODE_CLASS_MAPPINGS})

        @self.routes.post("/prompt")
        async def post_prompt(request):
            body = await request.json()
            prompt_id = str(body.get("prompt_id") or uuid.uuid4())
            valid = await execution.validate_prompt(prompt_id, body["prompt"])
            if not valid[0]:
                return web.json_response({"error": valid[1], "node_errors": valid[3]}, status=400)
            self.number += 1
            extra = {**body.get("extra_data", {}), "client_id": body.get("client_id")}
            self.prompt_queue.put((self.number, prompt_id, body["prompt"], extra, valid[2]))
            return web.json_response({"prompt_id": prompt_id, "node_errors": valid[3]})

        @self.routes.post("/interrupt")
        async def interrupt(request):
            nodes.interrupt_processing()
            return web.Response(status=200)

        @self.routes.post("/free")
        async def free(request):
            for name, value in (await request.json()).items():
                self.prompt_queue.set_flag(name, value)
            return web.Response(status=200)


def info(name):
    cls = nodes.NODE_CLASS_MAPPINGS[name]
    if issubclass(cls, _ComfyNodeInternal):
        return cls.GET_NODE_INFO_V1()
    groups = cls.INPUT_TYPES()
    return {
        "input": groups, "input_order": {key: list(group) for key, group in groups.items()}, "output": cls.RETURN_TYPES,
        "output_is_list": getattr(cls, "OUTPUT_IS_LIST", [False] * len(cls.RETURN_TYPES)),
        "output_name": getattr(cls, "RETURN_NAMES", cls.RETURN_TYPES), "name": name,
        "display_name": nodes.NODE_DISPLAY_NAME_MAPPINGS.get(name, name), "description": getattr(cls, "DESCRIPTION", ""),
        "category": getattr(cls, "CATEGORY", "sd"), "output_node": getattr(cls, "OUTPUT_NODE", False),
        "python_module": getattr(cls, "RELATIVE_PYTHON_MODULE", "nodes"),
    }
