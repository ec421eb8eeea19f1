# make demo   Outrider on a private Slurm, on this machine   make test   lint and every test
# make demo-embedded   the same service without Slurm, and without root
# make demo-sim   the simulator's flagship comparison
# make bench  speed, as ratios to a baseline in one run   make lint   ruff, mypy --strict, import-linter
# make cachemgr.pyz   the node side as one file            make man    manual pages, from the parsers
# make docs   the documentation as a site, in build/site: a link or an anchor that leads nowhere fails
# make packages   packages for Debian and RHEL 9, and the archive of the release, in build/packages
# make outrider-client   the Python client as a wheel, in build
# make integrations   Snakemake, Parsl, Dask-jobqueue and submitit from the index, which tests submit with
# make spank  the option --workspace= for the installed Slurm
# make test-long   every test in its long form, for an hour and more
# make test-versions   what concerns Slurm, on 22.05, 24.11 and 26.05 (as root; makes two chroots), walks through
#   the installation pages, and the upgrade from BEFORE: a wheel or a revision, the last tag if there is one

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Demos show what a wheel of these sources installs, and not the sources.
DEMO   := $(VENV)/demo

# What runs the node side on a node, and whose bytecode goes into it for a faster start.
NODE_PYTHON ?= /usr/bin/python3
BYTECODE_OF ?=

# How many files of tests run at a time: six of them wait for daemons, and two compute meanwhile.
AT_ONCE ?= 8

# The version from which an upgrade is tried.
BEFORE ?= $(shell git describe --tags --abbrev=0 2>/dev/null)

# Tests, demos and benchmarks start hundreds of processes: they find bytecode, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo demo-embedded demo-sim test prepared linted tried test-long test-versions lint bench docs packages tools clean \
        man spank with-axe with-integrations with-accounting cachemgr.pyz outrider-client integrations

# As root it installs Slurm from Debian if there is none; without one it shows demo-embedded instead.
demo: $(READY)
	@$(BIN)/python -m testbed.wheel $(DEMO) && PYTHONSAFEPATH=1 $(DEMO)/bin/python -m testbed.demo

demo-embedded: $(READY)
	@$(BIN)/python -m testbed.wheel $(DEMO) && $(DEMO)/bin/outrider demo

demo-sim: $(READY)
	$(BIN)/outrider sim demo

# Many tests wait for real daemons: some files at a time, each file by itself, and mypy beside them. What failed is
# run once more alone, since a daemon can be late on a busy machine: what fails twice fails, and both results are
# printed. Tests that run make are no part of this one. With OUTRIDER_TEST_REPEATS=1, as CI does it, what has a
# cheaper like, too.
PYTEST = env -u MAKEFLAGS -u MAKELEVEL $(BIN)/python -m pytest
AGAIN  = $(PYTEST) --last-failed --last-failed-no-failures none --maxfail 10
test:
	$(MAKE) --no-print-directory --jobs 4 prepared
	$(MAKE) --no-print-directory --jobs 2 linted tried

# Tests wait now and then, and mypy takes what they leave: a quarter beside whatever else is busy.
linted: $(READY)
	@nice -n 5 $(MAKE) --no-print-directory lint

# What cannot be had without a network is not tried.
prepared: $(READY) tools with-accounting with-axe $(if $(OUTRIDER_TEST_REPEATS),with-integrations)

# What finds out whether the page can be used without seeing it, or without a pointer.
AXE := build/axe/node_modules/axe-core/axe.min.js
with-axe:
	@test -e $(AXE) || npm install --silent --no-audit --no-fund --prefix build/axe axe-core@4.14.1 >/dev/null 2>&1 \
	  || echo "whether the page is for everybody is not tried: axe-core cannot be had from npm"

with-integrations:
	@$(MAKE) --no-print-directory $(INTEGRATIONS)/.ready || echo "tools that users submit with are not tried"

with-accounting: tools
	@$(MAKE) --no-print-directory build/accounting/.ready || echo "Slurm's accounting is not tried"

tried: $(READY)
	@$(BIN)/python -m compileall -q outrider outrider_client cachemgr testbed bench tools plugins
	$(PYTEST) --forks $(AT_ONCE) || $(AGAIN)

# The short siblings are in `make test`.
test-long: export OUTRIDER_TEST_LONG = 1
test-long: $(READY) tools
	$(PYTEST) --forks 2 || $(AGAIN)

