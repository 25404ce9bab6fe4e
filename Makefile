# Two commands matter: `make demo` and `make test`. Both set everything up first, inside this folder.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Said here, since another Python may not even be able to read setup.py.
ONLY_311 := import sys; sys.version_info[:2] == (3, 11) or \
  sys.exit('setup: Python 3.11 is needed, this is %s: make PYTHON=/path/to/python3.11 ...' % sys.version.split()[0])

.PHONY: help demo test setup check fmt proto baseline chaos e2e engine-tests bench-demo clean

demo: setup
	@$(BIN)/python -m services.cli demo $(ARGS)

test: setup
	@$(BIN)/python -m pytest -m "not chaos and not engine" $(ARGS)

help:
	@echo "make demo    set up .venv, start everything, train a small model, show its reward rising"
	@echo "make test    set up .venv, run the tests"
	@echo "further: setup check fmt proto e2e chaos engine-tests bench-demo clean; ARGS=... goes to the command"

setup:
	@test -n "$(PYTHON)" || { echo "setup: Python 3.11 is needed, none was found: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@$(PYTHON) -c "$(ONLY_311)"
	@$(PYTHON) deploy/local/setup.py

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/buf lint proto
	$(BIN)/buf breaking proto --against proto/baseline.binpb
	$(BIN)/python deploy/local/generated.py --check

fmt: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .

proto: setup
	$(BIN)/python deploy/local/generated.py

# Only at a release: what is in the baseline may never change again.
baseline: setup
	$(BIN)/buf build proto -o proto/baseline.binpb

# Real vLLM; slow to start.
engine-tests: setup
	$(BIN)/python -m pytest -m engine $(ARGS)

# The whole stack: a short demo that must learn, and black boxes whose workers are killed. `make test` runs them too.
e2e: setup
	$(BIN)/python -m pytest -m "e2e and not chaos" tests/e2e $(ARGS)

# The whole stack, with every part killed once.
chaos: setup
	$(BIN)/python -m pytest -m chaos tests/e2e $(ARGS)

bench-demo: setup
	$(BIN)/python -m loadtests.demo --json $(ARGS)

clean:
	rm -rf .forgerl demo-out .pytest_cache .ruff_cache .hypothesis
