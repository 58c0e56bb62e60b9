# `make train` and `make test` need nothing but make and Python 3.10 or newer; what else they need goes into .venv;
# `make test-colab` makes a second environment, .venv-colab, with the versions that Colab has.
# Written for GNU make 3.81 (macOS) and later.

PYTHON     ?= python3
TRAIN_ARGS ?= train connect4 --minutes 11 --folder runs/connect4 --ladder
WARM_ARGS  := train tictactoe --preset tiny --device cpu --iterations 1 --games 8 --games-per-iter 8 --simulations 4 \
              --evaluate-every 0 --ladder --ladder-games 2 --folder .venv/warm
FLAGS      ?= slow
WORKERS    ?= 3
BENCH      ?= bench_device.json

VENV    := .venv
BIN     := $(VENV)/bin
COLAB   := .venv-colab
PIP     := bin/python -m pip install --disable-pip-version-check --no-compile -q
MODULES := $(wildcard alphazero_nb/*.py alphazero_nb/*/*.py)

.PHONY: help train test test-colab test-wheel soak bench-gpu sync modules site site-check release clean

help:
	@echo "make train        train a Connect Four agent here, in about a quarter of an hour, and measure it"
	@echo "make test         check and test everything"
	@echo "make test-colab   run every notebook with the versions that Colab has; PAGES=\"nbs/05_core.events.ipynb\" runs some"
	@echo "make test-wheel   build the wheel, install it into an empty environment and use it there"
	@echo "make soak         the slow tests; FLAGS=\"slow cuda\" or \"slow mps\" adds those for a GPU"
	@echo "make bench-gpu    measure this machine's GPU (or CPU) in about ten minutes; BENCH=FILE names the result"
	@echo "make sync         bring modules, clean notebooks, addresses and README.md up to date"
	@echo "make modules      compile the games of the package for pages again, those that changed; a minute or two for all"
	@echo "make site         build the documentation site in build/site, with boards to play on"
	@echo "make site-check   look at build/site in Chromium, without network"
	@echo "make release      build the wheel and the source archive in dist, and use them in an empty environment"
	@echo "make clean        remove caches and build leftovers; the environments and runs stay"
	@echo "PYTHON=python3.12 chooses the Python for .venv, TRAIN_ARGS=\"...\" what make train runs."

# Pages and tests run side by side, so each computes with one thread of PyTorch. Threads that wait for each other should
# sleep and not spin, or two pages on two cores take twenty times as long as one.
test test-colab soak: export OMP_WAIT_POLICY = PASSIVE
test test-colab soak: export OMP_NUM_THREADS = 1

# pip leaves compiling to the first import, which needs a tenth of the files; so the bytecode must be kept.
unexport PYTHONDONTWRITEBYTECODE

train: $(VENV)/installed
	$(BIN)/alphazero-nb $(TRAIN_ARGS)

test: $(VENV)/installed-dev
	$(BIN)/python tools/sync.py --check
	$(BIN)/alphazero-nb $(WARM_ARGS) >/dev/null   # Compiles once what every process would compile beside the others
	rm -rf build/nbs && mkdir -p build && cp -R nbs build/nbs
	$(BIN)/nbdev-test build/nbs --save --n-workers $(WORKERS) --cell-timeout 1800 --timing
	$(BIN)/python tools/outputs.py build/nbs   # What the pages keep is what a fresh run shows
	$(BIN)/nbdev-test colab --skip-file-glob quickstart.ipynb --n-workers $(WORKERS) --cell-timeout 1800 --timing
	$(BIN)/python tools/colab.py colab/quickstart.ipynb --cell-timeout 1800   # Its form is filled in by a test
	$(BIN)/python tools/skipped.py
	$(BIN)/python -m pytest -q -rs -n $(WORKERS) --dist worksteal

test-colab: $(COLAB)/package
	$(COLAB)/bin/python tools/colab.py $(PAGES) --workers $(WORKERS)

