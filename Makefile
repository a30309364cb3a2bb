# Every target first sets up all that it needs (.venv, locked packages, jars); `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all durations check audit unit integration format docs docs-site coverage fuzz bench-drain bench-failover bench-brokers bench-rebalance bench-reset bench-commit bench-memory bench-latency bench-dispatch bench-ingress bench-ledger bench-overhead bench-replay bench-validate simulate mutants test-explain test-reload lock clean

VENV_PYTHON := .venv/bin/python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv and fetch the servers' jars; the other targets do it too
	@scripts/setup

demo: setup ## real flights through a real Kafka and ZooKeeper, while consumers are killed
	@$(VENV_PYTHON) -m inbound demo

test: setup ## what finds a defect in a change, in 12 minutes: check, unit, simulation, integration; the last line counts
	@$(VENV_PYTHON) -m scripts.run_tests check unit simulation integration

test-all: setup ## all tests there are, in an hour: `make test`, installs, upgrades, secured servers, containers, full searches
	@$(VENV_PYTHON) -m scripts.run_tests --all check unit simulation integration

durations: setup ## renew tests/durations.json, by which files are distributed, from a run of all tests
	@$(VENV_PYTHON) -m scripts.run_tests --all --record check unit simulation integration

check: setup ## ruff, mypy --strict, audit, docs site, import direction, wheel contents, file sizes
	@$(VENV_PYTHON) -m scripts.run_tests check structure

audit: setup ## known vulnerabilities of what is locked; `make check` does it too
	@scripts/audit

unit: setup ## the fast tests (pytest tests)
	@$(VENV_PYTHON) -m scripts.run_tests unit

integration: setup ## the tests on real servers (pytest integration)
	@$(VENV_PYTHON) -m scripts.run_tests integration

simulate: setup ## groups under seeded faults: SEEDS=n (2000), FROM=n, KIND=reset, or one SEED=n told as a story; and the plans that kill the mutants
	@$(VENV_PYTHON) -m scripts.simulate $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) $(if $(KIND),--kind $(KIND))

mutants: setup ## look for every mutant with seeds from 0 on, and record the plans that kill them for the tests: MUTANT=name for one
	@$(VENV_PYTHON) -m scripts.mutants $(if $(MUTANT),--mutant $(MUTANT))

format: setup ## sort imports, fix what ruff can fix, format
	@$(VENV_PYTHON) -m ruff check --quiet --fix . ; $(VENV_PYTHON) -m ruff format .

docs: setup ## renew what docs/ has from the code: tables of the configuration, metrics, beans, commands; drawings
	@$(VENV_PYTHON) -m scripts.document_configuration
	@$(VENV_PYTHON) -m scripts.document_metrics
	@$(VENV_PYTHON) -m scripts.document_jmx
	@$(VENV_PYTHON) -m scripts.document_commands
	@$(VENV_PYTHON) -m scripts.draw_protocol
	@$(VENV_PYTHON) -m scripts.draw_rooms

docs-site: setup ## the docs as a site, in build/site; `make check` does it too
	@$(VENV_PYTHON) -m scripts.docs_site

coverage: setup ## which lines the fast tests do not reach
	@$(VENV_PYTHON) -m coverage run -m pytest -q -m "not thorough" tests; $(VENV_PYTHON) -m coverage report

fuzz: setup ## attackers at the admin listener and the ingress: FUZZ_SECONDS=n (120), FUZZ_SEED=n (of this minute)
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),120) FUZZ_SEED=$(or $(FUZZ_SEED),$$(date +%Y%m%d%H%M)) $(VENV_PYTHON) -m pytest -q -n 2 --dist loadfile integration/http/test_fuzz.py tests/repository/test_growth.py --timeout 7200

bench-drain: setup ## records/s of channels until the last commit, against plain loops, other frameworks, Java, Go (17 min)
	@$(VENV_PYTHON) -m benchmarks.drain

bench-failover: setup ## seconds from SIGKILL until others read the victim's partitions
	@$(VENV_PYTHON) -m benchmarks.failover

bench-brokers: setup ## what a killed broker costs: others' partitions, and its own after the election
	@$(VENV_PYTHON) -m benchmarks.brokers

bench-rebalance: setup ## what joins and leaves cost: 20 processes, 1,000 partitions
	@$(VENV_PYTHON) -m benchmarks.rebalance

bench-reset: setup ## how long a group is stalled for a reset: 64 and 1,000 partitions, 4 processes, under load
	@$(VENV_PYTHON) -m benchmarks.reset

bench-commit: setup ## how many commits share a transaction, and how long one takes, also with a slow ZooKeeper (3 min)
	@$(VENV_PYTHON) -m benchmarks.commit

bench-memory: setup ## memory before a large backlog, CPU with nothing to read: 1,000 partitions, each client
	@$(VENV_PYTHON) -m benchmarks.memory

bench-latency: setup ## publish to hand-over of single records, against the plain loop of each client
	@$(VENV_PYTHON) -m benchmarks.latency

bench-dispatch: setup ## events/s to HTTP subscribers, beside eventing-kafka's way (Go); needs nginx and Go (10 min)
	@$(VENV_PYTHON) -m benchmarks.dispatch

bench-ingress: setup ## events/s through the ingress, over a plain producer loop; needs Go (5 min)
	@$(VENV_PYTHON) -m benchmarks.ingress

bench-ledger: setup ## what the ledger costs of a channel's records per CPU second (8 min)
	@$(VENV_PYTHON) -m benchmarks.ledger_cost

bench-overhead: setup ## what metrics, journal, logs, profiling and tracing cost of records per CPU second, 15 pairs; a scrape of 1,000 partitions (30 min)
	@$(VENV_PYTHON) -m benchmarks.overhead

bench-replay: setup ## records/s of spark replay over a bare job that makes the same batches (5 min)
	@$(VENV_PYTHON) -m benchmarks.replay

bench-validate: setup ## spark validate over bare Spark jobs on the same records and ledger; planted faults (25 min)
	@$(VENV_PYTHON) -m benchmarks.validate

test-explain: setup ## 20 planted causes on real servers, and the answers when nothing is wrong (13 min; MINUTES=10)
	@$(VENV_PYTHON) -m benchmarks.explain $(if $(MINUTES),--minutes $(MINUTES))

test-reload: setup ## 500 random edits of a configuration, good and bad, under load (5 min)
	@$(VENV_PYTHON) -m integration.reloading

# The locks hold every extra, for all supported Pythons and platforms, and name no index. The build tools are locked too, as PySpark is
# published as source only. Of Sparks newer than 4.0.0 the Kafka connector's part that gets tokens is missing in places.
COMPILE = UV_CUSTOM_COMPILE_COMMAND='make lock' .venv/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)
lock: setup ## renew requirements/*.lock from setup.cfg; `make lock UPGRADE=1` for newer versions
	@printf 'setuptools>=77\nwheel\n' | $(COMPILE) --output-file requirements/build.lock -
	@echo 'pyspark==4.0.0' | $(COMPILE) --output-file requirements/dev.lock --all-extras \
		--constraint requirements/build.lock --constraint - setup.cfg

clean: ## remove .venv and everything that tools leave behind; downloads stay in their caches
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
