"""The page `/comfy-env/status` of a ComfyUI with isolated packs: environments, workers, stories, and two buttons."""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from comfy_env.comfyui import core
from comfy_env.comfyui.isolated import Isolated
from comfy_env.comfyui.memory import size
from comfy_env.errors import ComfyEnvError

if TYPE_CHECKING:
    from comfy_env.pool import WorkerPool

log = logging.getLogger(__name__)
PATH = "/comfy-env/status"


class Shown(Protocol):
    """What the page shows."""

    isolated: dict[str, Isolated]

    @property
    def pool(self) -> WorkerPool: ...
    @property
    def receipts(self) -> dict[str, str]: ...


def install(host: Shown) -> None:
    """Add the page's routes to the running server; nothing without one."""
    routes, web = getattr(core.server(), "routes", None), getattr(core.loaded("server"), "web", None)
    if routes is None or web is None:
        return

    @routes.get(PATH)
    async def show(request: Any) -> Any:
        facts = await asyncio.to_thread(status, host)
        if "application/json" in request.headers.get("Accept", "") or request.rel_url.query.get("json") is not None:
            return web.json_response(facts)
        return web.Response(text=page(facts), content_type="text/html")

    @routes.post("/comfy-env/release")
    async def release(request: Any) -> Any:
        return web.json_response(await _act(request, host, _release))

    @routes.post("/comfy-env/restart")
    async def restart(request: Any) -> Any:
        return web.json_response(await _act(request, host, _restart))


async def _act(request: Any, host: Shown, act: Callable[[WorkerPool, str], str]) -> dict[str, Any]:
    env = str((await core.json_of(request)).get("env", ""))
    if env not in host.isolated:
        return {"env": env, "error": f"there is no such environment; those there are: {', '.join(host.isolated)}"}
    try:
        return {"env": env, "done": await asyncio.to_thread(act, host.pool, env)}
    except ComfyEnvError as error:
        return {"env": env, "error": str(error)}


def _release(pool: WorkerPool, env: str) -> str:
    released = pool.release(env)
    return "it has no worker" if released is None else f"freed {size(released.freed)}, {size(released.held)} still held"


def _restart(pool: WorkerPool, env: str) -> str:
    seat = next((seat for seat in pool.seats() if seat.key == env), None)
    if seat is not None and seat.unpark():
        return "its pause is over; the next call starts a worker"
    return "its worker was ended; the next call starts a new one" if pool.kill(env) else "it has no worker; the next call starts one"


def status(host: Shown) -> dict[str, Any]:
    """Return everything the page shows, in plain values."""
    return {"core": core.version(), "envs": [_env(host, env) for env in host.isolated.values()]}


def _env(host: Shown, env: Isolated) -> dict[str, Any]:
    record = host.pool.record(env.plan)
    try:
        state = host.pool.inspect(env.plan, probe=False)
        told = {"state": state.status.value, "reason": state.reason, "fix": state.fix}
    except ComfyEnvError as error:
        told = {"state": "broken", "reason": str(error).splitlines()[0], "fix": error.hint}
    worker = None if record is None else {
        "generation": record.generation, "state": record.state, "pid": record.pid, "python": record.python, "held": record.held,
        "calls": record.calls, "idle": round(record.idle, 1)}
    return {
        "key": env.plan.key, "backend": env.plan.backend, "pack": env.home.folder, "nodes": sorted(env.nodes), **told,
        "described": env.snapshot.origin, "not_registered": [list(entry) for entry in env.snapshot.registered], "worker": worker,
        "story": list(host.pool.story(env.plan)), "last_free": host.receipts.get(env.plan.key, ""),
    }


# ---------------------------------------------------------------- the page

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: #1e1e22; color: #ddd }
table { border-collapse: collapse; width: 100% }
td, th { padding: .4rem .6rem; text-align: left; border-bottom: 1px solid #444; vertical-align: top }
button { font: inherit; padding: .2rem .7rem; margin-right: .4rem }
code, pre { color: #9cdcfe } pre { white-space: pre-wrap; margin: .3rem 0 } .bad { color: #f48771 }
"""
_SCRIPT = """
async function act(what, env) {
  const headers = {"Content-Type": "application/json"};
  const reply = await fetch(what, {method: "POST", body: JSON.stringify({env}), headers});
  const answer = await reply.json();
  alert(answer.error || answer.done);
  location.reload();
}
"""


def page(facts: dict[str, Any]) -> str:
    """Return the page as HTML."""
    rows = "\n".join(_row(env) for env in facts["envs"])
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Isolated packs</title><style>{_STYLE}</style>
<script>{_SCRIPT}</script></head><body><h1>Isolated packs</h1><p>ComfyUI {html.escape(facts["core"])}</p>
<table><thead><tr><th>environment</th><th>state</th><th>worker</th><th>nodes</th><th></th></tr></thead><tbody>
{rows}
</tbody></table></body></html>"""


def _row(env: dict[str, Any]) -> str:
    key, worker = html.escape(env["key"]), env["worker"]
    state = html.escape(env["state"])
    if env["state"] != "ready":
        state = f'<span class="bad">{state}</span><br>{html.escape(env["reason"])}<br><code>{html.escape(env["fix"])}</code>'
    who = "none" if worker is None else html.escape(
        f"#{worker['generation']} {worker['state']}, pid {worker['pid']}, Python {worker['python']}, {worker['calls']} calls, "
        f"{size(worker['held'])} held, idle {worker['idle']} s")
    story = html.escape("\n".join(env["story"]) or "nothing has happened yet")
    lost = "".join(f"<br>not registered: {html.escape(' '.join(map(str, entry)))}" for entry in env["not_registered"])
    buttons = "".join(f"<button onclick=\"act('/comfy-env/{what}', '{key}')\">{what}</button>" for what in ("release", "restart"))
    return (f"<tr><td>{key}<br><small>{html.escape(env['backend'])}, {html.escape(env['pack'])}</small></td><td>{state}</td><td>{who}"
            f"<details><summary>story</summary><pre>{story}</pre></details></td><td>{html.escape(', '.join(env['nodes']))}{lost}</td>"
            f"<td>{buttons}</td></tr>")