# The wheel alone, outside of the checkout: what it forgot to pack or to require is missing here.
test-wheel:
	rm -rf build dist
	$(PYTHON) -m venv dist/env
	dist/env/$(PIP) -c constraints.txt torch
	dist/env/bin/python -m pip wheel --disable-pip-version-check -q --no-deps -w dist .
	dist/env/$(PIP) -c constraints.txt dist/*.whl
	cd dist && PYTHONPATH= env/bin/alphazero-nb train tictactoe --preset tiny --simulations 8 --games 16 --iterations 2 --device cpu --folder run
	cd dist && PYTHONPATH= env/bin/python -c "import alphazero_nb as az; az.get_game('connect4').check(); print(az.Agent.load('run', device='cpu'))"
	rm -rf build dist *.egg-info

soak: $(VENV)/installed-dev
	$(BIN)/nbdev-test nbs --flags "$(FLAGS)" --n-workers 0 --cell-timeout 7200 --timing
	$(BIN)/nbdev-test colab --flags "$(FLAGS)" --n-workers 0 --cell-timeout 7200 --timing
	$(BIN)/python -m pytest -q -rs -m slow -n $(WORKERS) --dist worksteal

bench-gpu: $(VENV)/installed
	$(BIN)/alphazero-nb bench device connect4 --json > $(BENCH)

sync: $(VENV)/installed-dev
	$(BIN)/python tools/sync.py

modules: $(VENV)/installed-dev
	$(BIN)/python tools/build_modules.py

# The first build exports a board for each shipped agent, which takes a minute or more; later ones take them from build/site-boards.
site: $(VENV)/installed-docs
	$(BIN)/python tools/make_site.py

site-check: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q -rs -m slow tests/repository/test_site.py

# Two archives for a person to upload. Each is installed into an empty environment and used there, far from the checkout.
release: export PYTHONPATH =
release:
	rm -rf build/release dist
	$(PYTHON) -m venv build/release/tools
	build/release/tools/$(PIP) build twine
	build/release/tools/bin/python -m build --outdir dist . >build/release/log
	build/release/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/release/env
	build/release/env/$(PIP) -c constraints.txt torch
	build/release/env/$(PIP) -c constraints.txt dist/*.whl
	cd build/release && env/bin/python $(TRY_RELEASE)
	build/release/env/$(PIP) --force-reinstall --no-deps dist/*.tar.gz
	cd build/release && env/bin/python $(TRY_RELEASE)
	cd build/release && env/bin/alphazero-nb page pretrained:tictactoe --out tictactoe.html
	rm -rf build/release build/lib build/bdist.* *.egg-info
	@ls -l dist

TRY_RELEASE := -c "import alphazero_nb as az; az.get_game('connect4').check(); print(az.__version__, az.__file__, *az.list_pretrained())"

clean:
	rm -rf build dist *.egg-info .pytest_cache _docs _proc tests/artefacts
	find alphazero_nb tests tools nbs colab -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	find nbs colab -name .ipynb_checkpoints -prune -exec rm -rf {} + 2>/dev/null || true

# PyTorch first and alone, at the version of constraints.txt, so that nothing else chooses a build of it.
$(VENV)/torch $(COLAB)/torch: constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) here: install Python 3.10 or newer, or name one with 'make PYTHON=...'."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is older than Python 3.10: name a newer one with 'make PYTHON=...'."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments: install its venv package (Debian, Ubuntu: 'sudo apt install python3-venv')."; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/$(PIP) -c constraints.txt torch
	@touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml
	$(VENV)/$(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/torch pyproject.toml
	$(VENV)/$(PIP) -c constraints.txt -e '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/torch pyproject.toml
	$(VENV)/$(PIP) -c constraints.txt -e '.[docs]'
	@touch $(VENV)/installed $@

# Colab installs the package and not the source, and so does this: again when a module changed.
$(COLAB)/installed: $(COLAB)/torch constraints-colab.txt pyproject.toml
	$(COLAB)/$(PIP) -c constraints.txt -c constraints-colab.txt . ipykernel ipython nbclient
	@touch $@

$(COLAB)/package: $(COLAB)/installed $(MODULES)
	rm -rf build
	$(COLAB)/$(PIP) --force-reinstall --no-deps .
	@rm -rf build
	@touch $@
