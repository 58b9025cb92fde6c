# Every target sets up what it needs by itself. `make help` lists them.
PYTHON ?= python3
ENGINE ?= auto
RECIPE ?= resnet-imagenet/cpu-quickstart
VENV   := .venv
BIN    := $(VENV)/bin
APPS   := $(BIN)/python scripts/app_tests.py
PYTEST := $(BIN)/python -m pytest
TELL   := sh scripts/tell.sh
# Two modules at a time: images and clusters that the tests of one share are made once.
MODULES := -n 2 --dist loadscope

# A stamp is named after the content of its lock file: another lock, another installation.
TOOL_STAMP := $(VENV)/.tool-$(shell sha256sum requirements/tool.lock pyproject.toml | sha256sum | cut -c1-12)
DEV_STAMP  := $(VENV)/.dev-$(shell sha256sum requirements/dev.lock pyproject.toml | sha256sum | cut -c1-12)
SITE_STAMP := $(VENV)/.site-$(shell sha256sum requirements/site.lock pyproject.toml | sha256sum | cut -c1-12)

# Apptainer from `make apptainer` is found without changing the user's PATH.
export PATH := $(PATH):$(or $(TRIMARAN_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trimaran)/apptainer/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup dev site-setup site site-serve site-pictures quickstart gpu-check test test-unit test-robustness test-apps test-apps-quick test-integration test-engines test-trainings test-alone test-site test-long test-faults mutants lint apptainer cluster cluster-stop generate generate-apps lock prune clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  %-18s %s\n' "$$name" "$$text"; done

setup: $(TOOL_STAMP) ## Make .venv with the locked tool; no root needed

dev: $(DEV_STAMP) ## Add the locked test tools to .venv

site-setup: $(SITE_STAMP) ## Add the locked builder of the site to .venv

site: $(SITE_STAMP) ## Build the site into build/site, from definitions and evidence
	$(BIN)/python scripts/build_site.py build

site-serve: $(SITE_STAMP) ## Build the site and show it at http://127.0.0.1:8000/
	$(BIN)/python scripts/build_site.py serve

site-pictures: $(SITE_STAMP) ## Take the screenshots in site/docs/assets/screenshots anew, with Chromium
	$(BIN)/python scripts/screenshots.py

quickstart: $(TOOL_STAMP) ## Train a ResNet on real images and judge it (ENGINE=apptainer|podman|host)
	$(BIN)/trimaran run $(RECIPE) --engine $(ENGINE)

gpu-check: ## Measure the GPU in 8 minutes; needs torch only (PYTHON=python3 CHECK="--device cpu")
	$(PYTHON) benchmarks/gpu_check.py $(CHECK)

test: ## Run all tests; says what each part took
	@sh scripts/parts.sh $(MAKE) lint:1 test-unit:7 test-robustness:1 test-apps:16 test-engines:14 test-trainings:7 test-alone:10 test-site:7

# Many wait for a script that waits for a second to pass: more of them than cores run at a time.
test-unit: $(DEV_STAMP) ## Run the tests of the tool and of shards; needs no engine, a minute or two
	$(PYTEST) tests apps/shards/tests --ignore=tests/integration --ignore=tests/robustness --ignore=tests/site -n 4

test-robustness: $(DEV_STAMP) ## Run the robustness suites: hostile files, names and mistakes, tampering
	$(PYTEST) tests/robustness -n 2

test-apps: $(DEV_STAMP) ## Run the tests of trainkit and the apps, each in its framework's environment
	$(APPS) test
	$(BIN)/python scripts/mutants.py --sample 10

test-apps-quick: $(TOOL_STAMP) ## Run the tests that check computed numbers, one or two minutes: at each change
	$(APPS) test --quick

mutants: $(DEV_STAMP) ## Make the programs wrong, one fault at a time; a test must notice each
	$(APPS) setup
	$(BIN)/python scripts/mutants.py $(if $(EVIDENCE),--json $(EVIDENCE))

test-integration: test-engines test-trainings test-alone ## Run the tests with real engines

test-engines: $(DEV_STAMP) ## Those that train nothing (TRIMARAN_REQUIRE_ENGINES=1: missing = failure)
	$(PYTEST) tests/integration -m "not long and not faults and not trains" $(MODULES) --durations=25

# Their ranks have one thread each, and wait for much of their time: for starts, files and Slurm.
test-trainings: $(DEV_STAMP) ## Those that train, two at a time
	$(APPS) setup
	$(PYTEST) tests/integration -m "trains and not alone and not long and not faults" $(MODULES) --durations=25

test-alone: $(DEV_STAMP) ## Those that train with every core, one at a time
	$(PYTEST) tests/integration -m "alone and not long and not faults" --durations=10

test-site: $(DEV_STAMP) $(SITE_STAMP) ## Build the site and try it in Chromium; run the commands that it shows
	$(PYTEST) tests/site -n 2 --durations=10

test-long: $(DEV_STAMP) ## Run the tests that take minutes each (EVIDENCE=FILE: write what came of them)
	$(BIN)/python scripts/long_tests.py $(if $(EVIDENCE),--json $(EVIDENCE))

test-faults: $(DEV_STAMP) ## Disturb trainings on a real cluster, where it takes minutes (EVIDENCE=FILE, as above)
	$(BIN)/python scripts/long_tests.py --marker faults $(if $(EVIDENCE),--json $(EVIDENCE))

lint: $(DEV_STAMP) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

apptainer: $(DEV_STAMP) ## Install Apptainer without root on a Debian family system that lacks it
	$(BIN)/python scripts/apptainer.py

cluster: $(TOOL_STAMP) ## Start a Slurm cluster of two nodes on this machine, without root
	@$(BIN)/python scripts/cluster.py start

cluster-stop: $(TOOL_STAMP) ## End it
	@$(BIN)/python scripts/cluster.py stop

generate: $(DEV_STAMP) ## Write every generated file anew (image.def, Dockerfile, schema, help)
	$(BIN)/trimaran render --recipes tests/toys
	$(BIN)/trimaran schema
	$(BIN)/python scripts/golden.py
	$(BIN)/python scripts/build_site.py readme
	$(BIN)/python scripts/shown_scripts.py

generate-apps: $(TOOL_STAMP) ## Write options.json, estimates.json and work.json of the apps anew
	$(APPS) options
	$(BIN)/python scripts/estimates.py
	$(BIN)/python scripts/work.py

lock: $(DEV_STAMP) ## Resolve the tool's own packages anew (images: trimaran lock IMAGE)
	$(BIN)/python scripts/lock_tool.py

prune: $(TOOL_STAMP) ## Remove from the cache what this checkout no longer uses, without asking
	$(BIN)/trimaran cache prune --recipes tests/toys --yes

clean: ## Remove the virtual environments (the cache and runs/ stay)
	rm -rf $(VENV) .venv-apps*

# Without a stamp, an installation was cut off: what it left is no use.
$(TOOL_STAMP): requirements/tool.lock
	@ls $(VENV)/.tool-* >/dev/null 2>&1 || $(TELL) "making $(VENV)" $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(VENV)/.tool-*
	@$(TELL) "installing the tool (requirements/tool.lock, verified by hash)" \
	    $(BIN)/python -m pip install -q --require-hashes -r requirements/tool.lock
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_STAMP): requirements/dev.lock $(TOOL_STAMP)
	@rm -f $(VENV)/.tool-* $(VENV)/.dev-*
	@$(TELL) "installing the test tools (requirements/dev.lock, verified by hash)" \
	    $(BIN)/python -m pip install -q --no-compile --require-hashes -r requirements/dev.lock
	@touch $(TOOL_STAMP)
	@touch $@

$(SITE_STAMP): requirements/site.lock $(TOOL_STAMP)
	@rm -f $(VENV)/.tool-* $(VENV)/.site-*
	@$(TELL) "installing the builder of the site (requirements/site.lock, verified by hash)" \
	    $(BIN)/python -m pip install -q --no-compile --require-hashes -r requirements/site.lock
	@touch $(TOOL_STAMP)
	@touch $@
