# What a person types. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
WHEELS ?= 3.12
VERSIONS ?= 1.30 1.34 1.37 1.37-gates
PROMETHEUS ?= 2.35 3.16
BIN := $(VENV)/bin
SHOWN := .pytest_cache/faults.json
BESIDE := .pytest_cache/beside.txt
IN_GUEST := kubelet@1.37 kubectl containerd helm
TYPES := .pytest_cache/types.txt
WORKERS = $(shell expr $$(nproc) + 1)
# Folders of tests lie in memory where that has a GB: a quarter less CPU for tests of files, and no syncs to wait for.
MEMORY = $(shell d=/dev/shm; [ -w $$d ] && [ $$(df --output=avail -k $$d | tail -n 1) -gt 1000000 ] && \
  ! grep -q " $$d .*noexec" /proc/mounts && echo $$d || echo $${TMPDIR:-/tmp})
FAST := not daemon and not containers and not cluster and not hosts and not charts and not boards and not prometheus and not browser

.PHONY: help demo lint style check test test-hosts test-versions test-python test-prometheus cluster image release release-tools bench bench-peers day gpu wheels golden prose docs-site manifests guards traces fuzz lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 12

demo: $(VENV)/.run  ## start the daemon on an embedded simulated node, and print its address
	@echo "gpusteward on a simulated node: http://127.0.0.1:9478/  (metrics: http://127.0.0.1:9478/metrics, stop: Ctrl-C)"
	@exec $(BIN)/gpusteward run --config deploy/demo.yaml

lint: style  ## lint, types, import contracts
	$(BIN)/mypy

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	PYTHONPATH=tests $(BIN)/python -m prose

# Without compiled files of the last run the tests take a fifth longer: some machines say that none be written.
check test test-versions test-prometheus: export PYTHONDONTWRITEBYTECODE :=

check: style  ## lint, types, import contracts, unit tests side by side: 60 to 80 s on two cores
	@# mypy beside the tests; what it says follows at the end. One worker more than cores: tests wait some 25 s in sum.
	@# Of Hypothesis a quarter of the examples of `make test`, of some long plays a part (tests/pace.py).
	mkdir -p $(dir $(TYPES)); $(BIN)/mypy > $(TYPES) 2>&1 & types=$$!; code=0; \
	  TMPDIR=$(MEMORY) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --hypothesis-profile=check -m "$(FAST)" || code=$$?; \
	  wait $$types || code=$$?; cat $(TYPES); exit $$code

test: lint $(VENV)/.release  ## install what the tests need (asks first on a machine of your own), then run all of them on real parts
	rm -f $(SHOWN)
	TMPDIR=$(MEMORY) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "$(FAST)" --faults=$(SHOWN)
	GPUSTEWARD_TRACES=6 $(BIN)/pytest -q tests/policy/test_enumeration.py  # `check` looks at traces of 5 events
	@# 10 s. The site's packages draw the picture of a day, so its test is skipped above and runs here.
	[ "$${CI:-}" != true ] || { $(MAKE) docs-site && $(BIN)/pytest -q -p no:cacheprovider tests/day/test_verdict.py; }
	PYTHONPATH=tests $(BIN)/python -m cluster.install
	PYTHONPATH=tests $(BIN)/python -m cluster.build || [ "$${CI:-}" != true ]  # without Go its tests are skipped, loudly
	PYTHONPATH=tests $(BIN)/python -m cluster.build $(IN_GUEST) || [ "$${CI:-}" != true ]
	PYTHONPATH=tests $(BIN)/python -m cluster.npm || [ "$${CI:-}" != true ]
	@# A virtual machine, which takes one core; beside it first charts, containers and Prometheus, then files that start a
	@# daemon or a cluster, two more than there are cores: they mostly wait for a grace, a kubelet or a pod.
	$(BIN)/pytest -p no:cacheprovider -m hosts --durations=10 tests/hosts/test_attribution.py tests/hosts/test_enforcement.py \
	    > $(BESIDE) 2>&1 & beside=$$!; code=0; \
	  $(BIN)/pytest -p no:cacheprovider -m "not daemon and not ($(FAST)) and not cluster and not hosts" --durations=10 --faults=$(SHOWN) \
	    || code=$$?; \
	  $(BIN)/pytest -m "(daemon or cluster) and not hosts" -n 4 --dist loadfile --no-loadscope-reorder --durations=25 \
	    --faults=$(SHOWN) || code=$$?; wait $$beside || code=$$?; cat $(BESIDE); exit $$code
	PYTHONPATH=tests $(BIN)/python -m faults $(SHOWN) || [ "$${CI:-}" != true ]  # what this machine lacks is not shown

