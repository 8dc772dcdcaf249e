# The commands of this repository. Each sets up all it needs: the virtual environment, the locked dependencies and,
# where it runs as root on Debian, the system packages. `make` alone lists them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The browser opens the report, kubectl talks to the Kubernetes emulator, h2load to Envoy. Without them their tests are
# skipped.
TEST_COMMANDS := chromium=chromium kubectl=kubernetes-client h2load=nghttp2-client curl=curl

# The folder where `make selftest` writes its tables.
TABLES ?= docs/reference

# How many mutants `make mutants` tries, and which.
MUTANTS ?= 800
SEED ?= 1

# Further arguments: `make conformance ARGS="--epp localhost:9002"`, `make test PYTEST_ARGS="-k subset"`.
ARGS ?=
PYTEST_ARGS ?=
PYTEST = $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# A run starts many Python processes. Where bytecode is not kept, as in many images, each would compile everything.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help conformance conformance-all selftest mutants test test-all release-check lint type unit
.PHONY: docs site dist reports test-reports clean

help:
	@echo 'make conformance  test the bundled endpoint picker, write the report to conformance-report/'
	@echo 'make selftest     the suite against every fault and variant of endpoint pickers, gateways and model servers'
	@echo 'make mutants      the suite against small mutations of the endpoint picker, an hour or more'
	@echo 'make test         lint, types, import contracts, and the tests but for slow ones and most that start programs'
	@echo 'make test-all     lint, types, import contracts and all tests'
	@echo 'make release-check  test-all, selftest, conformance of all versions and body modes, and dist'
	@echo 'make lint         ruff and the import contracts'
	@echo 'make type         mypy'
	@echo 'make unit         the tests of make test alone'
	@echo 'make docs         write the generated pages of docs/ and the samples of runs'
	@echo 'make site         the documentation as a site, in build/site'
	@echo 'make dist         wheel, source distribution and bill of materials of this commit, checked, in dist/'
	@echo 'make reports      the reports of a release, in dist/: the reference EPP, the example in Go, real Envoy, GIE'
	@echo 'make test-reports the small reports of tests/data/reports, after a change of their format'
	@echo 'make clean        remove everything that these commands made'

conformance: $(READY)
	$(BIN)/epp-conformance run --output conformance-report $(ARGS)

conformance-all: $(READY)
	$(BIN)/epp-conformance run --output conformance-report --quiet --protocol-version all $(ARGS)
	for mode in buffered streamed; do \
	  $(BIN)/epp-conformance run --output conformance-report --quiet --body-mode $$mode $(ARGS) || exit; \
	done

SELFTEST = $(BIN)/epp-conformance selftest --record
selftest: $(READY)
	$(SELFTEST) --table $(TABLES)/faults.md $(ARGS)
	$(SELFTEST) --role data-plane --table $(TABLES)/gateway-faults.md $(ARGS)
	$(SELFTEST) --role model-server --table $(TABLES)/model-server-faults.md $(ARGS)

mutants: $(READY)
	$(BIN)/epp-conformance selftest --mutants $(MUTANTS) --seed $(SEED) --table docs/reference/mutants.md $(ARGS)

test: lint type unit

test-all: lint type
	.ci/packages $(TEST_COMMANDS)
	$(PYTEST) $(PYTEST_ARGS)

release-check: test-all conformance-all selftest dist

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

type: $(READY)
	$(BIN)/mypy

unit: $(READY)
	.ci/packages $(TEST_COMMANDS)
	$(PYTEST) -m "not program and not slow or smoke" $(PYTEST_ARGS)

# The reports of a release, each with its evidence: `make dist` first. Exit code 1 is a result: not conformant.
# Programs of others are given: make reports GIE_1_0=./epp-1.0 GIE_1_5=./epp-1.5.
REPORTS := dist/reports
CERTIFY = $(BIN)/epp-conformance certify --seed 1 --submission $(REPORTS) --quiet
GIE_1_0 ?=
GIE_1_5 ?=

reports: $(READY)
	cd examples/go-epp && go build -trimpath -o ../../conformance-report/go-epp/program .
	certify() { $(CERTIFY) "$$@" || [ $$? -eq 1 ]; }; set -e; \
	certify --profile reference --body-mode full-duplex --mode full-duplex --output conformance-report/reference; \
	for mode in buffered streamed; do \
	  certify --profile reference --protocol-version 1.0.0 --body-mode $$mode --mode $$mode \
	    --output conformance-report/reference-$$mode; \
	done; \
	certify --profile go-epp --binary conformance-report/go-epp/program --output conformance-report/go-epp; \
	for name in $$($(BIN)/epp-conformance profile list | sed -n 's/^envoy-\([^ ]*\).*/\1/p'); do \
	  certify --profile "envoy-$$name" --mode "$$name" --protocol-version 1.0.0 --output "conformance-report/envoy-$$name"; \
	done; \
	if [ -n "$(GIE_1_0)" ]; then \
	  certify --profile gie-epp-1.0 --binary "$(GIE_1_0)" --observed --output conformance-report/gie-1.0; \
	fi; \
	if [ -n "$(GIE_1_5)" ]; then \
	  certify --profile gie-epp-1.5 --binary "$(GIE_1_5)" --observed --output conformance-report/gie-1.5; \
	fi
	$(BIN)/epp-conformance report matrix $(REPORTS) --markdown $(REPORTS)/README.md --html $(REPORTS)/matrix.html
	tar -czf "dist/epp_conformance-$$($(BIN)/uv version --short)-reports.tar.gz" -C dist reports

test-reports: $(READY)
	set -e; run() { $(CURDIR)/$(BIN)/epp-conformance run --smoke --seed 1 --quiet --accept-incomplete "$$@"; }; \
	cd tests/data/reports; \
	run --profile reference --body-mode full-duplex --output epp; \
	for role in data-plane model-server; do run --profile $$role/profile.yaml --output $$role; done; \
	rm */report.html */junit.xml */summary.md

docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/samples.py

dist: $(READY)
	.ci/dist $(BIN)/uv

site: $(READY)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .tox build dist conformance-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml uv.lock
	.ci/environment "$(PYTHON)" $(VENV)
	touch $@
