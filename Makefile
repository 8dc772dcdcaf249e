# The commands of this repository. Each sets up all it needs: the virtual environment, the locked dependencies and,
# where it runs as root on Debian, the system packages. `make` alone lists them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The browser opens the report, kubectl talks to the Kubernetes emulator. Without them their tests are skipped.
TEST_COMMANDS := chromium=chromium kubectl=kubernetes-client

# The folder where `make selftest` writes its tables.
TABLES ?= docs/reference

# Further arguments: `make conformance ARGS="--epp localhost:9002"`, `make test PYTEST_ARGS="-k subset"`.
ARGS ?=
PYTEST_ARGS ?=

# A run starts many Python processes. Where bytecode is not kept, as in many images, each would compile everything.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help conformance selftest test lint type unit docs reports clean

help:
	@echo 'make conformance  test the bundled endpoint picker, write the report to conformance-report/'
	@echo 'make selftest     the suite against every fault and variant of that endpoint picker, and of gateways'
	@echo 'make test         lint, types, import contracts and all tests'
	@echo 'make lint         ruff and the import contracts'
	@echo 'make type         mypy'
	@echo 'make unit         the tests alone'
	@echo 'make docs         write the generated pages of docs/ and the samples in README.md'
	@echo 'make reports      certify real Envoy in each way it is set up in the field, into reports/'
	@echo 'make clean        remove everything that these commands made'

conformance: $(READY)
	$(BIN)/epp-conformance run --output conformance-report $(ARGS)

selftest: $(READY)
	$(BIN)/epp-conformance selftest --table $(TABLES)/faults.md $(ARGS)
	$(BIN)/epp-conformance selftest --role data-plane --table $(TABLES)/gateway-faults.md $(ARGS)

test: lint type unit

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

type: $(READY)
	$(BIN)/mypy

unit: $(READY)
	.ci/packages $(TEST_COMMANDS)
	$(BIN)/pytest -n auto --dist loadfile $(PYTEST_ARGS)

# Reports of the shipped Envoy profiles, as they are published. Exit code 1 is a result, too: not conformant.
reports: $(READY)
	for name in $$($(BIN)/epp-conformance profile list | sed -n 's/^envoy-\([^ ]*\).*/\1/p'); do \
	  $(BIN)/epp-conformance certify --profile "envoy-$$name" --mode "$$name" --protocol-version 1.0.0 --seed 1 \
	    --submission reports --output "conformance-report/envoy-$$name" --quiet || [ $$? -eq 1 ] || exit; \
	done

docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/samples.py

clean:
	rm -rf $(VENV) .tox build dist conformance-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml uv.lock
	.ci/environment "$(PYTHON)" $(VENV)
	touch $@
