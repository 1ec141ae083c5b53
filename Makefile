# Everything is driven from here; `make help` lists the targets.

# Compiled modules are kept: tests and cells start many processes.
export PYTHONDONTWRITEBYTECODE =

PYTHON  ?= python3
PAPER   ?= all
PROFILE ?= quick
JOBS    ?= 2
DATA    ?= $(wildcard ../shared/data)
FETCH   ?= yes
RESULTS ?= results
FIGURES ?= docs/figures
PORT    ?= 5000
PAIRS   ?= 500
RUNS    ?= 20000
SEEDS   ?= 28

VENV := .venv
RUN  := $(VENV)/bin/python
PKM  := $(VENV)/bin/pkm
SETTINGS = paper=$(PAPER) profile=$(PROFILE) jobs=$(JOBS) results=$(RESULTS) fetch=$(FETCH) $(if $(DATA),data=$(DATA))

.PHONY: help setup reproduce plan status retry report figures flips audit false-alarms test test-slow golden lint format bench dashboard data embeddings protocol diffprivlib lock docs clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 14
	@echo
	@echo "settings: PAPER=$(PAPER) PROFILE=$(PROFILE) JOBS=$(JOBS) DATA=$(DATA) FETCH=$(FETCH) RESULTS=$(RESULTS)"

# A first fit compiles kernels, which takes 8 to 20 s of CPU; numba keeps them for all later ones.
FIRST_FIT = import numpy as np; from pkm.methods import SynopsisKMeans; \
	SynopsisKMeans(2, bounds=(0, 1)).fit(np.eye(2)[np.arange(2000) % 2])

# The lock is installed once, and the project on top of it, editable; what changed is installed again.
# Modules are compiled at their first import, which most of them never see.
$(VENV)/ready: requirements.txt pyproject.toml
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	$(RUN) -c "$(FIRST_FIT)"
	touch $@

# Open MPI, for parties that are processes.
$(VENV)/protocol: requirements-protocol.txt $(VENV)/ready
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements-protocol.txt
	touch $@

# MkDocs, for the site of docs/.
$(VENV)/docs: requirements-docs.txt $(VENV)/ready
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements-docs.txt
	touch $@

# A library that is run out of process, as a control.
.venv-diffprivlib/ready: requirements-diffprivlib.txt
	$(PYTHON) -m venv .venv-diffprivlib
	.venv-diffprivlib/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements-diffprivlib.txt
	touch $@

setup: $(VENV)/ready   ## create .venv from the lock

reproduce: setup ## run a profile of a paper (or of all) and build the report: PAPER= PROFILE=smoke|quick|paper JOBS= DATA= FETCH=no (do not download data)
	$(PKM) reproduce $(SETTINGS)

plan: setup      ## show what would run, what is stored, and how long it may take
	$(PKM) reproduce plan $(SETTINGS)

status: setup    ## count finished, failed and absent cells
	$(PKM) reproduce status $(SETTINGS)

retry: setup     ## run failed cells again
	$(PKM) reproduce retry $(SETTINGS)

report: setup    ## build the report from what is stored
	$(PKM) reproduce report $(SETTINGS)

figures: setup   ## draw the figures of the papers' pages from what is stored: PROFILE= RESULTS= FIGURES=folder
	$(PKM) figure $(PAPER) style=paper out=$(FIGURES) profile=$(PROFILE) results=$(RESULTS) $(if $(DATA),data=$(DATA))

QUICK = profile=quick $(filter-out profile=% results=%,$(SETTINGS))
# A busy machine is one with twice as many endless loops as jobs.
flips: setup     ## run the quick profile twice, once on a busy machine, and list the verdicts that differ: PAPER= JOBS= RESULTS=
	$(PKM) reproduce $(QUICK) results=$(RESULTS)/idle
	trap 'kill $$(jobs -p)' EXIT; for job in $$(seq $(JOBS)) $$(seq $(JOBS)); do $(RUN) -c "while True: pass" & done; \
		$(PKM) reproduce $(QUICK) results=$(RESULTS)/busy
	$(RUN) tools/verdicts.py $(RESULTS)/idle $(RESULTS)/busy

