# Everything that people and CI run. Each target works on a fresh clone; stamps make a second run fast.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMPS := .venv/.stamps
# Each process of the pipeline's tests has a Spark session of its own, so they run after the others.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 4 ? 4 : n)))
# Many tests have real processes, threads and disks in them. What failed beside others runs once more, alone, and must
# pass then; that it did not at first stays in the output.
AGAIN = { echo "What failed runs again, alone." >&2; $(BIN)/python -m pytest -q -m "not slow" --last-failed --last-failed-no-failures none; }
# What `make bench` passes on to `flintlog bench`.
ARGS ?= --rounds 1
KERNEL_SOURCES := $(wildcard src/flintlog/kernel/*.pyx src/flintlog/kernel/*.pxd src/flintlog/kernel/*.pxi src/flintlog/kernel/*.h)

.PHONY: help setup test test-slow lint demo bench docs clean

help:
	@echo "make setup      .venv with locked dependencies, the compiled kernel, a look for Java, tmux and mkfs.ext4"
	@echo "make test       lint, types, import rules and all tests that are not slow"
	@echo "make test-slow  the slow tests"
	@echo "make lint       ruff and mypy"
	@echo "make demo       kill a writer, recover, read: what was acknowledged is there; then Spark"
	@echo "make bench      how fast this machine is with it; ARGS='--compare java' beside RocketMQ's own store"
	@echo "make docs       write the reference from the code again, and build the site"
	@echo "make clean      remove everything that was built"

setup: $(STAMPS)/installed $(STAMPS)/java $(STAMPS)/tmux $(STAMPS)/ext4

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/locked: requirements.lock $(STAMPS)/venv
	@echo "Locked dependencies go into .venv: a gigabyte, most of it Spark; this takes minutes the first time."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@touch $@

$(STAMPS)/installed: setup.py pyproject.toml $(KERNEL_SOURCES) $(STAMPS)/locked
	@rm -f src/flintlog/kernel/*.so # the kernel may fail to compile, and what was compiled before would go on being used
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -c 'from flintlog import kernel; print("kernel:", kernel.name)'
	@! command -v cc >/dev/null || $(BIN)/python -c 'import flintlog.kernel.native' \
		|| { echo "The kernel did not compile, though there is a compiler: pip's output with -v says why." >&2; exit 1; }
	@touch $@

$(STAMPS)/java: scripts/check-java.sh $(STAMPS)/venv
	@scripts/check-java.sh
	@touch $@

$(STAMPS)/tmux: scripts/check-tmux.sh $(STAMPS)/venv
	@scripts/check-tmux.sh
	@touch $@

$(STAMPS)/ext4: scripts/check-ext4.sh $(STAMPS)/venv
	@scripts/check-ext4.sh
	@touch $@

lint: $(STAMPS)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup lint
	$(BIN)/python -m pytest -q tests/test_rooms.py
	$(BIN)/python -m pytest -q -m "not slow" -n $(WORKERS) --dist loadfile --ignore=tests/test_rooms.py --ignore=tests/pipeline \
		|| $(AGAIN)
	$(BIN)/python -m pytest -q -m "not slow" -n $(WORKERS) --dist loadfile tests/pipeline || $(AGAIN)

test-slow: setup
	$(BIN)/python -m pytest -q -m slow -n $(WORKERS) --dist loadfile --ignore=tests/pipeline
	$(BIN)/python -m pytest -q -m slow -n $(WORKERS) --dist loadfile tests/pipeline

demo: $(STAMPS)/installed $(STAMPS)/java
	$(BIN)/python examples/demo.py

bench: $(STAMPS)/installed
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMPS)/installed
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.rooms
	$(BIN)/python -m sphinx --quiet --nitpicky --fail-on-warning --keep-going -c docs/site . build/site
	@echo "The site is build/site/index.html"

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f src/flintlog/kernel/*.so $(patsubst %.pyx,%.c,$(wildcard src/flintlog/kernel/*.pyx))
