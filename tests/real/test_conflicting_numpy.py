"""Two environments that cannot live in one process, at once; built for real from the package index."""

import subprocess
import sys

import pytest

from comfy_env import EnvPlan

CODE = __file__.rsplit("real", 1)[0] + "code"


def conflicting(pythons):
    """Return two plans whose needs contradict each other on the interpreters found here."""
    old = [minor for minor in pythons if minor <= (3, 12)]
    new = [minor for minor in pythons if minor >= (3, 10)]
    if old and new:
        pair = ("numpy", old[-1], "numpy==1.26.4"), ("numpy", new[-1], "numpy>=2.1,<3")
    else:
        minor = next(iter(pythons))
        pair = ("PIL", minor, "pillow==11.3.0"), ("PIL", minor, "pillow>=12,<13")
    plans = [
        EnvPlan(key=f"needs-{i}", root=CODE, python=f"{minor[0]}.{minor[1]}", dependencies=(need,))
        for i, (_, minor, need) in enumerate(pair)
    ]
    return pair[0][0], plans


def freeze():
    return subprocess.run([sys.executable, "-m", "pip", "freeze", "--all"], capture_output=True, check=True, timeout=120).stdout


@pytest.mark.real
def test_two_versions_of_one_library_serve_calls_at_once_and_the_host_is_untouched(pool, pythons):
    before = freeze()
    module, plans = conflicting(pythons)
    for plan in plans:
        state = pool.build(plan)
        assert state.interpreter and state.interpreter.exists()
    found = [pool.call(plan, "jobs:version_of", module) for plan in plans]
    assert found[0][0].split(".")[0] != found[1][0].split(".")[0]
    for plan, (_, file) in zip(plans, found, strict=True):
        assert file.startswith(str(pool.inspect(plan, probe=False).folder))
    assert len({record.pid for record in pool.records()}) == 2
    assert freeze() == before
