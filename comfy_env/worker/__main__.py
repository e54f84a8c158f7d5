"""The program of a worker: ``python -I -u FOLDER --boot FD`` or ``--boot-file PATH``.

Running a folder puts it on ``sys.path``, where its modules could be taken for others. So the folder is made importable
as ``comfy_env.worker`` instead, under an empty parent package, whatever the environment itself has installed.
"""

import importlib.util
import os
import sys
import types


def adopt_folder(folder):
    """Make the folder importable as comfy_env.worker and as nothing else."""
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    parent = types.ModuleType("comfy_env", "Holds nothing but the worker inside an isolated environment.")
    parent.__path__ = []
    spec = importlib.util.spec_from_file_location(
        "comfy_env.worker", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    package = importlib.util.module_from_spec(spec)
    sys.modules["comfy_env"] = parent
    sys.modules["comfy_env.worker"] = parent.worker = package
    spec.loader.exec_module(package)


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("--boot", "--boot-file"):
        print("comfy_env worker: started by a host, not by hand", file=sys.stderr)
        return 64
    adopt_folder(os.path.dirname(os.path.abspath(__file__)))
    boot = importlib.import_module("comfy_env.worker.boot")
    return boot.run(boot.read_document(*arguments))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)   # an interpreter with torch takes 0.4 s to end in order, and nothing is left to do
