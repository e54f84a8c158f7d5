"""Drives a host, fake or real, from a test: `python drive.py ROOT BASE PACK…`, one JSON command per line on stdin.

Prompts go the way a browser's do: through the middlewares and the route of POST /prompt, then the prompt thread.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
import types


def load(root, base):
    """Import the host as its own program would, without serving anything."""
    sys.path.insert(0, root)
    sys.argv = [os.path.join(root, "main.py"), "--cpu", "--base-directory", base, "--disable-api-nodes", "--disable-all-custom-nodes"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import main

    return main


class Drive:
    def __init__(self, root, base, packs):
        self.main = load(root, base)
        import nodes
        import server

        self.nodes = nodes
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.server = server.PromptServer(self.loop)
        self.messages = []
        self.server.send_sync = lambda event, data, sid=None: self.messages.append((event, data))
        for pack in packs:
            if not self.loop.run_until_complete(nodes.load_custom_node(pack)):
                raise SystemExit(f"{pack} did not load")
        self._own_nodes()
        self.main.hijack_progress(self.server)
        threading.Thread(target=self.loop.run_forever, name="event loop", daemon=True).start()
        threading.Thread(target=self.main.prompt_worker, args=(self.server.prompt_queue, self.server), name="prompts", daemon=True).start()

    def _own_nodes(self):
        """Give a real host the fake one's output node, and both a node that runs a test's code on the prompt thread."""
        drive = self

        class HostShow:
            RETURN_TYPES, FUNCTION, OUTPUT_NODE, CATEGORY = (), "show", True, "host"

            @classmethod
            def INPUT_TYPES(cls):
                return {"required": {"value": ("*",)}}

            @classmethod
            def VALIDATE_INPUTS(cls, input_types):
                return True

            def show(self, value):
                return {"ui": {"text": [repr(value)]}}

        class HostExec:
            RETURN_TYPES, FUNCTION, OUTPUT_NODE, CATEGORY = (), "run", True, "host"

            @classmethod
            def INPUT_TYPES(cls):
                return {"required": {"code": ("STRING",), "number": ("INT",)}}

            def run(self, code, number):
                try:
                    drive.answer = drive.exec(code)
                except Exception:
                    drive.failed = traceback.format_exc()
                return {"ui": {}}

        self.nodes.NODE_CLASS_MAPPINGS.setdefault("HostShow", HostShow)
        self.nodes.NODE_CLASS_MAPPINGS["HostExec"] = HostExec

    # ---- the web

    def request(self, method, path, body=None, query=None):
        """Have a route answer, through the middlewares; returns (status, text)."""
        handler, match = next((route.handler, {}) for route in self.server.routes if (route.method, route.path) == (method, path))

        async def json_body():
            return body if body is not None else {}

        request = types.SimpleNamespace(
            method=method, path=path, headers={}, match_info=match, query=query or {}, rel_url=types.SimpleNamespace(query=query or {}),
            json=json_body, app=self.server.app, remote="127.0.0.1")

        async def answer():
            inner = handler
            for middleware in reversed(list(self.server.app.middlewares)):
                inner = _wrapped(middleware, inner)
            return await inner(request)

        response = asyncio.run_coroutine_threadsafe(answer(), self.loop).result(60)
        return response.status, response.text

    def run(self, prompt, timeout=60, interrupt_after=None, extra=None):
        """Run a prompt to its end and return what a browser would have seen of it."""
        begun, seen = time.monotonic(), len(self.messages)
        status, text = self.request("POST", "/prompt", {"prompt": prompt, "client_id": "test", "extra_data": extra or {}})
        answer = json.loads(text)
        if status != 200:
            details = {id: [one["details"] for one in node["errors"]] for id, node in answer["node_errors"].items()}
            return {"ok": False, "rejected": details, "error": answer["error"]}
        prompt_id = answer["prompt_id"]
        asked = interrupt_after is None
        while time.monotonic() - begun < timeout:
            if not asked and time.monotonic() - begun >= interrupt_after:
                asked = True
                self.request("POST", "/interrupt", {})
            history = self.server.prompt_queue.get_history(prompt_id=prompt_id).get(prompt_id)
            if history is not None:
                return {**self.summary(prompt_id, self.messages[seen:], history), "seconds": time.monotonic() - begun}
            time.sleep(0.005)
        return {"ok": False, "error": f"no end within {timeout} s"}

    @staticmethod
    def summary(prompt_id, messages, history):
        mine = [(event, data) for event, data in messages if isinstance(data, dict) and data.get("prompt_id") in (prompt_id, None)]
        failures = [{"event": event, **data} for event, data in mine if event in ("execution_error", "execution_interrupted")]
        status = history["status"]
        return {
            "ok": (status["status_str"] if isinstance(status, dict) else status.status_str) == "success",
            "outputs": history["outputs"],
            "executed": [data["node"] for event, data in mine if event == "executing" and data.get("node") is not None],
            "cached": next((data["nodes"] for event, data in mine if event == "execution_cached"), []),
            "progress": [[data["node"], data["value"], data["max"]] for event, data in mine if event == "progress"],
            "error": failures[0] if failures else None,
            "others": [[str(event), data] for event, data in mine if str(event).startswith("test.")],
        }

    def exec(self, code):
        """Run Python here; what it leaves in `answer` is the answer."""
        scope = {"drive": self, "answer": None}
        exec(code, scope)
        return scope["answer"]


    def exec_as_node(self, code, beside=None):
        """Run Python as a node does, on the prompt thread, in a prompt that keeps what the nodes of `beside` gave."""
        self.answer, self.failed = None, ""
        self.run({"zz": {"class_type": "HostExec", "inputs": {"code": code, "number": time.monotonic_ns()}}, **(beside or {})})
        if self.failed:
            raise AssertionError(self.failed)
        return self.answer


def _wrapped(middleware, inner):
    async def call(request):
        return await middleware(request, inner)

    return call


def main():
    root, base, *packs = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    drive = Drive(root, base, packs)
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            reply = {"answer": getattr(drive, command.pop("do"))(**command)}
        except Exception:
            reply = {"failed": traceback.format_exc()}
        print(json.dumps(reply, default=repr), file=replies, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