test-hosts: $(VENV)/.dev  ## test on a node in a virtual machine: Debian 13, cgroup v2 alone, systemd's driver; more than `test` does there
	PYTHONPATH=tests $(BIN)/python -m cluster.install
	PYTHONPATH=tests $(BIN)/python -m cluster.build $(IN_GUEST) runsc
	$(BIN)/pytest -p no:cacheprovider -m hosts --durations=0

test-versions: $(VENV)/.dev  ## test on each version of Kubernetes that is supported, of Python and Prometheus; VERSIONS=1.37 takes one Kubernetes alone
	PYTHONPATH=tests $(BIN)/python -m cluster.install
	PYTHONPATH=tests $(BIN)/python -m cluster.build $(VERSIONS:%=kubelet@%) kubectl containerd nvidia-cdi-hook helm
	@code=0; for one in $(VERSIONS); do echo "Kubernetes $$one"; \
	  GPUSTEWARD_KUBERNETES=$$one $(BIN)/pytest -p no:cacheprovider -m versions -n 2 --dist loadfile --durations=10 tests/cluster \
	    || code=$$?; done; exit $$code
	[ "$(origin VERSIONS)" != file ] || $(MAKE) test-python test-prometheus

test-python: $(VENV)/.dev  ## run the tests of `check`, and those that start the daemon, on Debian 13's Python 3.13; as root
	PYTHONPATH=tests $(BIN)/python -m cluster.debian trixie \
	  pytest -q -p no:cacheprovider -n $(WORKERS) --dist worksteal --hypothesis-profile=check -m "daemon or ($(FAST))"

test-prometheus: $(VENV)/.dev  ## test rules, boards and scrapes on the oldest and the newest Prometheus; PROMETHEUS=3.16 takes one
	@code=0; for one in $(PROMETHEUS); do echo "Prometheus $$one"; \
	  GPUSTEWARD_PROMETHEUS=$$one $(BIN)/pytest -p no:cacheprovider -m "prometheus and not cluster" || code=$$?; done; exit $$code

cluster: $(VENV)/.dev  ## leave a real Kubernetes with fake GPUs running, and print its kubeconfig
	PYTHONPATH=tests $(BIN)/python -m cluster

image: $(VENV)/.dev  ## build the daemon's image without Docker or a registry, and print where it is (docs/image.md)
	PYTHONPATH=tests $(BIN)/python -m cluster.image

release: RELEASE = "$(VERSION)" --registry "$(REGISTRY)" $(if $(KEY),--key "$(KEY)") $(FLAGS)
release: $(VENV)/.release  ## build and publish VERSION=x.y.z at REGISTRY=host/path, signed with KEY=… (docs/release.md)
	@: $(if $(VERSION),,$(error VERSION is missing: make release VERSION=x.y.z REGISTRY=host/path [KEY=…]))
	@: $(if $(REGISTRY),,$(error REGISTRY is missing: make release VERSION=$(VERSION) REGISTRY=host/path [KEY=…]))
	@# What can be refused at once, before helm and cosign are built.
	@$(BIN)/python -m tools.release --check $(RELEASE)
	@programs=$$(PYTHONPATH=tests $(BIN)/python -m cluster.build helm cosign) && \
	  for one in $$programs; do PATH=$$(dirname $$one):$$PATH; done && \
	  $(BIN)/python -m tools.release $(RELEASE)

release-tools: $(VENV)/.dev  ## build helm, cosign and a registry, and print the line that puts them on your PATH (docs/release.md)
	@programs=$$(PYTHONPATH=tests $(BIN)/python -m cluster.build helm cosign registry) && \
	  path=; for one in $$programs; do path=$$path$$(dirname $$one):; done && echo "export PATH=$$path\$$PATH"