test-versions: $(READY) tools
	for version in 22.05 24.11 26.05; do \
	  OUTRIDER_TEST_VERSIONS=1 OUTRIDER_SLURM_VERSION=$$version $(BIN)/python -m pytest \
	    --forks 2 tests/daemons/slurm/service || exit 1; \
	done
	OUTRIDER_TEST_VERSIONS=1 $(BIN)/python -m pytest tests/daemons/slurm/filter tests/daemons/slurm/adapter \
	  tests/daemons/gridengine/adapter tests/daemons/testbed tests/daemons/systemd tests/unit/plugins/slurm tests/unit/rms tests/contract
	@$(if $(BEFORE),echo "an upgrade from $(BEFORE) is tried",echo "no upgrade is tried: no tag, and BEFORE names no wheel and no revision")
	OUTRIDER_TEST_VERSIONS=1 OUTRIDER_TEST_BEFORE=$(BEFORE) $(BIN)/python -m pytest tests/daemons/walks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin -t=3.9- --no-tips --quiet cachemgr outrider_client plugins/pyxis

bench: $(READY)
	$(BIN)/python bench/run.py

cachemgr.pyz:
	$(PYTHON) tools/pyz.py $@ --interpreter '$(NODE_PYTHON) -IS' $(if $(BYTECODE_OF),--bytecode-of $(BYTECODE_OF))

# Tools that users submit with, for tests of what they submit: in an environment of their own, made once. Users
# cannot write there, and each of their programs would compile what it imports: the half of its time.
INTEGRATIONS := build/integrations
OF_TOOLS := dask_jobqueue, distributed.cli.dask_scheduler, distributed.cli.dask_worker, parsl.executors, \
            parsl.executors.high_throughput.interchange, parsl.executors.high_throughput.process_worker_pool, \
            snakemake.cli, submitit
integrations: $(INTEGRATIONS)/.ready build/accounting/.ready

build/accounting/.ready: tools/accounting.sh
	tools/accounting.sh build/accounting

$(INTEGRATIONS)/.ready: tests/daemons/integrations/requirements.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r $<
	$(INTEGRATIONS)/bin/python -c 'import $(OF_TOOLS)'
	touch $@

outrider-client:
	$(PYTHON) -m pip wheel --no-deps --wheel-dir build outrider_client

spank: plugins/slurm/spank_outrider.so

plugins/slurm/spank_outrider.so: plugins/slurm/spank_outrider.c
	$(CC) -shared -fPIC -O2 -Wall -Wextra -o $@ $<

man: $(READY)
	$(BIN)/python -m tools.manpage
	$(BIN)/python -m tools.usermanpage
	$(BIN)/python -m tools.packages.servicemanpage
	$(BIN)/python -m tools.packages.filemanpages

# Debian packages, RPMs and the archive of the release, in build/packages.
OF_PACKAGES := gcc libc6-dev libslurm-dev rpm
packages: $(READY) man
	@dpkg -s $(OF_PACKAGES) >/dev/null 2>&1 || tools/install.sh $(OF_PACKAGES) || true
	$(BIN)/python -m tools.packages

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html; to search it: python3 -m http.server --directory build/site"

# Compiling all that is installed takes longer than tests do over what they import of it. But hosts of a testbed
# write to memory, and would compile what the service and the installer import each time.
OF_SERVICE := outrider.service.daemon.life, outrider.service.daemon.world.backends, psycopg, pydantic.v1, \
              uvicorn.protocols.http.h11_impl, fabric

# Found by a path and not by a program, which would take every start of Python a tenth of the time of `outrider`.
BY_PATH := --config-settings editable_mode=compat
$(READY): setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outrider needs Python 3.11 or later: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(BY_PATH) --editable '.[sim,test]'
	$(BIN)/python -c 'import $(OF_SERVICE)'
	touch $@

# What tests compare with or try: an independent network simulator, file systems,
# readers of images, servers, registries, shells, batch systems (tools/install.sh says how they are kept from
# starting). Only root can install it; without it those tests are skipped, except in CI, where they fail.
TOOLS := acl aria2 btrfs-progs buildah chromium chromium-driver containerd cpio crun curl debootstrap docker-registry e2fsprogs fdisk fish gcc genisoimage gridengine-client \
         gridengine-drmaa1.0 gridengine-exec gridengine-master groff-base iproute2 libapache2-mod-passenger \
         libc6-dev libslurm-dev lua5.4 lz4 munge openssh-client openssh-server openssl parallel podman postgresql prometheus python3-simgrid \
         qemu-system-x86 qemu-utils rsync skopeo slurm-client slurm-wlm-basic-plugins slurmctld slurmd squashfs-tools sshfs systemd util-linux xfsprogs \
         xorriso zsh

tools:
	@dpkg -s $(TOOLS) >/dev/null 2>&1 || tools/install.sh $(TOOLS) \
	  || echo "some of these are not installed, what needs them will be skipped: $(TOOLS)"

clean:
	rm -rf $(VENV) cachemgr.pyz plugins/slurm/*.so build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
