# gpufence: `make help` lists everything.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The newest supported interpreter on this machine; override with `make PYTHON=python3.12 test`.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed-run
STAMP := $(VENV)/.installed
RELEASE_STAMP := $(VENV)/.installed-release

# One test process more than there are cores, because tests wait for other processes, but at most
# four.
PROCESSES = --numprocesses $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
# Each process has a control plane of its own, and takes whole files. Those that use it come last
# (tests/support/controlplane/fixtures.py), so that all other tests fail in the first minutes.
PARALLEL = $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Where the helper modules of the tests are: `python -m bench.run`, `python -m mutants`.
export PYTHONPATH := tests:tests/support:tests/properties:tests/performance:tests/tools

# Container images set this variable. Without compiled modules, each of the hundreds of processes
# that the tests start compiles gpufence and its libraries again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP)  ## the project's own environment in .venv, pinned with hashes

$(RUN_STAMP): requirements/run.txt deploy/build-requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "gpufence needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python3"; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make virtual environments: install its venv module (on Debian: apt install python3-venv)"; exit 2; }
	@echo "Installing gpufence into $(VENV) ..."
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/run.txt -r deploy/build-requirements.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(STAMP): requirements/dev.txt $(RUN_STAMP)
	@echo "Installing the tools of the tests and the documentation into $(VENV) ..."
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(RELEASE_STAMP): requirements/release.txt $(STAMP)
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/release.txt
	@touch $@

.PHONY: unit
unit: $(STAMP)  ## the tests that need no built program (one minute on two cores)
	$(BIN)/pytest $(PROCESSES) --dist worksteal -m "not built" $(ARGS)

.PHONY: test
test: check controlplane  ## lint, types and every test, those on the real control plane included
	$(BIN)/pytest $(PARALLEL) $(ARGS)

