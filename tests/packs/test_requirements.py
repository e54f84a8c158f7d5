"""Only plain requirements reach an installer; a refusal says the rule and never the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from comfy_env.packs import requirements
from comfy_env.packs.wrong import Wrong

GOOD = {
    "six": "six",
    " numpy <2 ,>= 1.26": "numpy<2,>=1.26",
    "pillow[a]>=10  # for pictures": "pillow[a]>=10",
    "x ; python_version < '3.11'": 'x; python_version < "3.11"',
    "torch==2.13.0+cpu": "torch==2.13.0+cpu",
    "w @ https://example.org/w-1-py3-none-any.whl": "w@ https://example.org/w-1-py3-none-any.whl",
}


@pytest.mark.parametrize("line", GOOD)
def test_a_plain_requirement_passes_in_normal_form(line):
    assert Requirement(requirements.check(line)) == Requirement(GOOD[line])


REFUSED = {
    "-r ../x": "-r",
    "-rreq.txt": "-rreq.txt",
    "-e .": "-e",
    "--find-links=/tmp": "--find-links",
    "--index-url https://u:p4ssword@h/": "--index-url",
    "-i https://h": "-i",
    "pkg @ file:///etc": "file URLs",
    "./wheel.whl": "path",
    "../x": "path",
    "C:\\x": "path",
    "~/x": "path",
    "/abs": "path",
    "a/b": "path",
    "https://h/x.whl": "bare URL",
    "git+https://h/x.git": "bare URL",
    "": "empty",
    "# only": "empty",
    "numpy=1": "not a requirement",
    "six\n--pre": "line break",
    "a b": "not a requirement",
    "p @ http://h/p.whl": "http URLs",
    "p @ https://h/p.tar.gz": "built from source",
    "p @ git+https://h/p": "built from source",
    "p @ https://u:p4ssword@h/p.whl": "credentials",
    "p @ https://t0kentoken@h/p.whl": "credentials",
    "p @ https://h/p.whl?token=s3cret": "credentials",
    "p @ https://${USER}/p.whl": "variable",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_dangerous_line_is_refused_by_its_rule(line):
    with pytest.raises(Wrong) as caught:
        requirements.check(line)
    assert REFUSED[line] in caught.value.what
    assert caught.value.hint
    for secret in ("p4ssword", "t0kentoken", "s3cret"):
        assert secret not in caught.value.what + caught.value.hint


def test_a_repository_passes_where_source_builds_are_allowed():
    assert Requirement(requirements.check("p @ git+https://h.org/p@v1", source_builds=True)).url == "git+https://h.org/p@v1"


@given(st.text(max_size=40))
def test_whatever_passes_is_one_requirement_and_no_option_or_path(line):
    try:
        passed = requirements.check(line)
    except Wrong:
        return
    assert Requirement(passed).url is None or Requirement(passed).url.startswith("https://")
    assert not passed.startswith(("-", ".", "/", "~")) and "\n" not in passed


@pytest.mark.parametrize(
    "url",
    ["https://u:p4ssword@h/", "https://p4sswordtoken@h/", "http://h/", "ftp://h", "/folder", "file:///x", "h", "https://h/?token=p4ssword"],
)
def test_an_index_that_is_not_plain_https_is_refused_without_its_secret(url):
    with pytest.raises(Wrong) as caught:
        requirements.check_index(url)
    assert "p4ssword" not in caught.value.what + caught.value.hint


def test_an_index_on_this_machine_may_be_http():
    assert requirements.check_index(" http://localhost:8080/simple ") == "http://localhost:8080/simple"
