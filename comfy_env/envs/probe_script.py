"""Runs INSIDE an environment, by path, under `python -I`: says what the interpreter is and whether the packages import.

Standard library only, Python 3.9. Reads {"names": [packages to import], "list": bool} from standard input and writes
one JSON object to standard output; whatever an imported package prints goes to standard error.
"""

import json
import os
import platform
import sys


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked = json.load(sys.stdin)
    names = asked["names"]
    packages = installed() if asked["list"] else {}
    answer = dict(facts(), packages=packages, problems={name: problem(name) for name in names if name in packages})
    json.dump(answer, out)
    out.flush()
    os._exit(0)   # threads of an imported package must not keep the answer waiting


def facts():
    version = platform.python_version()
    return {
        "executable": sys.executable, "prefix": sys.prefix, "base_prefix": sys.base_prefix, "path": sys.path,
        "base": getattr(sys, "_base_executable", sys.executable) or sys.executable,
        "markers": {
            "implementation_name": sys.implementation.name, "implementation_version": version, "os_name": os.name,
            "platform_machine": platform.machine(), "platform_release": platform.release(),
            "platform_system": platform.system(), "platform_version": platform.version(),
            "python_full_version": version, "platform_python_implementation": platform.python_implementation(),
            "python_version": ".".join(platform.python_version_tuple()[:2]), "sys_platform": sys.platform, "extra": "",
        },
    }


def normal(name):
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def installed():
    from importlib import metadata

    found: dict = {}
    for item in metadata.distributions():
        name = item.metadata["Name"]
        if name:
            found.setdefault(normal(name), item.version or "")
    return found


def problem(name):
    """Import the package's module; '' when that works or the package has no module of an obvious name."""
    module = module_of(name)
    if not module:
        return ""
    sys.stderr.write(f"importing {module}\n")
    sys.stderr.flush()
    try:
        __import__(module)
    except ImportError as error:
        return f"import {module}: {type(error).__name__}: {error}"
    except BaseException as error:   # a package may refuse this place (no display, no device) without being broken
        sys.stderr.write(f"import {module} raised {type(error).__name__}: {error}\n")
    return ""


def module_of(name):
    from importlib import metadata

    tops = sorted({top for file in metadata.files(name) or () for top in [top_module(file)] if top})
    same = [top for top in tops if normal(top) == name]
    return (same or (tops if len(tops) == 1 else []) or [""])[0]


def top_module(file):
    parts = file.parts
    if len(parts) == 1:
        stem, dot, rest = parts[0].partition(".")
        return stem if rest == "py" or rest.endswith(("so", "pyd")) else ""
    inside = len(parts) == 2 and parts[1] == "__init__.py"
    return parts[0] if inside and parts[0].isidentifier() else ""


if __name__ == "__main__":
    main()
