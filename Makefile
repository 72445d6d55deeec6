# The project's commands; `make` alone lists them. Each first makes .venv and installs what it needs, once.
#
#   make run ARGS="run epochs --preset full"      what the program (or pytest) is given
#   make test BACKEND=cu112                       MXNet's GPU build, from now on; BACKEND=cpu goes back
#   make test PYTHON=python3.8                    that Python, instead of the newest of 3.8 to 3.13 on the PATH
#   make test PYTHON=python3.8 VENV=.venv-3.8     the same in another folder: .venv stays
BACKEND ?=
PYTHON ?=
VENV ?= .venv
ARGS ?=
# The committed results: one folder for each machine, named after its processor, with one for each version of mxdp.
MACHINE ?= $(shell tools/machine.sh)
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' mxdp/__init__.py)
REFERENCE_ARGS ?= run all profile --preset full --processes 3

python := $(VENV)/bin/python
# Two processes, each of which takes tests from the other at its end; `ARGS="-n 0"` runs all in one.
pytest := $(python) -m pytest -n 2 --dist worksteal
install = @PYTHON="$(PYTHON)" VENV="$(VENV)" tools/install.sh "$(BACKEND)"

.DEFAULT_GOAL := help
.PHONY: help run test golden format lint check mutants torture reference report notebooks site live peers dist clean
# On a CI, pytest would print unequal bytes of a network in full: it takes longer than a test may.
unexport CI BUILD_NUMBER
# Two targets at once would install into one .venv at once.
.NOTPARALLEL:

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.* ## /make \1|/p' Makefile | awk -F'|' '{ printf "  %-16s%s\n", $$1, $$2 }'

# A module that MXDP_EXPERIMENTS names may lie in the folder from which `make -C` was called.
run: export PYTHONPATH := $(if $(PYTHONPATH),$(PYTHONPATH):)$(PWD)
run: ## the main job: a tour of the experiments, with tables, verdicts and a report; ARGS="..." runs others
	$(install)
	$(python) -m mxdp.experiments $(ARGS)

test: ## the tests; ARGS="..." goes to pytest
	$(install) test
	$(pytest) $(ARGS)

golden: ## write anew the texts and numbers that tests compare; read what it changes like code
	$(install) test
	MXDP_GOLDEN=write $(python) -m pytest -n 0 $(addprefix tests/experiments/test_,golden.py formulas.py catalog.py) $(ARGS)

format: ## write all files as `make lint` wants them
	$(install) test dev
	$(python) -m ruff format .
	$(python) -m ruff check --fix .

lint: ## format, lint and types, without the tests
	$(install) test dev
	$(python) -m ruff format --check .
	$(python) -m ruff check .
	$(python) -m mypy
	$(python) -m check_jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

check: lint ## all that must hold before a commit: lint, then the tests with branch coverage
	$(pytest) --cov=mxdp --cov-branch --cov-config=setup.cfg $(ARGS)

mutants: ## how much do the tests notice? change the code at 240 places, one at a time; ARGS="--help" for less
	$(install) test mutants
	$(python) tools/mutants.py $(ARGS)

torture: ## do trainings survive? kill, stop, fill and cut at random moments (5 minutes); ARGS="--faults 200 --seed 7"
	$(install)
	$(python) tools/torture.py $(ARGS)

reference: ## one more run of all experiments for this machine's committed results of this version, and the tables
	$(install)
	$(python) -m mxdp.experiments $(REFERENCE_ARGS) --out experiments/reference/$(MACHINE)/$(VERSION) $(ARGS)
	$(python) tools/tables.py

report: ## make report.html, pictures and timelines from the committed results; MACHINE=... names their folder
	$(install)
	$(python) -m mxdp.experiments report --across-commits \
		$(firstword $(wildcard $(addprefix experiments/reference/,$(MACHINE)/$(VERSION) $(MACHINE)/*.*.* */$(VERSION) */*.*.*))) $(ARGS)

notebooks: ## the lessons as executed notebooks, in notebooks/
	$(install) pages
	$(python) tools/notebooks.py $(ARGS)

site: ## the site, in site/: pages, executed lessons, results, moving plans, API
	$(install) pages
	$(python) tools/site.py $(ARGS)

# Needs npm, and of Python only its standard library: it is for those who can't install MXNet.
live: ## without MXNet: plans, costs and memory, live in a browser, at a port of this machine; needs npm
	$(or $(PYTHON),python3) tools/live.py $(ARGS)

peers: ## mxdp beside what a user would pick instead; adds PyTorch and Horovod, which is built (cmake, a C++ compiler)
	$(install)
	$(python) -m pip install --quiet setuptools wheel torch --extra-index-url https://download.pytorch.org/whl/cpu
	-HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_PYTORCH=1 \
		HOROVOD_WITHOUT_TENSORFLOW=1 $(python) -m pip install --quiet --no-build-isolation horovod==0.28.1
	$(python) -m mxdp.experiments run peers machines $(ARGS)

dist: ## build the source distribution and the wheel in dist/, and try the wheel in an empty environment
	$(install) test dev
	rm -rf build dist
	$(python) -m build --outdir dist .
	PYTHON=$(abspath $(python)) tools/try-dist.sh

clean: ## remove what these targets made, .venv too; results in runs/ and downloaded data stay
	rm -rf .venv .venv-* build dist *.egg-info .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
