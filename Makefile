# Everything here works from a fresh clone with plain python3 (3.10 or newer) and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PLUGIN_FOLDERS = $(dir $(wildcard plugins/*/setup.cfg))
TESTS ?= tests $(if $(PLUGINS),$(wildcard plugins/*/tests))

# What `make check` leaves to `make test`: folders whose tests build environments or start workers by the dozen.
THOROUGH := backends comfyui contract envs examples faults orchestrator real testing
# Of the orchestrator, what starts no service.
PURE := gate listener proto sessions state store
FAST = $(filter-out $(THOROUGH:%=tests/%/),$(sort $(dir $(wildcard tests/*/__init__.py)))) tests/test_public_api.py \
	$(PURE:%=tests/orchestrator/test_%.py)

.DELETE_ON_ERROR:
.PHONY: demo test check bench soak reliability docs clean

demo: $(VENV)/made
	$(BIN)/python examples/demo.py

# TORCH=1 installs torch for the tests that need it; PLUGINS=1 installs plugins/* and runs their tests in the same run.
test: $(VENV)/made $(if $(TORCH),$(VENV)/made-torch) $(if $(PLUGINS),plugins-installed)
	$(BIN)/python -m pytest $(TESTS) $(ARGS)

check: $(VENV)/made $(VENV)/made-check
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not slow and not real" $(FAST) $(ARGS)

# ARGS="--only comfy_env --rows noop": a quick look; without, everyone and everything, and the page of it.
bench: $(VENV)/made $(VENV)/made-bench
	$(BIN)/python -m benchmarks $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.page)

# MINUTES=10 SEED=7: longer, other faults.
soak: $(VENV)/made
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),1) --seed $(or $(SEED),0)

# Runs the whole reliability table, long ones too (half an hour), and writes docs/reference/reliability.md from what it found.
reliability: $(VENV)/made $(VENV)/made-torch
	rm -f .pytest_cache/v/comfy_env/reliability
	$(BIN)/python -m pytest -q tests -m "row and not long"
	$(BIN)/python -m pytest -q tests -m "row and long"
	$(BIN)/python docs/reliability.py

docs: $(VENV)/made
	$(BIN)/python docs/generate.py
	$(BIN)/python -m comfy_env.testing.lifecycle_docs

# A changed setup.cfg makes the venv anew, so it never holds what is no longer asked for.
$(VENV)/made: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("comfy-env needs Python 3.10 or newer, $(PYTHON) is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[cli,uv,orchestrator,test]'
	@touch $@

$(VENV)/made-torch: $(VENV)/made
	$(PIP) -e '.[test-torch]'
	@touch $@

$(VENV)/made-bench: $(VENV)/made
	$(PIP) -e '.[bench]'
	@touch $@

$(VENV)/made-check: $(VENV)/made
	$(PIP) -e '.[check]'
	@touch $@

.PHONY: plugins-installed
plugins-installed: $(VENV)/made
	$(if $(PLUGIN_FOLDERS),$(PIP) $(patsubst %/,./%,$(PLUGIN_FOLDERS)))

clean:
	rm -rf $(VENV) build dist demo-out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