bench: $(VENV)/.dev  ## measure rounds, scrapes and decisions; the tables go into docs/performance.md
	PYTHONPATH=tests $(BIN)/python -m bench
	PYTHONPATH=tests $(BIN)/python -m bench.policy

bench-peers: $(VENV)/.docs  ## measure beside nvitop-exporter and a bare loop, as root, in an hour and a quarter; docs/growth.svg, tables for docs/performance.md
	PYTHONPATH=tests $(BIN)/python -m bench.peers
	PYTHONPATH=tests $(BIN)/python -m bench.growth --svg docs/growth.svg

day: $(VENV)/.docs  ## play a day of the daemon in 30 minutes, as root: does it stay flat? docs/day.svg, a table for docs/performance.md
	PYTHONPATH=tests $(BIN)/python -m day --svg docs/day.svg

gpu: $(VENV)/.run  ## ask a real NVIDIA GPU, if there is one; the tables go into docs/devices.md
	PYTHONPATH=tests $(BIN)/python -m gpu

wheels:  ## fetch what `make gpu` needs into .wheels: with PIP_NO_INDEX=1 PIP_FIND_LINKS=.wheels it needs no network
	$(PYTHON) -m pip download -q --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
	  --python-version $(WHEELS) $(foreach tag,_2_28 _2_27 _2_26 _2_24 _2_17 2014 1,--platform manylinux$(tag)_x86_64) \
	  -d .wheels -r requirements.lock

golden: $(VENV)/.dev  ## write the golden metrics page, docs/{metrics,policy,systems,faults}.md, docs/reference and the Grafana boards anew
	PYTHONPATH=tests $(BIN)/python -m golden
	$(BIN)/python -m tools.policy_reference
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.limits_reference > docs/systems.md
	$(BIN)/python -m grafana
	$(BIN)/python -m tools.exported
	PYTHONPATH=tests $(BIN)/python -m faults

prose: $(VENV)/.dev  ## look for prose that is hard to read, as `make style` does, too
	PYTHONPATH=tests $(BIN)/python -m prose

docs-site: $(VENV)/.docs  ## build the static site of docs/ into site/; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

manifests: $(VENV)/.dev  ## copy version, rules and boards into the Helm chart, and render deploy/manifests from it anew
	$(BIN)/python -m tools.release.source
	PYTHONPATH=tests $(BIN)/python -m deploy.copies
	PYTHONPATH=tests $(BIN)/python -m deploy.plain

guards: $(VENV)/.dev  ## break each guard of the policy, one at a time, and list which test notices (tests/policy/guards.txt)
	PYTHONPATH=tests $(BIN)/python -m policy.mutation $(ONLY)

traces: $(VENV)/.dev  ## a million hostile traces against both laws of the policy: 6 to 9 ms of CPU each
	PYTHONPATH=tests $(BIN)/python -m policy.hostile --traces $(or $(TRACES),1000000) --seed $(or $(SEED),0)

fuzz: $(VENV)/.fuzz  ## ten million hostile inputs for all readers of strangers' bytes, guided by coverage (docs/fuzzing.md)
	PYTHONPATH=tests $(BIN)/python -m fuzz --inputs $(or $(INPUTS),10000000) $(addprefix --only ,$(ONLY))

lock: $(VENV)/.dev  ## resolve the dependencies anew
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --group build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --group dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -c requirements-dev.lock --group pyproject.toml:docs -o requirements-docs.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -c requirements-dev.lock --group pyproject.toml:fuzz -o requirements-fuzz.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -c requirements-dev.lock --group pyproject.toml:release -o requirements-release.lock

clean:  ## remove the environment and all caches of this checkout
	rm -rf $(VENV) site .fuzz .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.run: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(f"gpusteward needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=/path/to/python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

# In the same environment as the rest: its versions are resolved with those of requirements-dev.lock.
$(VENV)/.docs: $(VENV)/.dev requirements-docs.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

# In the same environment, too: the tests of a release use it.
$(VENV)/.release: $(VENV)/.dev requirements-release.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-release.lock
	@touch $@

# Atheris has wheels for some versions of Python alone, so that `make check` must not need it.
$(VENV)/.fuzz: $(VENV)/.dev requirements-fuzz.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	@touch $@
