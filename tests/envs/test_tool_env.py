"""A launcher's variables cannot send an install elsewhere; what reaches the indexes is kept (field cases B19, B31, B34)."""

from __future__ import annotations

import sys

import pytest

from comfy_env.envs import sources, tool_env

DROPPED = {
    "UV_BUILD_CONSTRAINT": "rel.txt",
    "UV_CONSTRAINT": "rel.txt",
    "UV_PROJECT_ENVIRONMENT": "/x",
    "UV_PYTHON": "3.9",
    "UV_SYSTEM_PYTHON": "1",
    "PIP_TARGET": "/x",
    "PIP_REQUIRE_VIRTUALENV": "1",
    "PIP_PREFIX": "/x",
    "PIP_USER": "1",
    "PIP_CONSTRAINT": "rel.txt",
    "PIP_NO_BINARY": ":all:",
    "PIP_NO_DEPS": "1",
    "PYTHONPATH": "/x",
    "PYTHONHOME": "/x",
    "PYTHONUSERBASE": "/x",
    "VIRTUAL_ENV": "/a",
    "CONDA_PREFIX": "/c",
    "PIXI_PROJECT_ROOT": "/p",
    "__PYVENV_LAUNCHER__": "/x",
    "UV_CACHE_DIR": "rel",
    "PIXI_CONFIG_FILE": "rel.toml",
    "PIXI_FROZEN": "1",
    "RATTLER_AUTH_FILE": "rel.json",
}
KEPT = {
    "UV_INDEX": "https://h",
    "UV_DEFAULT_INDEX": "https://h",
    "PIP_INDEX_URL": "https://h",
    "PIP_EXTRA_INDEX_URL": "https://h",
    "PIP_CERT": "/ca.pem",
    "PIP_CONFIG_FILE": "/etc/pip.conf",
    "PIP_FIND_LINKS": "/w",
    "PIP_NO_INDEX": "1",
    "PIP_PROXY": "http://p",
    "PIP_TRUSTED_HOST": "h",
    "UV_OFFLINE": "1",
    "PIXI_OFFLINE": "1",
    "PIXI_CONFIG_FILE": "/c.toml",
    "RATTLER_AUTH_FILE": "/auth.json",
    "UV_CONSTRAINT": "/abs/c.txt",
    "UV_INDEX_MINE_PASSWORD": "x",
    "SSL_CERT_FILE": "/ca.pem",
    "REQUESTS_CA_BUNDLE": "/ca.pem",
    "HTTPS_PROXY": "http://p",
    "HTTP_PROXY": "http://p",
    "LANG": "C",
    "HOME": "/h",
    "PATH": "/bin",
    "HSA_OVERRIDE_GFX_VERSION": "11",
    "PIPELINE": "x",
    "UVICORN_PORT": "1",
}


@pytest.mark.parametrize("name", DROPPED)
def test_what_redirects_an_install_is_left_out_and_named(name):
    selected = tool_env.select({name: DROPPED[name], "LANG": "C"})
    assert name not in selected.variables and selected.dropped == (name,)


@pytest.mark.parametrize("name", KEPT)
def test_what_reaches_an_index_is_kept(name):
    selected = tool_env.select({name: KEPT[name]})
    assert selected.variables[name] == KEPT[name] and selected.dropped == ()


@pytest.mark.parametrize(("given", "wanted"), [("", "localhost,127.0.0.1"), ("a.org, localhost", "a.org,localhost,127.0.0.1")])
def test_this_machine_is_never_asked_through_a_proxy(given, wanted):
    variables = tool_env.select({"NO_PROXY": given}).variables
    assert variables["NO_PROXY"] == variables["no_proxy"] == wanted


def test_a_change_of_this_process_variables_is_seen(monkeypatch):
    monkeypatch.setenv("COMFY_TEST_VARIABLE", "a b")
    assert tool_env.inherited()["COMFY_TEST_VARIABLE"] == "a b"


@pytest.fixture
def pip_file(tmp_path):
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://u:hunter22@mirror/simple\nextra-index-url =\n    https://one/simple\n    https://two/simple\n"
        "cert = /ca.pem\ntimeout = 7\nproxy = http://p:1\ntrusted-host = mirror\ntarget = /elsewhere\n"
        "[install]\nuser = true\nno-index = false\n"
    )
    return {"PIP_CONFIG_FILE": str(file), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}


def test_pips_own_files_are_read_without_what_redirects(pip_file):
    found, remark = sources.pip_settings({**pip_file, "PIP_TIMEOUT": "9"})
    assert remark == ""
    assert found["index-url"] == "https://u:hunter22@mirror/simple" and found["extra-index-url"] == "https://one/simple https://two/simple"
    assert (found["timeout"], found["cert"]) == ("9", "/ca.pem") and not {"target", "user"} & set(found)


def test_uv_is_told_what_pip_was_set_up_with(pip_file):
    gathered, _ = sources.gather(("https://mine/simple",), pip_file)
    variables = gathered.for_uv(pip_file)
    assert variables["UV_DEFAULT_INDEX"] == "https://u:hunter22@mirror/simple"
    assert variables["UV_INDEX"] == "https://mine/simple https://one/simple https://two/simple"
    assert (variables["SSL_CERT_FILE"], variables["HTTPS_PROXY"], variables["UV_HTTP_TIMEOUT"]) == ("/ca.pem", "http://p:1", "7")
    assert "PIP_CONFIG_FILE" not in variables and gathered.secrets == ("hunter22",)


def test_what_the_user_set_for_uv_goes_before_pips_settings(pip_file):
    gathered, _ = sources.gather((), pip_file)
    variables = gathered.for_uv({**pip_file, "UV_INDEX_URL": "https://own", "SSL_CERT_FILE": "/own.pem", "https_proxy": "http://own"})
    assert "UV_DEFAULT_INDEX" not in variables and variables["SSL_CERT_FILE"] == "/own.pem" and "HTTPS_PROXY" not in variables


def test_pip_gets_its_settings_by_name_and_reads_no_file(pip_file):
    gathered, _ = sources.gather(("https://mine/simple",), pip_file)
    variables = gathered.for_pip(pip_file)
    assert variables["PIP_CONFIG_FILE"] == "/dev/null" and variables["PIP_INDEX_URL"].endswith("@mirror/simple")
    assert variables["PIP_EXTRA_INDEX_URL"].split() == ["https://one/simple", "https://two/simple", "https://mine/simple"]


@pytest.mark.parametrize("index", ["file:///w/a%20b", "/w/a b"])
def test_a_folder_among_the_indexes_is_a_folder_of_wheels(index, pip_file):
    gathered, _ = sources.gather((index,), pip_file)
    assert gathered.folder_options() == ["--find-links", "/w/a b"] and gathered.indexes == ()


def test_without_any_pip_the_build_goes_on_with_a_remark(monkeypatch):
    monkeypatch.setattr(sources, "_pips", lambda: [["/nowhere/pip"]])
    found, remark = sources.pip_settings({"PATH": sys.prefix})
    assert found == {} and "no pip answers" in remark
