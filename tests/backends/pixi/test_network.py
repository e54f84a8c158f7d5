"""Proxies, certificates and a network that does not answer."""

from __future__ import annotations

import functools
import http.server
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from comfy_env.backends.pixi import PixiBackend
from comfy_env.errors import BuildCancelled, BuildFailed
from comfy_env.values import Conda, EnvStatus

pytestmark = pytest.mark.real


@contextmanager
def serving(folder, tls=None):
    """Serve a folder, also to those who take this for a proxy; yields the port and what was asked for."""
    asked = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

        def translate_path(self, path):
            return super().translate_path(path.partition(".invalid")[2] or path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as web:
        if tls:
            web.socket = tls.wrap_socket(web.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=web.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield web.server_address[1], asked
        finally:
            web.shutdown()
            thread.join()


def from_channel(plan, key, url):
    return replace(plan(key), conda=Conda((url,), ("greeting 1.0.*",)))


@pytest.fixture
def fresh(tool_settings, tmp_path):
    """A backend with a cache of its own: what it installs was fetched for it."""
    return PixiBackend(replace(tool_settings, envs_folder=tmp_path / "envs"))


def test_a_proxy_is_asked_for_the_channel(fresh, plan, channel, monkeypatch):
    with serving(channel) as (port, asked):
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        state = fresh.comfy_env_build(from_channel(plan, "by-proxy", "http://channel.invalid"), print)
    assert state.status is EnvStatus.READY and all(path.startswith("http://channel.invalid/") for path in asked)
    assert any(path.endswith("greeting-1.0-0.conda") for path in asked)


OPENSSL = """
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ours &&
openssl req -newkey rsa:2048 -nodes -keyout key.pem -out asked.csr -subj /CN=localhost &&
printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > more &&
openssl x509 -req -in asked.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile more
"""


@pytest.fixture
def authority(tmp_path):
    """The certificate of an authority nobody knows, and what a server of its has."""
    if not shutil.which("openssl") or subprocess.run(["sh", "-c", OPENSSL], cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("no openssl makes certificates here")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return tmp_path / "ca.pem", tls


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"])
def test_a_certificate_given_to_any_tool_is_trusted(fresh, plan, channel, authority, monkeypatch, name):
    file, tls = authority
    for other in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, str(file))
    with serving(channel, tls) as (port, _):
        state = fresh.comfy_env_build(from_channel(plan, f"trusted-{name.lower()}", f"https://localhost:{port}"), print)
    assert state.status is EnvStatus.READY


def test_a_certificate_nobody_knows_is_told_with_the_variable_to_set(fresh, plan, channel, authority):
    with serving(channel, authority[1]) as (port, _), pytest.raises(BuildFailed, match="invalid peer certificate") as caught:
        fresh.comfy_env_build(from_channel(plan, "unknown-ca", f"https://localhost:{port}"), print)
    assert "SSL_CERT_FILE" in caught.value.hint


def test_a_build_is_cancelled_while_a_channel_does_not_answer(fresh, plan):
    def stop(step):
        if "so far" in step.text:
            raise BuildCancelled("enough", env=step.key)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(BuildCancelled):
            fresh.comfy_env_build(from_channel(plan, "silent", f"http://127.0.0.1:{silent.getsockname()[1]}"), stop)
    assert fresh.comfy_env_inspect(plan("silent"), False).status is EnvStatus.MISSING
