# `make demo` and `make test` do all the set-up; the environment is .venv, made once and brought up to date when
# pyproject.toml changes. PYTHON chooses the interpreter it is made from: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: notes about folders of wheels are not about pellucid. What is imported is compiled then.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
WORKERS := --numprocesses=2 --dist=loadfile

# PyPI's torch brings several GB of CUDA packages on Linux; the tests need the CPU build alone. The first form takes a
# build that pip already knows under its own name, the second asks PyTorch's index for it.
TORCH := 2.13.0
TORCH_INDEX := https://download.pytorch.org/whl/cpu
install-torch = $(1) install --no-compile 'torch==$(TORCH)+cpu' 2>/dev/null \
	  || $(1) install --no-compile 'torch==$(TORCH)' --extra-index-url $(TORCH_INDEX)

# The versions that CI takes, for Python 3.11 on Linux; where they cannot be had, the newest that pyproject.toml allows.
UNPINNED ?=
pip-install = $(if $(UNPINNED),$(PIP) install --no-compile $(1),$(PIP) install --no-compile --constraint constraints.txt $(1) \
	  || $(PIP) install --no-compile $(1))

NATIVE := hatch_build.py $(wildcard src/pellucid/native/*.[ch])
LOWEST := $(VENV)-lowest
PACKAGE := $(VENV)-package
PYTHONS := $(foreach minor,10 11 12 13 14,python3.$(minor)) $(wildcard $(HOME)/.pyenv/versions/3.1?.*/bin/python)
QUICK := tests/core/test_process.py tests/core/test_explanation.py tests/static/test_static.py \
	tests/index/test_index.py

.PHONY: help demo test quick lint format types full properties slow pythons package lowest fuzz fuzz-native mutants docs help-docs constraints clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/core.stamp  ## install the core and search, then explain a score and search this manual
	@PATH="$(CURDIR)/$(BIN):$$PATH" HF_HUB_OFFLINE=1 sh examples/demo.sh

test: $(VENV)/test.stamp  ## install what the tests need; ruff and mypy, then pytest
	@$(MAKE) --no-print-directory --jobs=2 lint types
	@$(MAKE) --no-print-directory quick

quick: $(VENV)/test.stamp  ## the tests that take less than a second
	$(BIN)/python -m pytest $(WORKERS)

lint: $(VENV)/test.stamp  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/test.stamp  ## bring the code into ruff's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/test.stamp  ## mypy --strict on the package
	$(BIN)/mypy

full: $(VENV)/full.stamp  ## the tests that take a second or more, with clusters, clients and a browser; properties with ten times the examples
	$(BIN)/python -m pytest $(WORKERS) -m '(full or hypothesis) and not slow' --hypothesis-profile=thorough

properties: $(VENV)/full.stamp  ## all properties with examples drawn anew; PROPERTIES="--hypothesis-seed=1" for others
	$(BIN)/python -m pytest $(WORKERS) -m hypothesis --hypothesis-profile=random $(PROPERTIES)

slow: $(VENV)/test.stamp  ## the checks that take minutes
	$(BIN)/python -m pytest -m slow

pythons:  ## the core and an index with the oldest and the newest other Python of this machine that pyproject.toml allows
	@own=$$($(PYTHON) -c 'import sys; print("3.%d" % sys.version_info[1])'); found=; \
	for python in $(PYTHONS); do \
	  version=$$($$python -c 'import ensurepip, sys, venv; print("3.%d" % sys.version_info[1])' 2>/dev/null) || continue; \
	  [ "$$version" = "$$own" ] || found="$$found $$python"; \
	done; \
	set -- $$found; oldest=$$1; for newest in "$$@"; do :; done; \
	[ "$$oldest" = "$$newest" ] && newest=; \
	for python in $$oldest $$newest; do \
	  $$python --version; env=$(VENV)-other; \
	  $$python -m venv --clear $$env && $$env/bin/python -m pip --disable-pip-version-check install --quiet \
	    --editable '.[frames,search,sparse]' pytest hypothesis || { echo "its packages cannot be installed here"; continue; }; \
	  $$env/bin/python -m pytest $(QUICK) || exit 1; \
	done

