"""A ComfyUI node folder without nodes: says loudly when the `comfy-env` that is installed here is not the right one.

The public package index serves another project under the name `comfy-env`. A node pack that asks for it by name
replaces the right one; nothing then works, and nothing says why. This file only looks and tells. Standard library only.
"""

import ast
import importlib.metadata
import importlib.util
import logging
import sys

NAME = "comfy-env"
MODULE = "comfy_env"
KEYWORD = "comfy-env-contract"
CONTRACTS = (1,)

NODE_CLASS_MAPPINGS = {}
NODE_DISPLAY_NAME_MAPPINGS = {}

log = logging.getLogger("comfy_env.guard")


def wrong():
    """Return what is wrong with the installed comfy-env in one sentence, "" if it is the right one."""
    distribution = _distribution()
    contract = _contract()
    if distribution is None and contract is None:
        return f"comfy-env is not installed in the Python that runs ComfyUI ({sys.executable})."
    if distribution is not None and not _is_ours(distribution):
        return f"the installed comfy-env {distribution.version} in {_folder(distribution)} is another project of the same name."
    if contract is None:
        return f"comfy-env is installed, but the module comfy_env in {_origin()} is not its own: two projects were mixed."
    if contract not in CONTRACTS:
        told = " or ".join(map(str, CONTRACTS))
        return f"the installed comfy-env speaks contract {contract}; contract {told} is wanted."
    return ""


def asked_by():
    """Return the names of the installed packages that ask for `comfy-env`."""
    found = set()
    for distribution in importlib.metadata.distributions():
        for requirement in distribution.requires or ():
            if _requirement_name(requirement) == NAME:
                found.add(distribution.metadata["Name"])
    return sorted(found)


def tell(problem):
    """Write what is wrong and what to do where nobody can overlook it."""
    blame = ", ".join(asked_by()) or "none; it was installed by hand or by a node pack's script"
    lines = [
        problem,
        "Isolated node packs cannot run until that is mended.",
        f"Packages that ask for the name comfy-env: {blame}.",
        f"Next: {sys.executable} -m pip uninstall comfy-env",
        "then install the right one from its own folder or wheel, not from the public index by name.",
    ]
    width = max(map(len, lines)) + 4
    log.error("\n%s\n%s\n%s", "!" * width, "\n".join(f"! {line.ljust(width - 4)} !" for line in lines), "!" * width)


def _distribution():
    try:
        return importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_ours(distribution):
    words = distribution.metadata.get_all("Keywords") or []
    return KEYWORD in {word.strip() for line in words for word in line.replace(" ", ",").split(",")}


def _contract():
    """Return the contract of the module, read from its source: a stranger's module is not run to be looked at."""
    loaded = getattr(sys.modules.get(MODULE), "__contract__", None)
    origin = _origin()
    if loaded is not None or not origin.endswith(".py"):
        return loaded
    with open(origin, encoding="utf-8", errors="replace") as file:
        return _assigned(file.read(), "__contract__")


def _assigned(source, name):
    try:
        body = ast.parse(source).body
    except SyntaxError as problem:
        log.error("the module comfy_env cannot be read: %s", problem)
        return None
    for statement in body:
        targets = [getattr(target, "id", "") for target in getattr(statement, "targets", ())]
        if name in targets and isinstance(statement.value, ast.Constant):
            return statement.value.value
    return None


def _origin():
    try:
        spec = importlib.util.find_spec(MODULE)
    except ValueError:
        spec = None
    return (spec.origin if spec is not None else None) or ""


def _folder(distribution):
    return str(distribution.locate_file(""))


def _requirement_name(requirement):
    name = requirement
    for stop in " ;[(<>=!~":
        name = name.split(stop, 1)[0]
    return name.strip().replace("_", "-").replace(".", "-").lower()


_problem = wrong()
if _problem:
    tell(_problem)
