"""fake_pixi: a stand-in for the pixi command line in these tests; py-rattler does the work.

It answers the calls this project makes of pixi, in pixi's words as far as they matter, and says what it is each time.
What is shown with it is that the calls fit together, not that a real pixi answers so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import rattler

from comfy_env.backends.pixi import activation, prefixes, providers, rattling
from comfy_env.backends.pixi.making import Making
from comfy_env.envs.journal import Journal
from comfy_env.envs.sources import Sources
from comfy_env.errors import ComfyEnvError
from comfy_env.packs import pixi_env, pixi_manifest
from comfy_env.packs.pixi_platforms import here
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

LABEL = "fake_pixi: a test's stand-in for pixi; py-rattler does the work"


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write("pixi 0.70.0\n")
        return 0
    sys.stderr.write(f"{LABEL}\n")
    asked = parser().parse_args(arguments)
    with Journal("fake", asked.manifest_path.parent / "fake_pixi.log", lambda step: sys.stderr.write(f"{step.text}\n")) as journal:
        try:
            return {"install": install, "shell-hook": shell_hook}[asked.command](asked, making(asked, journal))
        except ComfyEnvError as error:
            sys.stderr.write("\n".join(["  × " + error.message, *error.output, ""]))
            return 1


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser("pixi")
    whole.add_argument("command", choices=["install", "shell-hook"])
    whole.add_argument("--manifest-path", type=Path, required=True)
    whole.add_argument("--environment", default="default")
    for flag in ("--locked", "--frozen", "--json"):
        whole.add_argument(flag, action="store_true")
    return whole


def making(asked: argparse.Namespace, journal: Journal) -> Making:
    folder = asked.manifest_path.parent
    plan = EnvPlan(key="fake", backend="pixi", root=folder)
    settings = Settings(envs_folder=Path(os.environ["PIXI_CACHE_DIR"]))
    provider = providers.find(plan, Settings(pixi="off"))[0]
    manifest = pixi_manifest.find(folder)
    manifest.document.data.pop("pypi-options", None)   # this machine's own indexes, which the installer finds by itself
    return Making(plan, settings, folder, journal, provider, manifest, asked.environment, "fake", dict(os.environ), Sources())


def install(asked: argparse.Namespace, given: Making) -> int:
    env = pixi_env.read(given.manifest, given.environment, here())
    lock = given.target / pixi_manifest.LOCK
    if asked.locked and not fits(lock, env):
        sys.stderr.write("  × lock file not up-to-date with the workspace\n")
        return 1
    if asked.frozen and not lock.is_file():
        sys.stderr.write("  × there is no lock file\n")
        return 1
    rattling.install(given, env)
    sys.stderr.write(f"The {given.environment} environment has been installed.\n")
    return 0


def fits(lock: Path, env: pixi_env.PixiEnv) -> bool:
    """Whether the lock holds a package for each conda requirement."""
    if not lock.is_file():
        return False
    environment = rattler.LockFile.from_path(lock).environment(env.name)
    platform = next(iter(environment.platforms()))
    conda = [package for package in environment.packages(platform) if isinstance(package, rattler.CondaLockedBinaryPackage)]
    return all(any(package.satisfies(spec) for package in conda) for spec in env.conda)


def shell_hook(asked: argparse.Namespace, given: Making) -> int:
    env = pixi_env.read(given.manifest, given.environment, here())
    scripts = tuple(given.target / script for script in env.scripts)
    own = {"PIXI_PROJECT_ROOT": str(given.target), "PIXI_IN_SHELL": "1", "PIXI_PROMPT": "(fake) ", "PIXI_EXE": sys.argv[0]}
    found, said = activation.capture(prefixes.prefix_in(given.target, env.name), {**os.environ, **own}, scripts, dict(env.variables))
    sys.stderr.write(said + "\n")
    path = os.pathsep.join([*found.path, os.environ["PATH"]])
    sys.stdout.write(json.dumps({"environment_variables": {**own, **dict(found.set), "PATH": path}, "activation_scripts": []}))
    return 0
