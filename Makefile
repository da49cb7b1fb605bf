# Every target works from a fresh clone; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.stamp
AUDIT := .venv/.audit-stamp
KUBERNETES := .venv/.helm-stamp
SBOM := .venv/.sbom-stamp
# What drivers and the image of the server install.
INSTALLED := agents kafka server
RELEASE := .venv/.release-stamp
PRODUCT := agents arrester cli controlplane dashboard domain examples migrations manage.py
ARGS ?=
SMOKE := 3.5 4.0
# At the end of a run: what ran and how long, and what was skipped and why.
REPORT := -rs --durations 20
# Neither Delta Lake nor Iceberg runs on Spark 3.5: one process takes its tests. A second one costs a
# third more CPU.
SMOKE_OPTIONS = --numprocesses $(if $(filter 3.5,$*),0,2) --dist loadfile --no-loadscope-reorder $(REPORT)
# The files that have some: each process reads the files that it is given.
SMOKE_FILES = $(shell grep -lrw --include='test_*.py' 'mark.smoke' tests/agents)
# Java archives for the tests: a Kafka broker, a schema registry, the driver of PostgreSQL, and what Spark
# needs for them.
JARS := kafka-server kafka-4.0 kafka-4.3 schema-registry avro-4.0 avro-4.3 postgresql delta-4.0 iceberg-4.0 s3-3.5 s3-4.0 s3-4.3
# The test files that use them; none of Delta Lake and Iceberg runs on the newest Spark.
files_with = $(shell grep -lrwE --include='test_*.py' '$(1)' tests/agents)
PARTS = $(call files_with,kafka_broker|schema_registry_process|postgres_server)
LAKES = $(call files_with,delta_lake|iceberg)
k ?=
# Four processes, each with servers of its own; two of them with a Spark, whose first tests are slow.
SIDE_BY_SIDE := --numprocesses 4 -p tests.side_by_side --dist loadfile --no-loadscope-reorder -rs --durations 40

export PYTHONUNBUFFERED := 1
# Images of containers set it: hundreds of processes would compile every module that they import.
unexport PYTHONDONTWRITEBYTECODE
# Spark's Python workers are to be the same Python as the driver.
export PYSPARK_PYTHON := $(CURDIR)/$(PY)

.PHONY: help up demo test test-long test-parts test-lakes test-cluster test-api trips packages conformance smoke smoke-venvs matrix mutants chaos chaos-fold truth audit sbom helm release fuzz findings docs lint check bench screenshots requirements clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/tools.txt requirements/dev.txt requirements/demo.txt scripts/venv
	@scripts/venv

up: $(STAMP)  ## the whole product with the demo pipeline; Ctrl-C stops it (ARGS=--no-demo leaves the demo out)
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) manage.py up $(ARGS)

demo: $(STAMP)  ## open the demo application again, so that `make up` runs its pipeline
	@$(PY) manage.py demo

test: $(STAMP)  ## the test suite (k=resume runs the tests whose name has "resume")
	@java=$$(scripts/java) && chromium=$$(scripts/chromium) && scripts/jars $(JARS) >/dev/null && \
		JAVA_HOME=$$java CHROMIUM=$$chromium exec $(PY) -m pytest $(if $(k),-k "$(k)",$(SIDE_BY_SIDE)) $(ARGS)

test-long: $(STAMP)  ## the tests that the suite leaves out because they take minutes; before a release
	@java=$$(scripts/java) && chromium=$$(scripts/chromium) && scripts/jars $(JARS) >/dev/null && \
		JAVA_HOME=$$java CHROMIUM=$$chromium exec $(PY) -m pytest -m "long or hypothesis" \
		--hypothesis-profile release $(SIDE_BY_SIDE) $(ARGS)

test-parts: $(STAMP)  ## the tests with Kafka, a registry and PostgreSQL by JDBC, long ones too
	@java=$$(scripts/java) && scripts/jars $(JARS) >/dev/null && \
		JAVA_HOME=$$java exec $(PY) -m pytest -m "not cluster" $(REPORT) $(PARTS) $(ARGS)

test-lakes: $(STAMP)  ## the tests with Delta Lake and Iceberg, on Spark 4.0, long ones too
	@scripts/spark-venv 4.0 && scripts/jars $(JARS) >/dev/null
	@java=$$(scripts/java) && python=$(CURDIR)/build/spark-4.0/bin/python && \
		JAVA_HOME=$$java PYSPARK_PYTHON=$$python exec $$python -m pytest -m "not cluster" $(REPORT) $(LAKES) $(ARGS)

test-cluster: $(STAMP)  ## a standalone cluster whose executors, worker and driver are killed
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) -m pytest -m cluster $(REPORT) tests/e2e $(ARGS)

test-api: $(STAMP)  ## REST against its OpenAPI document by each role, many requests, long ones too
	@$(PY) -m pytest -m "long or not long" $(REPORT) tests/dashboard/rest/test_schemathesis.py $(ARGS)

trips: $(STAMP)  ## the modules that three acts pass through, and the calls between them
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) -m pytest -s -q tests/dashboard/test_trips.py

packages: $(STAMP)  ## the pictures of the packages in the architecture page
	@$(PY) -m scripts.package_graph

conformance: $(STAMP)  ## Kafka's own cases against our code (CONFORMANCE_VECTORS=folder: others)
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) -m pytest -m "not cluster" tests/conformance $(ARGS)

