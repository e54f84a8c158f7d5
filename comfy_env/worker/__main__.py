"""The program of a worker: ``python -I -u FOLDER --boot FD`` or ``--boot-file PATH``; of a zygote: ``--zygote FD``.

Running a folder puts it on ``sys.path``, where its modules could be taken for others. So the folder is made importable
as ``comfy_env.worker`` instead, under an empty parent package, whatever the environment itself has installed.
"""

import os
import sys

if sys.version_info < (3, 9):  # noqa: UP036 - whoever named the interpreter is told, and by a program that Python 2 can read
    sys.stderr.write("comfy_env worker: workers need Python 3.9 or newer, %s is Python %s\n" % (sys.executable, sys.version.split()[0]))  # noqa: UP031
    sys.stderr.flush()
    os._exit(78)

import importlib.util  # noqa: E402
import types  # noqa: E402


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


def take_variables(variables):
    """Make these the variables of this process and of what it starts."""
    os.environ.clear()
    os.environ.update(variables)


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("--boot", "--boot-file", "--zygote"):
        sys.stderr.write("comfy_env worker: started by a host, not by hand\n")
        return 64
    adopt_folder(os.path.dirname(os.path.abspath(__file__)))
    if arguments[0] == "--zygote":
        zygote = importlib.import_module("comfy_env.worker.zygote")
        return zygote.run(int(arguments[1]), dict(os.environ), take_variables)
    boot = importlib.import_module("comfy_env.worker.boot")
    return boot.run(boot.read_document(*arguments))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)   # an interpreter with torch takes 0.4 s to end in order, and nothing is left to do
