# Every target first updates .venv with setup_environment.sh, and then uses it. `make` without a target lists all targets.
#   make test ARGS="-k throughput"      the tests with that word in their name
#   make tour ARGS="--track chainer"    ARGS are options for pytest, JupyterLab, the tour or the benchmark
#   make PYTHON=python3.12 test         use another Python (3.11 to 3.13)
#   make SYSTEM_TORCH=1 tour            on a GPU image: use the torch that it has
#   make LANGUAGE=ja lab                in another language, which has a folder in locale/

SHELL := bash
export PYTHON SYSTEM_TORCH
unexport PYTHONPATH PYTHONHOME

# The environment's commands come first on PATH, so that its mpiexec and qsub are used.
IN_VENV := VIRTUAL_ENV="$(CURDIR)/.venv" PATH="$(CURDIR)/.venv/bin:$$PATH"
CHECKOV := build/checkov-3.3.30/bin/checkov
LAB_PAGE := /lab/tree/$(firstword $(wildcard notebooks/00_start.ipynb) $(wildcard notebooks))

.PHONY: help environment frameworks checkov tour test test-all test-torches test-gpu test-frameworks test-containers lab bench lint catalogues book book-runs slides

help:
	@echo "make lab               start JupyterLab at the first notebook"
	@echo "make tour              run the training jobs, draw their throughput, then grade a class of known answers"
	@echo "make environment       only create or update .venv, which the other targets also do"
	@echo "make frameworks        create a second environment, with TensorFlow, Lightning, Accelerate and JAX, for the unit 07_frameworks"
	@echo "make test              run the tests that everybody runs: all quick tests, and one real run of every feature"
	@echo "make test-all          run all tests, including those of the unit 07_frameworks"
	@echo "make test-frameworks   run only the tests of the unit 07_frameworks, which need the second environment"
	@echo "make test-torches      run the quick tests and the tour with the oldest and the newest torch (part of make test-all)"
	@echo "make test-gpu          run the tests that need a GPU: every script, one against two ranks, memory, profiles, grading"
	@echo "make test-containers   build the image for Kubernetes, and test it: needs buildah, podman and about 10 minutes"
	@echo "make book              build the course as a web site in build/book; SOLUTIONS=1: with the answers, for instructors"
	@echo "make slides            make a deck of slides for each notebook, with notes for the speaker, in build/book"
	@echo "make book-runs         run the notebooks whose outputs in the book are out of date: minutes for each"
	@echo "make lint              check formatting and code with ruff"
	@echo "make catalogues        bring the catalogues of translations up to date, and count what is translated"
	@echo "make bench             measure training and grading against the limits of this machine"
	@echo "make checkov           install a security linter in build/, with which make test-all checks the Kubernetes manifests"

environment:
	@bash setup_environment.sh

tour: environment
	@$(IN_VENV) python -m handson tour $(ARGS)
	@$(IN_VENV) python -m grader tour

frameworks: environment
	@bash setup_frameworks.sh

test: environment
	@$(IN_VENV) python -m pytest -n auto -m "not thorough" $(ARGS)

test-all: environment frameworks checkov
	@$(IN_VENV) python -m pytest -n auto $(ARGS)
	@$(IN_VENV) python -m pytest -n 2 --frameworks $(OF_FRAMEWORKS) $(ARGS)
	@$(MAKE) test-gpu SIMULATED=1
	@$(MAKE) test-gpu SIMULATED=2
	@$(MAKE) test-torches

# takes 20 minutes, and downloads several GB at the first time
test-torches: environment
	@bash tests/other_torch.sh oldest
	@bash tests/other_torch.sh newest

# For a machine with GPUs: docs/gpus.md. SIMULATED=2: with two simulated GPUs, elsewhere, in three minutes
ON_GPUS := python -m pytest -m gpu -rs tests/gpu
SIMULATION = SIMULATED_GPUS=$(SIMULATED) PYTHONPATH="$(CURDIR)/tests/simulated_gpus"
test-gpu: environment
ifdef SIMULATED
	@$(IN_VENV) python tests/simulated_gpus/build.py
	@$(IN_VENV) $(SIMULATION) $(ON_GPUS) -n auto $(ARGS)
else
	@$(IN_VENV) $(ON_GPUS) -n 4 $(ARGS)