package:  ## build the sdist and from it the wheel, check both, install the sdist with and without a compiler, test the wheel
	$(PYTHON) -m venv --clear $(PACKAGE)
	$(PACKAGE)/bin/python -m pip --disable-pip-version-check install --quiet build twine pytest hypothesis
	rm -rf dist && $(PACKAGE)/bin/python -m build && $(PACKAGE)/bin/twine check --strict dist/*
	for compiler in "$${CC:-cc}" no-such-compiler; do \
	  CC=$$compiler $(PACKAGE)/bin/python -m pip --disable-pip-version-check install --quiet --no-cache-dir \
	    --force-reinstall dist/*.tar.gz && cd $(PACKAGE) && bin/pellucid explain "home loans" "mortgages" && cd - || exit 1; \
	done
	$(PACKAGE)/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall "$$(echo dist/*.whl)[frames,search,sparse]"
	mkdir $(PACKAGE)/elsewhere && cp -r conftest.py pyproject.toml tests $(PACKAGE)/elsewhere
	cd $(PACKAGE)/elsewhere && ../bin/python -m pytest $(QUICK)

lowest:  ## the tests with the oldest direct dependencies that pyproject.toml allows; torch stays as it is
	$(PYTHON) -m venv --clear $(LOWEST)
	$(call install-torch,$(LOWEST)/bin/python -m pip --disable-pip-version-check -qq)
	$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	  --only-binary sudachipy -r pyproject.toml --extra test 'torch==$(TORCH)'
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	$(LOWEST)/bin/python -m pytest

fuzz: $(VENV)/test.stamp  ## attack it for minutes: damaged files, kills, full disks; FUZZ="--seed 1" for others
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ)

fuzz-native: $(VENV)/test.stamp  ## the same with C kernels that check every access to memory; needs gcc
	PYTHONPATH=tests $(BIN)/python -m fuzz --sanitized $(FUZZ)

mutants: $(VENV)/test.stamp  ## what share of small changes of core, explain and index the tests see; MUTANTS="--count 400"
	$(PIP) install --no-compile 'pytest-cov>=5'
	$(BIN)/python -m benchmarks.mutants $(MUTANTS)

docs: $(VENV)/docs.stamp help-docs  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

help-docs: $(VENV)/test.stamp  ## write docs/cli.md, the picture and table of docs/architecture.md and the JSON schemas from the code
	$(BIN)/python docs/cli_page.py
	$(BIN)/python docs/architecture_page.py
	$(BIN)/python docs/schemas.py

constraints: $(VENV)/full.stamp $(VENV)/docs.stamp  ## write down the versions that are installed, for CI
	$(PIP) freeze --exclude-editable | grep --invert-match --extended-regexp '^torch==|^nvidia-|^triton==| @ ' \
	  | sed "s/$$/; python_version == '3.11' and sys_platform == 'linux'/" > constraints.txt

clean:  ## remove the environment and everything built
	rm -rf $(VENV) $(VENV)-* site dist build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "pellucid needs Python 3.10 or newer, \
	$(PYTHON) is " + sys.version.split()[0] + "; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/core.stamp: pyproject.toml $(NATIVE) $(VENV)/made.stamp
	$(call pip-install,--editable '.[search]')
	@touch $@

$(VENV)/torch.stamp: $(VENV)/made.stamp
	$(call install-torch,$(PIP))
	@touch $@

$(VENV)/test.stamp: pyproject.toml $(NATIVE) $(VENV)/torch.stamp
	$(call pip-install,--editable '.[test]')
	@touch $(VENV)/core.stamp $@

$(VENV)/full.stamp: pyproject.toml $(VENV)/test.stamp
	$(call pip-install,--editable '.[full]')
	@touch $@

$(VENV)/docs.stamp: pyproject.toml $(VENV)/test.stamp
	$(call pip-install,--editable '.[dev]')
	@touch $@
