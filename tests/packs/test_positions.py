"""Every table, key and array element of a TOML text has its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfy_env.packs.positions import scan

TEXT = '''# a comment with = and [
title = "a # no comment" # a real one
[tool."comfy-env"]
python = '3.10'
dependencies = [
  "six",   # one
  # only a comment
  """numpy
<2""", "attrs",
]
limits = { birth = 3,
}
a.b.c = 1

[[things]]
x = "\\"]"
[[things]]
x = 2
[tool.other]   # end
'''

WANTED = {
    ("title",): 2,
    ("tool", "comfy-env"): 3,
    ("tool", "comfy-env", "python"): 4,
    ("tool", "comfy-env", "dependencies"): 5,
    ("tool", "comfy-env", "dependencies", 0): 6,
    ("tool", "comfy-env", "dependencies", 1): 8,
    ("tool", "comfy-env", "dependencies", 2): 9,
    ("tool", "comfy-env", "limits"): 11,
    ("tool", "comfy-env", "limits", "birth"): 11,
    ("tool", "comfy-env", "a", "b", "c"): 13,
    ("things", 0): 15,
    ("things", 0, "x"): 16,
    ("things", 1, "x"): 18,
    ("tool", "other"): 19,
}


@pytest.mark.parametrize("path", WANTED)
def test_each_thing_is_found_on_its_line(path):
    assert scan(TEXT)[path] == WANTED[path]


def test_a_string_of_quotes_does_not_hide_what_follows():
    assert scan('a = """x""""\nb = \'\'\'it\'s\'\'\'\nc = ""\nd = 1\n')[("d",)] == 4


@given(st.lists(st.sampled_from(["", "# c", "[t{n}]", "k{n} = 1", 'k{n} = "#"', "k{n} = [\n1,\n2]", "k{n} = {{ a = [1] }}"]), max_size=12))
def test_a_key_after_anything_valid_keeps_its_line(parts):
    before = "".join(part.format(n=number) + "\n" for number, part in enumerate(parts))
    lines = scan(f"{before}[last]\nkey = 1\n")
    assert lines[("last",)] == before.count("\n") + 1
    assert lines[("last", "key")] == before.count("\n") + 2
