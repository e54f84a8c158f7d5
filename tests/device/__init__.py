"""Tensors on a device need torch: without it these tests are skipped by that name, before any of their modules imports it."""

import pytest

pytest.importorskip("torch")