.PHONY: check
check: $(STAMP)  ## what CI runs besides the tests: format, lint, types, layers, prose, workflows
	@# mypy without a cache takes as long as all others.
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/ruff format --check . && $(BIN)/ruff check . \
	&& { $(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports; } \
	&& $(BIN)/python -m prose && $(BIN)/python -m workflows \
	&& ! { git ls-files --cached --ignored --exclude-standard 2>/dev/null | grep . \
		&& echo "Git tracks these files, which tools write: git rm --cached FILE"; }; \
	others=$$?; wait $$types && exit $$others

.PHONY: format
format: $(STAMP)  ## rewrite the sources as `make check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: controlplane
controlplane: $(STAMP)  ## build and cache the real control plane and the oracle (about 20 CPU-minutes, once)
	@$(BIN)/python -m controlplane.build controlplane oracle testdata helm kustomize promql toolkit

.PHONY: generate
generate: $(STAMP)  ## rewrite the generated files, except install.yaml (read the diff)
	@$(BIN)/python -m generate

.PHONY: render
render: generate  ## rewrite the generated files and install.yaml, which helm renders (read the diff)
	@$(BIN)/python -m render

.PHONY: docs
docs: $(STAMP)  ## the documentation as a site, into build/docs
	$(BIN)/python -m sphinx -W --keep-going -q -E -d build/doctrees docs build/docs

.PHONY: golden
golden: $(STAMP)  ## rewrite the expected outcomes of tests/cases, and reports (read the diff)
	GPUFENCE_GOLDEN=1 $(BIN)/pytest -q tests/unit/policies/test_cases.py tests/unit/cli/discover tests/unit/cli/report \
		tests/unit/cli/test_suites.py tests/unit/cli/commands/test_explain.py

.PHONY: node
node: controlplane  ## the image and the chart on a real kubelet (Linux, root; RESTARTS=50 for long)
	@$(BIN)/python -m node.build
	GPUFENCE_RESTARTS=$(or $(RESTARTS),3) $(BIN)/pytest -s tests/node --timeout 7200 $(ARGS)

.PHONY: compat
compat: $(STAMP)  ## the end-to-end tests on another Kubernetes (VERSION=v1.34.10)
	@$(BIN)/python -m compat "$(VERSION)" $(PARALLEL) $(ARGS)

.PHONY: laws
laws: $(STAMP)  ## every law against Kubernetes' own code, 20,000 examples each (or EXAMPLES=500)
	@$(BIN)/python -m controlplane.build oracle testdata toolkit
	GPUFENCE_RANDOM=1 GPUFENCE_LAWS=$(or $(EXAMPLES),20000) $(BIN)/pytest tests/properties/laws tests/unit/cli/policy_diff --hypothesis-show-statistics --timeout 7200 $(ARGS)

.PHONY: live
live: controlplane  ## generated objects on the real control plane, each answer held against the others (COUNT=200)
	GPUFENCE_RANDOM=1 GPUFENCE_LAWS=$(or $(COUNT),1000) $(BIN)/pytest -s -k law tests/e2e/test_one_verdict.py tests/e2e/test_match_conditions.py --timeout 7200 $(ARGS)
	GPUFENCE_PODS=500 $(BIN)/pytest -s tests/e2e/test_scheduler.py --timeout 7200 $(ARGS)

.PHONY: upgrade
upgrade: controlplane  ## upgrade from another commit, back and forth again, under load (FROM=v0.3.0)
	@rm -rf build/earlier && mkdir -p build/earlier && git archive "$(FROM)" | tar -x -C build/earlier
	GPUFENCE_EARLIER=$(CURDIR)/build/earlier $(BIN)/pytest -s tests/e2e/deploy/test_upgrade.py $(ARGS)

.PHONY: prove
prove: $(STAMP)  ## prove the statements of docs/concepts/proofs.md, and break the fence to see that the proof notices
	@$(BIN)/python -m controlplane.build oracle
	@$(BIN)/python -m proofs.prove
	$(BIN)/pytest -q tests/properties/proofs

.PHONY: mutants
mutants: $(STAMP)  ## break the engine in every way, and list the faults that no test notices (ARGS="--count 100")
	@$(BIN)/python -m mutants $(ARGS)

.PHONY: bump
bump: $(STAMP)  ## set the version everywhere and close the changelog section (VERSION=X.Y.Z, then X.Y.Z.dev0)
	@$(BIN)/python -m make_release bump "$(VERSION)"
	@$(MAKE) --no-print-directory render
	@echo "Read the diff, and commit it."

.PHONY: release
release: $(STAMP)  ## build wheel, sdist, chart, SBOM, notes and checksums into dist/ (IMAGE=registry/gpufence DIGEST=sha256:...)
	@$(BIN)/python -m make_release build "$(VERSION)" "$(IMAGE)" "$(DIGEST)"

.PHONY: release-review
release-review: $(STAMP)  ## rehearse the release of the commit offline, twice, and check each gate
	@$(BIN)/python -m controlplane.build helm
	@$(BIN)/python -m release_review

.PHONY: audit-dependencies
audit-dependencies: $(RELEASE_STAMP)  ## look up each library in the advisory databases (needs the Internet)
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements/run.txt

.PHONY: bench
bench: $(STAMP)  ## measure gpufence and alternatives, rewrite their page and the baseline (ten minutes; PEERS=kyverno for more)
	@$(BIN)/python -m bench.run --write

.PHONY: bench-compare
bench-compare: $(STAMP)  ## measure again, and fail if a ratio has fallen by a fifth (ARGS="--only serving")
	@$(BIN)/python -m bench.run $(ARGS)

.PHONY: bench-cli
bench-cli: $(STAMP)  ## only the command lines of it: 10,000 manifests, start, memory
	@$(BIN)/python -m bench.run --only cli

.PHONY: bench-expressions
bench-expressions: controlplane  ## CPU of the API server by Pod and number of pools
	@$(BIN)/python -m bench.expressions

.PHONY: bench-scale
bench-scale: $(STAMP)  ## a replica with 5,000 nodes and with NODES=100000: memory, CPU, latency, stalls (ten minutes)
	@$(BIN)/python -m bench.scale 5000 $(or $(NODES),100000)

.PHONY: bench-gang
bench-gang: controlplane  ## 1,028 GPU Pods from 64 writers, on a real API server with NODES=10000
	@$(BIN)/python -m bench.gang $(or $(NODES),10000) 1028 64

.PHONY: lock
lock: $(STAMP)  ## rewrite the pinned requirements (needs uv)
	uv pip compile pyproject.toml --extra kubeconfig --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --upgrade -q -o requirements/run.txt
	uv pip compile pyproject.toml --extra kubeconfig --group dev --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --upgrade -q -o requirements/dev.txt
	uv pip compile --group release --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --upgrade -q -o requirements/release.txt

.PHONY: clean
clean:  ## remove what the targets made here (not the control plane's cache)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
