# Every target sets up what it needs. Nothing is installed outside .venv and the cache.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := agent allocator webhook console certs kube demo manifests tests benchmarks compiled.py vgpu.py
# Tests of deciding on the hot path, which the image runs as machine code.
DECIDING := tests/unit/allocator tests/unit/webhook tests/properties tests/integration/webhook
APART := $(DECIDING) tests/model tests/browser
# How many schedules the model runs under; what must hold, under a third of 2500 where it is empty.
SCHEDULES ?= 2500

.DEFAULT_GOAL := help
.PHONY: help setup demo programs test test-fast test-compiled test-rest test-plane test-library test-patient test-node test-install test-browser test-cluster test-model test-gpu gpu-bundle check format proto lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## install the locked dependencies into .venv

$(STAMP): requirements/dev.txt
	@echo "setup: creating $(VENV) and installing locked dependencies"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements/dev.txt
	@touch $@

demo: $(STAMP) ## start the webhook and a console on loopback, and send sample pods
	@$(BIN)/python -m vgpu demo $(DEMO_ARGS)

programs: $(STAMP) ## install and build what tests run: Kubernetes, Volcano, containerd, PostgreSQL, Chromium
	@$(BIN)/python -m tests.harness.debian_packages
	@$(BIN)/python -m tests.cluster.controlplane.build --all

# Two parts run beside each other, because a cluster waits much of its time; what a part found is told
# when it is over. The order lets both end at about the same time, and keeps the image, which is built
# on all cores, away from most of the plane. Each test runs once, those of the hot path as machine
# code. The storms come after them: they need the machine for themselves, because beside others they
# measure how busy it is.
PARTS := test-plane test-rest test-node test-install test-compiled test-model test-browser
test: programs ## run all tests, on a real control plane, a real kubelet and the image too
	@echo "test: two at a time of $(PARTS); each is told when it is over"
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target SCHEDULES= $(PARTS)
	@echo "test: storms"
	@$(MAKE) --no-print-directory test-patient

test-fast: $(STAMP) ## run the tests that need no cluster
	@$(BIN)/python -m pytest -m "not cluster" $(PYTEST_ARGS)

test-compiled: $(STAMP) ## run the tests of deciding on the hot path as machine code
	@apart="$$($(BIN)/python -m compiled --apart)" && \
	  $(BIN)/python -m pytest --override-ini "pythonpath=$$apart ." $(PYTEST_ARGS) $(DECIDING)

test-rest: $(STAMP) ## run what needs neither cluster nor browser, but the model and the hot path
	@$(BIN)/python -m pytest -m "not cluster" $(addprefix --ignore=,$(APART)) $(PYTEST_ARGS)

test-library: $(STAMP) ## run the tests on real builds of libvgpu.so, in the folder VGPU_HAMI_CORE
	@$(BIN)/python -m pytest -m library $(PYTEST_ARGS)

test-patient: $(STAMP) ## run the storms, which take minutes and need the machine for themselves
	@$(BIN)/python -m tests.cluster.controlplane.build --all
	@$(BIN)/python -m pytest -m patient $(PYTEST_ARGS) tests/cluster

test-node: $(STAMP) ## run the tests on a real kubelet, which need root
	@$(BIN)/python -m tests.cluster.controlplane.build --all
	@$(BIN)/python -m pytest -m node $(PYTEST_ARGS) tests/cluster

test-install: $(STAMP) ## build the image and install it into a cluster of one node, which needs root
	@$(BIN)/python -m tests.cluster.controlplane.build --all
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/install

test-browser: $(STAMP) ## open the console's pages in Chromium; VGPU_PICTURES=FOLDER keeps pictures of them
	@$(BIN)/python -m pytest -m browser $(PYTEST_ARGS) tests/browser

test-plane: $(STAMP) ## run the tests on a real control plane without a kubelet, but the storms
	@$(BIN)/python -m tests.cluster.controlplane.build --all
	@$(BIN)/python -m pytest -m "not node and not patient" $(PYTEST_ARGS) tests/cluster

test-cluster: $(STAMP) ## run the tests on a real control plane only
	@$(BIN)/python -m tests.cluster.controlplane.build --all
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/cluster

test-model: $(STAMP) ## run the model under SCHEDULES=2500 schedules from FIRST_SEED=0 on
	@VGPU_SCHEDULES=$(SCHEDULES) VGPU_FIRST_SEED=$(or $(FIRST_SEED),0) \
	  $(BIN)/python -m pytest $(PYTEST_ARGS) tests/model

test-gpu: $(STAMP) ## check what the GPU of this machine does; not part of test
	@$(BIN)/python -m tests.gpu $(GPU_ARGS)

gpu-bundle: $(STAMP) ## make a folder that does the same on a machine without network
	@$(BIN)/python -m tests.gpu.bundle gpu-bundle

check: $(STAMP) ## format, lint, types, import contracts, generated manifests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m manifests.generator --check

format: $(STAMP) ## format the code and order its imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(STAMP) ## generate the messages of kubelet and of the API server anew
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. agent/proto/*.proto kube/proto/*.proto

lock: $(STAMP) ## write the hash-locked requirements anew
	for set in run dev compile; do \
	  case $$set in \
	    run) what="pyproject.toml" ;; \
	    dev) what="pyproject.toml --extra kubectl --group dev" ;; \
	    compile) what="--group compile" ;; \
	  esac; \
	  $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	    --python-version 3.11 $$what --output-file requirements/$$set.txt; \
	done

clean: ## remove what was made in the tree
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
