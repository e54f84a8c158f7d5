"""Secrets do not survive into text that is logged or stored."""

from __future__ import annotations

import pytest

from comfy_env.packs.redact import clean, clean_hard, has_secret, secrets_of

SECRETS = [
    "https://user:s3cret@host/simple",
    "looking in https://s3cret@host, https://b:s3cret@c/x",
    "git+https://o:s3cret@h/r.git@v1",
    "https://h/w.whl?X-Signature=s3cret&a=1",
    "https://h/w.whl?access_token=s3cret#frag",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_in_a_url_is_hidden_and_noticed(text):
    assert "s3cret" not in clean(text)
    assert has_secret(text)


@pytest.mark.parametrize("text", ["https://host/a@b", "numpy==1.26", "mail me@here.org", "https://h/x?page=1", "git+https://h/r.git@v1"])
def test_plain_text_stays_as_it_is(text):
    assert clean(text) == text and not has_secret(text)


def test_a_badly_written_password_is_hidden_too():
    assert "s3/cr@et" not in clean_hard("https://u:s3/cr@et@host/x") and "s3" not in clean_hard("https://u:s3/cr@et@host/x")


def test_given_secrets_are_hidden_wherever_they_stand():
    assert clean("401 for hunter22 at h", secrets_of(["https://u:hunter22@h/"])) == "401 for *** at h"
