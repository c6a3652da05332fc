# quick, test, docs, bench, fuzz and cover look at the root module; the others at every module.

FUZZTIME ?= 30s
BENCH    ?= .
COUNT    ?= 1
MINCOVER ?= 95

FUZZED  := . ./pool/spill

# The folder of every module in this repository, without that of the tools.
MODULES := $(sort $(patsubst %/,%,$(dir $(shell \
	find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*'))))

# Runs a tool in the version that tools/go.mod names. It is built on first use, and cached.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod

# Empty where the race detector does not work: most systems need a C compiler for it. It watches our
# code, not that of SQLite, which was C: with it these tests take seven times as long.
RACE = $(if $(shell go build -race net 2>&1),,-race $(foreach pkg,modernc.org/sqlite/lib \
	modernc.org/libc modernc.org/memory,-gcflags=$(pkg)=-race=false))

# Each module is checked by its own go.mod, as its users will see it.
export GOWORK := off
# So a clone finds in the build cache what was built in another folder.
export GOFLAGS += -trimpath -vet=off # make lint vets

.PHONY: help quick test test-all modules docs nightly lint fmt bench fuzz cover release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

quick: ## test the package fairq alone, in seconds
	@go test -short -shuffle=on .

# With -short a test does less if it kills processes, tries many seeds, or does what another test does too.
SHORT := -short -shuffle=on -timeout 20m

test: ## test the module fairq but for the inside of stores, with the race detector where it works
	$(if $(RACE),,@echo 'note: testing without -race, which does not work here; is a C compiler installed?')
	@echo 'two minutes on two cores; a package says when it has passed'
	@go test $(RACE) $(SHORT) $$(go list ./... | grep -v /store/internal/)

test-all: ## test every module: the queue, stores, metrics, the command, examples
	@go test $(RACE) $(SHORT) ./...
	@$(MAKE) --no-print-directory modules

# Two at a time, because their tests often wait for a disk or a server; those that take longest first.
# The suite of store/etcd takes many minutes.
modules: ## test the modules beside the root; FLAGS says how
	@$(MAKE) --no-print-directory -j2 $(shell printf '%s\n' $(TESTS) | sort -r) FLAGS='$(FLAGS)'
FLAGS ?= $(SHORT)
TESTS := $(patsubst %,test@%,$(filter-out ./ .,$(MODULES)))
.PHONY: $(TESTS)
$(TESTS):
	@echo "== $(@:test@%=%): go test $(FLAGS)"
	@cd $(@:test@%=%) && go test $(FLAGS) $(SKIP) ./...
test@./store/etcd: SKIP = $(if $(filter -short,$(FLAGS)),-skip='TestStore|Members')

docs: ## compile the programs in the docs, and run those that end
	@go test -run TestDocs .

nightly: ## what is slow: all tests in full and once more for races, coverage, fuzzing, installing as released
	@$(MAKE) --no-print-directory cover
	@$(MAKE) --no-print-directory modules FLAGS='-shuffle=on -timeout 60m'
	@$(MAKE) --no-print-directory modules FLAGS='$(RACE) $(SHORT)'
	@$(MAKE) --no-print-directory fuzz
	@cd tools && go run ./release

# In one workspace what several modules import is read once, if they all require the same version.
# After an upgrade, "go work sync" in such a workspace sees to that.
lint: ## check format, English and code of every module
	@files=$$($(TOOL) gofumpt -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted, run 'make fmt':" $$files >&2; exit 1; fi
	@cd tools && go run ./english ..
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	linter=$$($(TOOL) -n golangci-lint) && (cd "$$tmp" && GOWORK= go work init $(MODULES:%=$(CURDIR)/%)) && \
	GOWORK=$$tmp/go.work $$linter run $(MODULES:%=%/...)

fmt: ## format every file
	@$(TOOL) gofumpt -w .

bench: ## run the benchmarks; BENCH selects by name, COUNT repeats
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 . ./task

# With a FUZZTIME in seconds, Go before 1.27 may end in a bare "context deadline exceeded" that is no failure of the
# target (golang/go#75804). With a number of runs, as in FUZZTIME=100000x, it does not.
# Inputs of interest are made smaller for a second at most; at the default of a minute little else gets done.
fuzz: ## run every fuzz target for FUZZTIME
	@for package in $(FUZZED); do \
		targets=$$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$package/*_test.go); \
		test -n "$$targets" || { echo "error: no fuzz target found in $$package" >&2; exit 1; }; \
		for target in $$targets; do \
			echo "== fuzz $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$package || exit 1; \
		done; \
	done

# Not together with the race detector: counting makes it several times slower. What only helps to
# show or to test something may be covered less; internal/kv is also tested by internal/kv/mvcc.
cover: ## run the root module's tests in full; each package must have MINCOVER percent of its statements covered
	@go test -cover ./... | awk -v min=$(MINCOVER) '{ print } $$1 == "FAIL" { bad = 1 } \
		$$2 !~ /examples|pgtest|rowstest|storetest|internal\/kv/ && match($$0, /coverage: [0-9.]+/) && $$1 == "ok" && \
			substr($$0, RSTART + 10) + 0 < min { bad = 1 } \
		END { if (bad) print "error: a test fails, or covers less than " min " % of the statements"; exit bad }'

release: ## prepare and check a release, all but the push: make release VERSION=v0.1.0 (CONTRIBUTING.md)
	@test -n "$(VERSION)" || { echo 'error: which version? make release VERSION=v0.1.0' >&2; exit 1; }
	@cd tools && go run ./release -version '$(VERSION)'
