# Every target sets up what it needs first (.venv, locked packages, jars); `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo test check unit integration format coverage bench-drain bench-failover bench-brokers simulate lock clean

VENV_PYTHON := .venv/bin/python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv and fetch the servers' jars; the other targets do it too
	@scripts/setup

demo: setup ## real flights through a real Kafka and ZooKeeper, while consumers are killed
	@$(VENV_PYTHON) -m inbound demo

test: setup ## everything: check, unit, simulation, integration; the last line counts it all
	@$(VENV_PYTHON) scripts/run_tests.py check unit simulation integration

check: setup ## ruff, mypy --strict, import direction, wheel contents, file sizes
	@$(VENV_PYTHON) scripts/run_tests.py check structure

unit: setup ## the fast tests (pytest tests)
	@$(VENV_PYTHON) scripts/run_tests.py unit

integration: setup ## the tests on real servers (pytest integration)
	@$(VENV_PYTHON) scripts/run_tests.py integration

simulate: setup ## groups under seeded faults: SEEDS=n (2000), FROM=n, or one SEED=n told as a story; and all mutants
	@$(VENV_PYTHON) -m scripts.simulate $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM))

format: setup ## sort imports, fix what ruff can fix, format
	@$(VENV_PYTHON) -m ruff check --quiet --fix . ; $(VENV_PYTHON) -m ruff format .

coverage: setup ## which lines the fast tests do not reach
	@$(VENV_PYTHON) -m coverage run -m pytest -q tests; $(VENV_PYTHON) -m coverage report

bench-drain: setup ## records/s of a channel against a plain kafka-python loop
	@$(VENV_PYTHON) -m benchmarks.drain

bench-failover: setup ## seconds from SIGKILL until others read the victim's partitions
	@$(VENV_PYTHON) -m benchmarks.failover

bench-brokers: setup ## what a killed broker costs: others' partitions, and its own after the election
	@$(VENV_PYTHON) -m benchmarks.brokers

bench-rebalance: setup ## what joins and leaves cost: 20 processes, 1,000 partitions
	@$(VENV_PYTHON) -m benchmarks.rebalance

lock: setup ## renew requirements/*.lock from setup.cfg; `make lock UPGRADE=1` for newer versions
	@$(VENV_PYTHON) scripts/lock.py $(if $(UPGRADE),--upgrade)

clean: ## remove .venv and everything that tools leave behind; downloads stay in their caches
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
