"""Two node packs that cannot live in one Python process a photo together in one workflow.

Builds an environment per pack, runs workflow.json over both, kills one of the two workers in the middle, and lets its
replacement finish.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from comfy_env import ComfyEnvError, Settings, WorkerPool
from comfy_env.envs import paths
from comfy_env.runner import Report, Runner, Workflow
from comfy_env.runner.console import watching
from comfy_env.runner.report import table
from demo_parts import proof
from demo_parts.killer import Killer
from demo_parts.photo import photo
from demo_parts.worlds import EXAMPLES, Worlds, worlds

VICTIM, AT = "ModernDiffusion", 0.4


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 if everything it claims was shown."""
    options = _options(arguments)
    begun = time.monotonic()
    try:
        shown = _demo(options)
    except ComfyEnvError as error:
        print(f"\nthe demo stopped: {error}", file=sys.stderr)
        return 1
    say(f"\nall of it took {time.monotonic() - begun:.1f} s")
    return 0 if shown else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, help="a picture of your own (default: scikit-image's astronaut, downloaded once)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder the picture is written to")
    parser.add_argument("--no-kill", action="store_true", help="leave the workers alone")
    return parser.parse_args(arguments)


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def _demo(options: argparse.Namespace) -> bool:
    picture = photo(options.photo)
    chosen = worlds()
    _introduce(chosen, picture)
    workflow = Workflow.load(EXAMPLES / "workflow.json")
    ids = {node.class_type: node.id for node in workflow.nodes.values()}
    workflow = workflow.with_inputs({
        f"{ids['ClassicLoadPhoto']}.path": str(picture),
        f"{ids['ModernSave']}.folder": str(options.out.resolve()),
    })
    settings = Settings.read()
    with WorkerPool(settings) as pool:
        killer = Killer(pool, chosen.modern, VICTIM, 2.0 if options.no_kill else AT)
        runner = Runner(pool, chosen.plans, watcher=killer)
        _build(runner, killer)
        report = _run(runner, workflow, killer)
        proved = _prove(pool, chosen)
        _tell_where(pool, chosen, report, settings)
    return report.ok and proved and (options.no_kill or report.row(ids[VICTIM]).generation == 2)


def _introduce(chosen: Worlds, picture: Path) -> None:
    say("Two node packs, one workflow, one photo.")
    say(f"  photo: {picture}")
    say(f"  Pythons that answered here: {', '.join(f'3.{minor}' for minor in chosen.found) or 'only the one this runs on'}")
    for plan in chosen.plans:
        say(f"  {plan.key}: Python {plan.python}, {', '.join(plan.dependencies)}")
    say(f"  {chosen.note}")


def _build(runner: Runner, killer: Killer) -> None:
    say("\nBuilding both environments (a built one is used as it is):")
    begun = time.monotonic()
    with watching(sys.stdout) as killer.after:
        states = runner.build()
    for state in states:
        say(f"  {state.key}: {state.status.value} in {state.folder}")
    say(f"  {time.monotonic() - begun:.1f} s")


def _run(runner: Runner, workflow: Workflow, killer: Killer) -> Report:
    say("\nRunning the workflow:")
    with watching(sys.stdout) as killer.after:
        report = runner.run(workflow)
    if killer.killed is not None:
        say(f"\nWorker {killer.killed} was killed at {killer.at}. Its node failed by name; what does not depend on it went on:\n")
        say("\n".join(f"  {line}" for error in report.errors for line in str(error).splitlines()))
        say("\nRunning it again: what is there is kept, the next generation finishes the rest:")
        with watching(sys.stdout) as killer.after:
            report = runner.run(workflow)
    say()
    say("\n".join(table(tuple(sorted(report.rows, key=lambda row: int(row.node))))))
    for error in report.errors:
        say(f"\n{error}")
    return report


def _prove(pool: WorkerPool, chosen: Worlds) -> bool:
    evidence = proof.gather(pool, chosen.plans)
    say("\nAt this moment, side by side:")
    for each in evidence:
        for name, (version, file) in each.modules.items():
            say(f"  {each.key}, pid {each.pid}, Python {each.python}: {name} {version} from {file}")
    apart, own = proof.conflict(evidence), all(each.own for each in evidence)
    say(f"  {' and '.join(apart) or 'nothing'} in two major versions at once, {'each' if own else 'NOT each'} from its own environment")
    return bool(apart) and own


def _tell_where(pool: WorkerPool, chosen: Worlds, report: Report, settings: Settings) -> None:
    say(f"\nThe life of {chosen.modern.key}:")
    say("\n".join(f"  {line}" for line in pool.story(chosen.modern)))
    say("\nWhere everything is:")
    for outputs in (report.outputs.get(row.node, []) for row in report.rows if row.class_type == "ModernSave"):
        say(f"  picture       {outputs[0][-1] if outputs else 'was not written'}")
    say(f"  environments  {paths.envs_root(settings)}")
    for plan in chosen.plans:
        say(f"  build log     {paths.log_file(plan, settings)}")
    say(f"  packs         {EXAMPLES}")
    command = Path(sys.executable).with_name("comfy-env")
    say(f"\nLook around:\n  {command} status {EXAMPLES}\n  {command} story {chosen.modern.key}")
