"""`comfy-env status` shows who made each environment, its versions and where they came from; and what is not done by us."""

from __future__ import annotations

import io
import json

import pytest

from comfy_env.cli.app import main
from comfy_env.cli.exits import Exit
from comfy_env.cli.screen import Screen
from comfy_env.packs.pixi_platforms import here

from . import channel as channels

pytestmark = pytest.mark.real


@pytest.fixture
def cli(tool_settings, tmp_path, monkeypatch):
    monkeypatch.setenv("COMFY_ENV_ENVS", str(tool_settings.envs_folder))
    monkeypatch.setenv("COMFY_ENV_PIXI", "off")

    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        code = main([str(word) for word in words], Screen("--json" in words, out, err))
        return code, out.getvalue(), err.getvalue()

    return run


def test_status_shows_provider_versions_and_channel(cli, channel, tmp_path):
    (tmp_path / "pixi.toml").write_text(
        f'[workspace]\nchannels = ["{channel.as_uri()}"]\nplatforms = ["{here()}"]\n[dependencies]\ngreeting = "*"\npython = "*"\n')
    assert cli("status", tmp_path)[0] == Exit.NOT_READY
    code, out, err = cli("build", tmp_path)
    assert code == 0, err
    code, out, _ = cli("status", tmp_path, "--json")
    (env,) = json.loads(out)["envs"]
    assert (code, env["state"], env["channels"]) == (0, "ready", [channel.as_uri()])
    assert env["provider"].startswith("py-rattler ") and env["versions"] == {"python": channels.VERSION, "greeting": "1.1"}
    table = cli("status", tmp_path)[1]
    assert env["provider"] in table and channel.as_uri() in table and channels.VERSION in table
    assert cli("remove", tmp_path)[0] == 0


def test_status_lists_what_an_older_file_asks_for_and_nobody_does(cli, tmp_path):
    (tmp_path / "comfy-env.toml").write_text("[pypi-dependencies]\neinops = '*'\n[apt]\npackages = ['libgl1']\n")
    code, out, _ = cli("status", tmp_path, "--json")
    assert code == Exit.NOT_READY and "[apt] is not done by us" in json.loads(out)["notes"][0]
    assert "[apt] is not done by us" in cli("status", tmp_path)[1]
