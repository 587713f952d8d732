# The only entry to building and checking Fairlead. `make help` lists the targets.
#
# A machine needs Go, gcc, make and git. The targets fetch the rest themselves:
# Debian packages by apt-get, Go tools by `go install` into bin/tools.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# grpcnotrace: with grpc's trace pages the linker can no longer drop unused
# methods, which costs 8 MB of binary.
TAGS    := grpcnotrace
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The version is set above; asking git again fails in a checkout of another user.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

TOOLS       := $(CURDIR)/bin/tools
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# What the tests and the demo need besides Go, gcc, make and git.
PACKAGES := runc crun containernetworking-plugins nftables iproute2 \
	busybox-static ca-certificates dmsetup e2fsprogs

# Packages are tested two at a time; within each, go test's own limit holds. Results
# are never taken from the cache: it does not see the programs that tests build and run.
TESTFLAGS ?= -count=1 -p 2 -timeout 20m

## build: build bin/fairlead and bin/fairlead-monitor
.PHONY: build
build:
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

## test: install what the tests need, then run all of them with the race detector (needs root)
.PHONY: test
test: packages build $(TOOLS)/withcgroups
	$(TOOLS)/withcgroups go test -race -tags '$(TAGS)' $(TESTFLAGS) ./...

## demo: install what the demo needs, then start pods under runc and crun (needs root)
.PHONY: demo
demo: packages build $(TOOLS)/withcgroups
	$(TOOLS)/withcgroups build/demo.sh

## lint: go vet, staticcheck, gofumpt, and govulncheck where its database is reachable
.PHONY: lint
lint: $(TOOLS)/.installed
	go vet -tags '$(TAGS)' ./...
	$(TOOLS)/staticcheck -tags '$(TAGS)' ./...
	@unformatted=$$($(TOOLS)/gofumpt -l .); \
	if [ -n "$$unformatted" ]; then \
		printf 'not formatted; run bin/tools/gofumpt -w on:\n%s\n' "$$unformatted" >&2; exit 1; \
	fi
	@if go run ./build/reachable; then \
		echo 'govulncheck ./...'; $(TOOLS)/govulncheck -tags '$(TAGS)' ./...; \
	else \
		echo 'govulncheck: LEFT OUT, its vulnerability database is not reachable from here'; \
	fi

## generate: write generated code and reference pages anew
.PHONY: generate
generate:
	go generate -tags '$(TAGS)' ./...

## verify: lint, then check that generated files, go.mod and the house rules hold
.PHONY: verify
verify: lint
	build/fresh.sh $(MAKE) generate
	go mod tidy -diff
	go mod verify
	go test -count=1 -tags '$(TAGS)' ./internal/rules/

# What the benchmark compares with comes from modules of their own, at the versions
# that their releases name. containerd is built as its own Makefile does, and runc too.
BENCH          := $(CURDIR)/bin/bench
BENCH_PACKAGES := iptables libseccomp-dev pkg-config libc6-dev
BENCH_RUN       = go run -tags '$(TAGS)' ./test/bench -programs $(BENCH) -fairlead bin

.PHONY: $(BENCH)/peers
$(BENCH)/peers: build
	@build/packages.sh $(PACKAGES) $(BENCH_PACKAGES)
	@mkdir -p $(BENCH)
	CGO_ENABLED=1 go build -C test/bench/peers/containerd -trimpath -tags urfave_cli_no_docs \
		-ldflags '-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2' \
		-o $(BENCH)/ github.com/containerd/containerd/v2/cmd/containerd
	CGO_ENABLED=0 go build -C test/bench/peers/containerd -trimpath -tags 'urfave_cli_no_docs no_grpc' -ldflags '-s -w' \
		-o $(BENCH)/ github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	CGO_ENABLED=1 go build -C test/bench/peers/runc -trimpath -buildmode=pie -tags 'seccomp urfave_cli_no_docs' \
		-ldflags '-s -w' -o $(BENCH)/ github.com/opencontainers/runc
	gcc -Os -Wall -static -s -o $(BENCH)/idle test/bench/workload/idle.c
	gcc -Os -Wall -static -s -o $(BENCH)/crun-1.1 test/bench/workload/crun.c

## bench: measure Fairlead beside containerd for 20 minutes, write docs/performance.* (needs root)
.PHONY: bench
bench: $(BENCH)/peers
	@if [ -f docs/performance.json ]; then cp docs/performance.json $(BENCH)/last.json; fi
	$(BENCH_RUN) -json docs/performance.json -page docs/performance.md

## bench-short: see in two minutes whether the benchmark works; its numbers mean little (needs root)
.PHONY: bench-short
bench-short: $(BENCH)/peers
	$(BENCH_RUN) -short -json $(BENCH)/short.json -page $(BENCH)/short.md

## bench-compare: say what the last make bench changed against the one before
.PHONY: bench-compare
bench-compare:
	@go run -tags '$(TAGS)' ./test/bench -compare $(BENCH)/last.json docs/performance.json

## packages: install the Debian packages that tests and demo need (a part of both)
.PHONY: packages
packages:
	@build/packages.sh $(PACKAGES)

## clean: remove what was built
.PHONY: clean
clean:
	rm -rf bin

## help: list the targets
.PHONY: help
help:
	@echo 'make TARGET, where TARGET is one of:'
	@sed -n 's/^## \([a-z-]*\): /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 17

# It prepares the host for crun while a command runs. Go knows when it is fresh.
.PHONY: $(TOOLS)/withcgroups
$(TOOLS)/withcgroups:
	@go build -o $@ ./build/withcgroups

# One stamp for all tools, so that a changed version installs again.
$(TOOLS)/.installed: Makefile
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install $(STATICCHECK)
	GOBIN=$(TOOLS) go install $(GOFUMPT)
	GOBIN=$(TOOLS) go install $(GOVULNCHECK)
	@touch $@
