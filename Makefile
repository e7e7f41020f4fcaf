# Thin on purpose: CMakePresets.json configures, scripts/ do the work; here is only what depends on what.
#   make run PROMPT="..." MODEL=name-or-path ARGS="--temp 0"
.DEFAULT_GOAL := help
.PHONY: help run build install deb test test-all check format asan tsan fuzz soak coverage clean

PROMPT ?= Why is the sky blue? Answer in two sentences.
MODEL ?= smollm2-135m-instruct
ARGS ?=
PREFIX ?= /usr/local
# Taken as they are ($ and quotes included) and handed to the shell as environment variables.
override PROMPT := $(value PROMPT)
override MODEL := $(value MODEL)
export PROMPT MODEL

help:
	@echo 'make run      answer PROMPT with MODEL (a name of models/catalogue.json, or a path); ARGS go to culet'
	@echo 'make build    build/release/culet'
	@echo 'make install  program, manual page, completions and C++ library below PREFIX (/usr/local); DESTDIR goes in front'
	@echo 'make deb      build/deb/culet_VERSION_ARCHITECTURE.deb, checked with lintian'
	@echo 'make test     set up, fetch the test models and vectors, run every test'
	@echo 'make test-all the same, and tests under sanitizers, those of threads under ThreadSanitizer, ARM kernels in'
	@echo '              an emulator; what passed and has not changed since is left out (ALL=1: with it)'
	@echo 'make check    formatting, includes, spelling, clang-tidy (before a commit)'
	@echo 'make format   format the sources in place'
	@echo 'make asan     unit tests under AddressSanitizer and UndefinedBehaviorSanitizer (make tsan: threads)'
	@echo 'make fuzz     build the libFuzzer programs'
	@echo 'make soak     PROGRAMS (10000) random programs over sessions, against the same tokens in fresh sessions'
	@echo 'make coverage which lines of src/ the unit tests and fuzz corpora run'
	@echo 'make clean    remove build/'

# What is installed is looked at again only when the list changes.
build/setup.%: scripts/setup scripts/packages.txt
	@scripts/setup $*
	@mkdir -p build && touch $@

build/release/build.ninja: build/setup.build
$(patsubst %,build/%/build.ninja,test asan tsan threads): build/setup.test
build/aarch64/build.ninja: build/setup.arm
$(patsubst %,build/%/build.ninja,dev fuzz clang coverage): build/setup.develop

# Configured once; after that Ninja notices a changed CMakeLists.txt by itself. Standard output is the answer's.
build/%/build.ninja: CMakePresets.json
	@cmake --preset $* --log-level=NOTICE >/dev/null
	@touch $@

build: build/release/build.ninja
	@$(build_culet)

install: build/release/build.ninja
	@cmake --build --preset release
	@DESTDIR='$(DESTDIR)' cmake --install build/release --prefix '$(PREFIX)' --strip

deb: build/release/build.ninja build/setup.develop
	@cmake --build --preset release
	@rm -rf build/deb
	@cd build/release && cpack -G DEB -B "$(CURDIR)/build/deb"
	@lintian --allow-root --fail-on error,warning build/deb/*.deb
	@dpkg-deb -x build/deb/*.deb build/deb/unpacked && build/deb/unpacked/usr/bin/culet --version
	@echo build/deb/*.deb

# Rebuilding is silent, unless it fails, when the program is there already: the answer is what one wants to see.
build_culet := cmake --build --preset release --target culet
run: build/release/build.ninja
	@if [ -x build/release/culet ]; then said=$$($(build_culet) 2>&1) || { echo "$$said" >&2; exit 1; }; \
	else $(build_culet) >&2; fi
	@model=$$(scripts/fetch_model "$$MODEL") && exec build/release/culet run "$$model" "$$PROMPT" $(ARGS)

test: build/test/build.ninja
	@scripts/test --all test

# CHECKS=yes: also the formatting, spelling and clang-tidy of what changed lately.
all_builds := test asan threads aarch64
ALL ?=
CHECKS ?=
test-all: $(all_builds:%=build/%/build.ninja) $(if $(CHECKS),build/setup.develop build/dev/build.ninja)
	@scripts/test $(if $(ALL),--all) $(all_builds) $(if $(CHECKS),checks)

asan tsan: %: build/%/build.ninja
	@cmake --build --preset $@
	@ctest --preset $@

fuzz: build/fuzz/build.ninja
	@cmake --build --preset fuzz
	@echo 'Run one: build/fuzz/fuzz/gguf_fuzz build/fuzz/found fuzz/corpus/gguf  (first: mkdir -p build/fuzz/found)'

PROGRAMS ?= 10000
soak: build/test/build.ninja
	@cmake --build --preset test --target memory_test
	@CULET_PROGRAMS=$(PROGRAMS) build/test/tests/memory_test --gtest_filter='*RandomPrograms*'

coverage: build/coverage/build.ninja
	@cmake --build --preset coverage
	@scripts/coverage build/coverage

check: build/setup.develop build/test/build.ninja build/dev/build.ninja
	@scripts/check build/test

format: build/setup.develop
	@scripts/format

clean:
	rm -rf build