# Status 1 says that something was found that no registered flaw explains: the page says what.
audit: setup     ## attack every method and write docs/audit.md: PAIRS= RUNS= RESULTS=
	$(PKM) audit all view=replay,residuals,blackbox pairs=$(PAIRS) runs=$(RUNS) results=$(RESULTS); \
		status=$$?; test $$status -le 1 && \
		$(RUN) tools/audit_page.py $(RESULTS)/audit.jsonl docs && exit $$status

# An audit of two pairs takes a second. A false alarm is a finding that no registered flaw explains.
false-alarms: setup ## audit every method with SEEDS= other seeds each, and count false alarms: SEEDS= RESULTS=
	mkdir -p $(RESULTS)
	for seed in $$(seq $(SEEDS)); do \
		$(PKM) audit all pairs=2 seed=$$seed --json || test $$? -eq 1 || exit 2; \
	done > $(RESULTS)/false_alarms.jsonl
	@echo "$$(wc -l < $(RESULTS)/false_alarms.jsonl) audits," \
		"$$(grep -c '"flaw": ""' $(RESULTS)/false_alarms.jsonl) with a false alarm"

# The tests of one file share a process and what it has made.
PYTEST = $(if $(DATA),PKM_DATA=$(abspath $(DATA))) $(VENV)/bin/pytest

test: setup      ## run all tests but the slow ones (on the original data too, if DATA is given); COVERAGE=yes prints coverage
	$(PYTEST) -n 2 -m "not slow" $(if $(COVERAGE),--cov)

# Three processes on two cores: many of these tests wait.
test-slow: $(VENV)/protocol ## run the slow tests: processes that die, MPI, MLflow's database, whole reports, wheels
	$(PYTEST) -n 3 -m slow

golden: setup    ## write the golden records anew; the commit says which change and why
	PYTHONPATH=tests/support $(RUN) tests/golden/record.py

lint: setup      ## check style, types, the direction of imports and density
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m basedpyright --level error
	$(VENV)/bin/lint-imports --no-logo
	$(RUN) tools/density.py --check

format: setup    ## apply style
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

docs: $(VENV)/docs ## build the site of docs/ and print its path (installs MkDocs)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build
	@echo "$(CURDIR)/build/site/index.html (search needs a server: $(RUN) -m http.server -d build/site)"

bench: setup     ## measure speed, as ratios inside one run
	$(if $(DATA),PKM_DATA=$(abspath $(DATA))) $(PKM) bench

dashboard: setup ## open MLflow on the stored results: PORT= RESULTS=
	$(PKM) dashboard --port $(PORT) results=$(RESULTS)

data: setup      ## list the data sets and where they would come from
	$(PKM) data $(if $(DATA),--data $(DATA)) list

embeddings: setup ## train the bundled image embeddings anew, into build/bundled (installs torch, takes some minutes): DATA=
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-embeddings.txt
	$(PKM) data $(if $(DATA),--data $(DATA)) bundle mnist-embeddings fashion-embeddings --out build/bundled

# The protocol's sweeps alone; the report that follows is on all that is stored.
protocol: PAPER = fastlloyd
protocol: $(VENV)/protocol ## run FastLloyd between processes (installs Open MPI) and build the report: PROFILE= RESULTS=
	$(PKM) reproduce $(SETTINGS) 'sweeps=[protocol,parties,wide_area,narrow,baselines]'

diffprivlib: .venv-diffprivlib/ready ## install diffprivlib in an environment of its own, to run its KMeans as a control

lock: setup      ## make the locks requirements*.txt anew from what the .in files name
	$(RUN) -m pip install --quiet --disable-pip-version-check uv
	for name in requirements requirements-protocol requirements-docs requirements-diffprivlib; do \
		$(VENV)/bin/uv pip compile $$name.in --universal --python-version 3.11 --generate-hashes \
			--no-strip-extras --no-emit-index-url --no-emit-find-links --no-header --quiet --output-file $$name.txt || exit 1; \
	done

clean:           ## remove the environment and caches; results stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