endif

# Only these files have such tests; collecting all others would take half a minute.
OF_FRAMEWORKS := tests/frameworks tests/grader/test_known_answers.py tests/grader/test_conceded.py
test-frameworks: frameworks
	@$(IN_VENV) python -m pytest -n 2 --frameworks $(OF_FRAMEWORKS) $(ARGS)

lint: environment
	@$(IN_VENV) ruff format --check .
	@$(IN_VENV) ruff check .

# BUILD takes options for buildah, such as another base: docs/kubernetes.md
test-containers: environment checkov
	@timeout 3600 buildah bud --isolation chroot --network host --tag localhost/handson:1 --file containers/Containerfile $(BUILD) .
	@$(IN_VENV) HANDSON_IMAGE=localhost/handson:1 timeout 3600 \
	    python -m pytest tests/kubernetes/test_image.py tests/kubernetes/test_manifests.py $(ARGS)

# A linter for security, in a separate environment, because its pins conflict with the course's. Tests use it if it is installed.
checkov: $(CHECKOV)
$(CHECKOV): | environment
	@.venv/bin/python -m venv $(dir $(CHECKOV)).. && timeout 900 $(dir $(CHECKOV))pip install --quiet checkov==3.3.30

# The book, in an environment of its own, which sees the packages of .venv: students do without Sphinx. docs/developing.md
BOOK_PYTHON := .venv-book/bin/python
BOOK_LANGUAGE := $(if $(findstring command line,$(origin LANGUAGE)),$(LANGUAGE),en)
BOOK := build/book/$(BOOK_LANGUAGE)$(if $(SOLUTIONS),-solutions)
book: .venv-book/handson-stamp
ifneq ($(BOOK_LANGUAGE),en)
	@$(BOOK_PYTHON) -m pip install --quiet -r locale/$(BOOK_LANGUAGE)/requirements.txt || echo "The labels of figures stay English."
endif
	@$(BOOK_PYTHON) -m book.sources $(BOOK)/source --language $(BOOK_LANGUAGE) $(if $(SOLUTIONS),--solutions)
	@$(BOOK_PYTHON) -m sphinx -c book -D language=$(BOOK_LANGUAGE) -W --keep-going -q -j auto $(BOOK)/source $(BOOK)/html
	@echo "The book is $(BOOK)/html/index.html."

.venv-book/handson-stamp: book.txt requirements.txt | environment
	@rm -rf .venv-book && .venv/bin/python -m venv --without-pip .venv-book
	@.venv/bin/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	    >"$$($(BOOK_PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/course.pth"
	@timeout 900 $(BOOK_PYTHON) -m pip install --quiet -r book.txt -c requirements.txt -c build-constraints.txt
	@touch $@

slides: .venv-book/handson-stamp
	@$(BOOK_PYTHON) -m book.slides build/book/$(BOOK_LANGUAGE)/slides --language $(BOOK_LANGUAGE)

book-runs: environment
	@$(IN_VENV) python -m book.execute $(ARGS)

bench: environment
	@$(IN_VENV) python -m tests.bench $(ARGS)

catalogues: environment
	@$(IN_VENV) python -m grader catalogues $(ARGS)

# In another language, exercises and notebooks are in build/LANGUAGE. The variable LANGUAGE of a shell means something else.
ROOM := $(CURDIR)
ifeq ($(origin LANGUAGE),command line)
ROOM := $(CURDIR)/build/$(LANGUAGE)
SPEAK := HANDSON_LANGUAGE=$(LANGUAGE)
in_language: environment
	@$(IN_VENV) python -m grader release --language $(LANGUAGE) --course build/$(LANGUAGE)
	@$(IN_VENV) python -m pip install --quiet -r locale/$(LANGUAGE)/requirements.txt || echo "The labels of figures stay English."
else
in_language: environment
endif
.PHONY: in_language

# JupyterLab refuses to run as root, the only user in many containers, without --allow-root.
lab: in_language
	@$(IN_VENV) $(SPEAK) jupyter lab --ServerApp.root_dir="$(ROOM)" --LabApp.default_url="$(LAB_PAGE)" \
	    $$([ "$$(id -u)" != 0 ] || echo --allow-root) $(ARGS)
