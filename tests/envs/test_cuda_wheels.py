"""CUDA wheels are found by the host's torch and CUDA, the environment's Python and this platform."""

from __future__ import annotations

import functools
import http.server
import sysconfig
import threading

import pytest
from packaging.requirements import Requirement

from comfy_env.envs import cuda_wheels, host_torch
from comfy_env.errors import BuildFailed, Unsatisfiable
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")


@pytest.fixture
def host(monkeypatch):
    """`host("2.8.0+cu128")` says which torch the host has."""
    return lambda version: monkeypatch.setattr(host_torch, "host_version", lambda: version)


@pytest.fixture
def index(tmp_path):
    """`index("0.3+cu128torch28", …)` makes a folder of wheels of `my_kernel`."""

    def make(*versions: str, python: str = "cp311-cp311", platform: str = PLATFORM) -> str:
        for version in versions:
            (tmp_path / f"my_kernel-{version}-{python}-{platform}.whl").touch()
        return tmp_path.as_uri()

    return make


def settle(index, *lines, python="3.11.7"):
    plan = EnvPlan(key="card", dependencies=lines or ("my-kernel @ cuda-wheels:",))
    return cuda_wheels.settle(plan, Settings(cuda_wheels_index=index), python)


@pytest.mark.parametrize("version", ["0.3+cu128torch28", "0.3+cu128torch2.8", "0.3+pt28cu128", "0.3+cu12.8torch2.8.0", "0.3+cu128torch280"])
def test_every_way_of_writing_the_build_is_understood(host, index, version):
    host("2.8.0+cu128")
    (line,) = settle(index(version)).lines
    wanted = Requirement(line)
    assert wanted.name == "my-kernel" and wanted.url.endswith(f"my_kernel-{version.replace('+', '%2B')}-cp311-cp311-{PLATFORM}.whl")


@pytest.mark.parametrize("version", ["0.3+cu126torch28", "0.3+cu128torch27", "0.3", "0.3+cu128", "0.3+torch28"])
def test_a_wheel_for_another_build_is_not_taken(host, index, version):
    host("2.8.0+cu128")
    with pytest.raises(Unsatisfiable, match="has no wheel of my-kernel for torch 2.8.0, CUDA 12.8, Python 3.11") as caught:
        settle(index(version))
    assert caught.value.output and version in caught.value.output[0] and caught.value.env == "card"


def test_a_wheel_for_another_python_or_platform_is_not_taken(host, index):
    host("2.8.0+cu128")
    place = index("0.3+cu128torch28", python="cp312-cp312")
    index("0.4+cu128torch28", platform="win_amd64" if PLATFORM != "win_amd64" else "linux_x86_64")
    with pytest.raises(Unsatisfiable):
        settle(place)
    assert "cp312" in settle(place, python="3.12.1").lines[0]


def test_a_wheel_of_the_stable_interface_serves_later_pythons(host, index):
    host("2.8.0+cu128")
    assert "abi3" in settle(index("0.3+cu128torch28", python="cp39-abi3")).lines[0]


def test_the_newest_version_within_the_bounds_is_taken_and_other_requirements_stay(host, index):
    host("2.8.0+cu128")
    place = index("0.3+cu128torch28", "0.10+cu128torch28", "1.0+cu128torch28")
    lines = settle(place, "einops>=1", "my_kernel @ cuda-wheels:<1").lines
    assert lines[0] == "einops>=1" and "my_kernel-0.10%2B" in lines[1]


def test_the_torch_family_means_the_hosts_versions(host, monkeypatch):
    host("2.8.0+cu128")
    monkeypatch.setattr(cuda_wheels.metadata, "version", {"torchvision": "0.23.0+cu128"}.__getitem__)
    settled = settle("", "torch @ cuda-wheels:", "torchvision @ cuda-wheels:")
    assert settled.lines == ("torch==2.8.0+cu128", "torchvision==0.23.0+cu128")
    assert settled.indexes == ("https://download.pytorch.org/whl/cu128",)


def test_without_an_index_the_variable_is_named(host):
    host("2.8.0+cu128")
    with pytest.raises(BuildFailed, match="COMFY_ENV_CUDA_WHEELS_INDEX is not set") as caught:
        settle("")
    assert caught.value.env == "card" and "COMFY_ENV_CUDA_WHEELS_INDEX" in caught.value.hint


@pytest.mark.parametrize(("torch", "said"), [("", "the host has none"), ("2.8.0+cpu", "no build for CUDA"), ("2.8.0", "no build for CUDA")])
def test_a_host_without_a_cuda_torch_is_told_so(host, index, torch, said):
    host(torch)
    with pytest.raises(BuildFailed, match=said):
        settle(index("0.3+cu128torch28"))


def test_the_variable_is_named_before_a_host_without_a_card_is_blamed(host):
    host("2.8.0+cpu")
    with pytest.raises(BuildFailed, match="COMFY_ENV_CUDA_WHEELS_INDEX is not set"):
        settle("")


def test_the_torch_family_alone_follows_a_host_without_a_card_and_needs_no_index(host):
    host("2.8.0+cpu")
    settled = settle("", "torch @ cuda-wheels:")
    assert settled.lines == ("torch==2.8.0+cpu",) and settled.indexes == ("https://download.pytorch.org/whl/cpu",)


def test_a_torch_the_host_has_not_is_told_by_name(host):
    host("")
    with pytest.raises(BuildFailed, match="torch means the host's version, and the host has none"):
        settle("", "torch @ cuda-wheels:")


def test_a_plan_without_such_wheels_asks_nobody(monkeypatch):
    monkeypatch.setattr(host_torch, "host_version", None)
    assert settle("", "einops").lines == ("einops",)
    assert cuda_wheels.asked_torch(EnvPlan(key="k", dependencies=("einops", "not a [ requirement"))) == ""


@pytest.fixture
def server(tmp_path):
    """A web server of a folder; returns the folder, the server's URL and what it was asked."""
    asked = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append((self.path, self.headers.get("Authorization")))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.02,))
        thread.start()
        yield tmp_path, web.server_address[1], asked
        web.shutdown()
        thread.join()


def test_an_index_on_the_net_is_asked_for_the_packages_page_and_keeps_its_secret(host, server):
    folder, port, asked = server
    host("2.8.0+cu128")
    page = folder / "my-kernel" / "index.html"
    page.parent.mkdir()
    name = f"my_kernel-0.3%2Bcu128torch28-cp311-cp311-{PLATFORM}.whl"
    page.write_text(f'<a href="../files/{name}#sha256=abc">x</a><a href="readme.html">y</a>')
    (line,) = settle(f"http://user:hunter22@127.0.0.1:{port}/").lines
    assert line == f"my-kernel @ http://127.0.0.1:{port}/files/{name}#sha256=abc"
    assert asked[0] == ("/my-kernel/", "Basic dXNlcjpodW50ZXIyMg==")


def test_an_index_that_does_not_answer_is_named_without_its_secret(host, server):
    folder, port, asked = server
    host("2.8.0+cu128")
    with pytest.raises(Unsatisfiable):
        settle(f"http://127.0.0.1:{port}/")   # one page of everything, with nothing on it
    with pytest.raises(BuildFailed, match="cannot be reached") as caught:
        settle("http://user:hunter22@127.0.0.1:9/")
    assert "hunter22" not in str(caught.value)