smoke-venvs: $(STAMP)
	@scripts/spark-venv $(SMOKE)

smoke: smoke-venvs  ## some tests on Spark 3.5 and 4.0 side by side, each in its own environment
	@scripts/jars $(JARS) >/dev/null
	@$(MAKE) --no-print-directory --jobs $(words $(SMOKE)) $(SMOKE:%=smoke-%)

smoke-%:
	@java=$$(scripts/java) && python=$(CURDIR)/build/spark-$*/bin/python log=build/smoke-$*.log && \
		JAVA_HOME=$$java PYSPARK_PYTHON=$$python $$python -m pytest -m "smoke and not long" $(SMOKE_FILES) $(SMOKE_OPTIONS) $(ARGS) >$$log 2>&1; \
		code=$$?; cat $$log; exit $$code

matrix: $(STAMP)  ## the tests of agent and conformance on each version of Spark, and README's table (ARGS="3.5 4.0")
	@java=$$(scripts/java) && chromium=$$(scripts/chromium) && \
		JAVA_HOME=$$java CHROMIUM=$$chromium exec $(PY) -m scripts.matrix $(ARGS)

mutants: $(STAMP)  ## apply deliberate faults, each of which the tests must detect, some ten minutes
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) -m tests.mutants $(ARGS)

chaos: $(STAMP)  ## the whole product under 300 random faults, some 30 minutes (ARGS="--seed 7 --faults 50")
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) -m tests.chaos $(ARGS)

chaos-fold: $(STAMP)  ## kill workers and PostgreSQL at random while events come, some ten minutes
	@$(PY) -m tests.chaos_fold $(ARGS)

truth: $(STAMP)  ## compare the numbers that pages, REST and metrics of the running product show
	@$(PY) -m tests.truth

$(AUDIT): $(STAMP) requirements/audit.txt
	@.venv/bin/uv pip install --quiet --python $(PY) --require-hashes -r requirements/audit.txt && touch $@

audit: $(AUDIT)  ## known vulnerabilities of the dependencies, and unsafe code
	.venv/bin/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive $(PRODUCT)
	for file in $(INSTALLED); do .venv/bin/pip-audit --disable-pip --requirement requirements/$$file.txt || exit; done

$(SBOM): $(STAMP) requirements/sbom.txt
	@.venv/bin/uv pip install --quiet --python $(PY) --require-hashes -r requirements/sbom.txt && touch $@

sbom: $(SBOM)  ## a list of the installed packages with their hashes in build/sbom, as valid CycloneDX
	@mkdir -p build/sbom
	@for file in $(INSTALLED); do $(PY) -W ignore::UserWarning -m cyclonedx_py requirements requirements/$$file.txt \
		--pyproject pyproject.toml --output-reproducible --validate --output-file build/sbom/$$file.json \
		&& echo build/sbom/$$file.json || exit; done

$(KUBERNETES): $(STAMP) requirements/helm.txt
	@.venv/bin/uv pip install --quiet --python $(PY) --require-hashes -r requirements/helm.txt && touch $@

helm: $(KUBERNETES)  ## check the Helm chart on three versions of Kubernetes, and boot what it declares
	@helm=$$(scripts/helm) && HELM=$$helm exec $(PY) -m pytest -m helm $(REPORT) tests/deploy $(ARGS)

$(RELEASE): $(STAMP) requirements/release.txt
	@.venv/bin/uv pip install --quiet --python $(PY) --require-hashes -r requirements/release.txt && touch $@

release: $(RELEASE)  ## build and check the distributions of a release in dist/, and print what a person does next
	@java=$$(scripts/java) && JAVA_HOME=$$java exec $(PY) -m scripts.release

fuzz: $(AUDIT)  ## random bytes for what reads events, heartbeats and commands (ARGS=-max_total_time=600)
	@$(PY) -m tests.fuzz_wire_decoder -max_len=100000 -max_total_time=60 -artifact_prefix=build/ $(ARGS)

findings: $(STAMP)  ## surprises of public libraries, each without the product (ARGS=spark-decimal-comma: one)
	@code=0; for each in $(or $(ARGS),$(filter-out environment,$(basename $(notdir $(wildcard findings/*.sh))))); do \
		findings/$$each.sh || code=1; done; exit $$code

docs: $(STAMP)  ## build the documentation site into build/site, with strict links
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

lint: docs  ## format, style, types, import contracts, missing migrations, language, documentation
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/mypy --python-version 3.10 agents cli domain
	.venv/bin/lint-imports
	$(PY) -W 'ignore:Got an error checking:RuntimeWarning' manage.py makemigrations --check --dry-run
	$(PY) -m scripts.check_language

check: lint test  ## lint, then test: green before each commit

bench: $(STAMP)  ## measure, and print the ratios
	@java=$$(scripts/java) && scripts/jars postgresql kafka-server kafka-4.3 delta-4.0 iceberg-4.0 >/dev/null && JAVA_HOME=$$java exec $(PY) -m benchmarks $(ARGS)

screenshots: $(STAMP)  ## make the pictures in docs/screenshots again
	@chromium=$$(scripts/chromium) && CHROMIUM=$$chromium exec $(PY) -m scripts.screenshots

requirements: $(STAMP)  ## pin and hash the dependencies of pyproject.toml again
	@UV=.venv/bin/uv scripts/requirements

clean:  ## remove what was built and downloaded; data in .arrester/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
