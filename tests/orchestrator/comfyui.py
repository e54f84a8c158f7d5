"""A ComfyUI that does what a test says: a queue, a history, a web socket; it can be killed and come back."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ComfyUI:
    """`running` and `pending` hold prompt ids; `finish` moves one to the history."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.pending: list[str] = []
        self.history: dict[str, dict] = {}
        self.asked: list[str] = []
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> ComfyUI:
        comfyui = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                comfyui.asked.append(self.path)
                document = comfyui.answer(self.path)
                body = json.dumps(document).encode()
                self.send_response(200 if document is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="comfyui")
        self._thread.start()
        return self

    def answer(self, path: str) -> object:
        if path == "/prompt":
            return {"exec_info": {"queue_remaining": len(self.running) + len(self.pending)}}
        if path == "/queue":
            return {
                name: [[0, id, {}, {}, []] for id in ids]
                for name, ids in (("queue_running", self.running), ("queue_pending", self.pending))
            }
        if path.startswith("/history/"):
            id = path.rpartition("/")[2]
            return {id: self.history[id]} if id in self.history else {}
        return None

    def finish(self, id: str, status: str = "success") -> None:
        self.history[id] = {"status": {"status_str": status, "completed": status == "success"}}
        self.running = [other for other in self.running if other != id]

    def kill(self) -> None:
        """Stop answering; what it had queued and done is gone with it."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)
            self._server = None
        self.running, self.pending, self.history = [], [], {}

    def __enter__(self) -> ComfyUI:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()
