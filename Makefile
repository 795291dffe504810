# make demo   install what it needs, build, bring a small model, serve it, ask it a question
# make test   install what it needs, build, run every test
# make help   the rest

BUILD ?= build
JOBS ?= $(shell nproc)
MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf
CLEAVE := $(BUILD)/release/cleave

.PHONY: help demo test quick build models soak grid setup setup-test sanitize checks format clean \
        splits-table bench-peers bench-http

help:
	@echo "make demo      install, build, bring a small model, serve it, ask it a question"
	@echo "make test      install, build, run the quick and the full tests"
	@echo "make quick     the quick tests (under 2 minutes once built)"
	@echo "make build     the release binary, $(CLEAVE)"
	@echo "make models    the demo models, into models/"
	@echo "make sanitize  the quick tests under ASan with UBSan, and under TSan"
	@echo "make checks    layers, sizes, headers, format, and clang-tidy over every source"
	@echo "make grid      the same answers over the whole grid of cuts, as processes (about an hour)"
	@echo "make splits-table  measures what each axis costs, into docs/splits.md (about 10 minutes)"
	@echo "make bench-peers  Cleave beside llama.cpp and ik_llama.cpp, which it builds, into docs/performance.md"
	@echo "               (hours, on an idle machine; PEERS_FLAGS=\"--quick --only 'Q4_1 llama.cpp'\" for a part)"
	@echo "make bench-http  how much of the engine's speed arrives through HTTP (about 3 minutes, on an idle machine)"
	@echo "make soak      500 clients for 5 minutes"
	@echo "make format    clang-format over the sources"

setup:
	@tools/setup.sh build
setup-test:
	@tools/setup.sh test

build: setup
	@cmake --preset release -B $(BUILD)/release -DCLEAVE_BUILD_TESTS=OFF
	@ninja -C $(BUILD)/release -j$(JOBS) cleave

models: setup
	@tools/fetch_models.sh smollm2

demo: build models
	@tools/demo.sh $(CLEAVE) $(MODEL)

test: setup-test
	@tools/test.sh all $(JOBS)
quick: setup-test
	@tools/test.sh quick $(JOBS)
sanitize: setup-test
	@tools/test.sh sanitize $(JOBS)
checks: setup-test
	@tools/test.sh checks $(JOBS)
grid: setup-test models
	@tools/test.sh grid $(JOBS)
soak: setup-test
	@tools/test.sh soak $(JOBS)

# Wants an idle machine. The tiny mixture of experts is made by a test's script, with Debian's numpy.
splits-table: build models
	@tools/setup.sh test
	@/usr/bin/python3 tools/oracle/make_tiny_checkpoints.py $(BUILD)/tiny mixtral_q8
	@python3 tools/bench/splits_table.py $(CLEAVE) $(MODEL) $(BUILD)/tiny/mixtral_q8 --write docs/splits.md

# Wants an idle machine. PEERS_FLAGS: tools/bench/peers/bench_peers.py --help lists them.
PEERS_FLAGS ?= --write docs/performance.md
bench-peers: build
	@tools/setup.sh test
	@tools/fetch_models.sh formats
	@python3 tools/bench/peers/bench_peers.py $(CLEAVE) $(PEERS_FLAGS)

bench-http: build models
	@python3 tools/bench/http_share.py $(CLEAVE) $(MODEL)

format:
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	rm -rf $(BUILD)
