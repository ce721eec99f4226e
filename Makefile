# make run    the main job on the default input (this machine's own telemetry)
# make test   every test
# make help   the rest
SHELL := /bin/bash
GO    ?= go
BIN   := bin

# Packages with goroutines: what the race detector looks at.
RACE := ./commit/commithttp ./deepstore/... ./internal/... ./meta/... ./metalog/... ./peerdl/... ./segment/... ./stream/... ./zkmeta/...

.PHONY: help run build image s3gateway test race chaos scale snapshot-scale sim mutants vet fmt bench fuzz clean deps

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

build: ## the three binaries, into bin/
	$(GO) build -o $(BIN)/shoal ./cmd/shoal
	$(GO) build -o $(BIN)/shoal-controller ./cmd/controller
	$(GO) build -o $(BIN)/shoal-node ./cmd/node

image: export CGO_ENABLED := 0
image: build ## the container image of docker-compose.yml, from static binaries
	docker build -t shoal -f deploy/Dockerfile .

run: build ## a local cluster on this machine's telemetry; Ctrl-C stops it, the next run goes on
	$(BIN)/shoal up

test: deps vet ## every test, the independent reader's (DuckDB) included
	$(GO) test -timeout 30m ./...
	cd internal/duckdbtest && $(GO) test -timeout 30m ./...

race: deps ## the race detector on the packages with goroutines
	$(GO) test -timeout 30m -race -short $(RACE)

chaos: deps ## FAULTS (300) faults against controllers, nodes and ZooKeeper on real processes, drawn from SEED
	SHOAL_FAULTS=$${FAULTS:-300} SHOAL_SEED=$$SEED $(GO) test -count 1 -v -timeout 6h -run '^TestFaultsLoseNothing$$' ./internal/e2e

scale: ## 50,000 segments, 2,000 tables and a table of 10,000 partitions in ZooKeeper: limits, crashes, start and fail-over times
	SHOAL_SCALE=1 $(GO) test -count 1 -v -timeout 1h -run '^TestScale$$' ./internal/e2e

snapshot-scale: ## snapshots of SEGMENTS (1000000) segments: size, time, appends meanwhile, cold start over HTTP against ZooKeeper, restart
	SHOAL_SEGMENTS=$${SEGMENTS:-1000000} $(GO) test -count 1 -v -timeout 2h -run '^TestSnapshotScale$$' ./internal/e2e

sim: ## the simulator on SEEDS (1000) seeds from FIRST (1) on, and what they exercised
	$(GO) run ./internal/sim/simulate -first $${FIRST:-1} -seeds $${SEEDS:-1000}

mutants: ## the bugs planted to prove the simulator's checks, each caught or not
	$(GO) run ./internal/sim/mutants

s3gateway: ## an S3 server on loopback for a local cluster, into bin/ (a module of its own)
	cd internal/s3gateway && $(GO) build -o ../../$(BIN)/s3gateway .

vet: ## go vet and gofmt
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt would change: $$files" >&2; exit 1; }
	$(GO) vet ./...
	cd internal/s3gateway && $(GO) vet ./...
	cd internal/s3bench && $(GO) vet ./...

fmt: ## gofmt -w
	gofmt -w .

bench: build ## Go benchmarks, and the table of docs/benchmarks.md
	./internal/bench/run.sh

fuzz: ## every fuzz target for FUZZTIME (10s) each
	@for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do d=$$(dirname $$f); \
	  for t in $$(grep -oE '^func Fuzz[A-Za-z0-9_]+' $$f | sed 's/func //'); do \
	    echo "== $$d $$t"; $(GO) test $$d -run '^$$' -fuzz "^$$t\$$" -fuzztime $${FUZZTIME:-10s} || exit 1; done; done

# The tests want a C and C++ compiler, for the race detector and for DuckDB, and
# the real ZooKeeper: without that one its tests are skipped.
deps:
	@if command -v cc >/dev/null && command -v c++ >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'installing a C and C++ compiler (Debian: gcc, g++)'; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc g++ libc6-dev >/dev/null; \
	else echo 'make test needs a C and a C++ compiler: install gcc and g++ (Debian: apt-get install gcc g++)' >&2; exit 1; fi
	@if command -v java >/dev/null && test -e /usr/share/java/zookeeper.jar; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'installing ZooKeeper and Java (Debian: zookeeper)'; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zookeeper >/dev/null; \
	else echo 'ZooKeeper is not installed, and its tests are skipped (they fail if CI=true): apt-get install zookeeper, which brings Java' >&2; fi
	@if command -v ip >/dev/null && command -v iptables >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'installing what a test loses packets with (Debian: iproute2, iptables)'; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 iptables >/dev/null || \
	  echo 'they could not be installed: the download with lost packets is skipped' >&2; \
	else echo 'without root, iproute2 and iptables the download with lost packets is skipped' >&2; fi

clean: ## remove bin/
	rm -rf $(BIN)
