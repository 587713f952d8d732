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
# nri_no_wasm: NRI plugins in WebAssembly would bring an interpreter of it along.
TAGS    := grpcnotrace nri_no_wasm
VERSION := $(shell git describe --tags --always --abbrev=12 --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The version is set above; asking git again fails in a checkout of another user.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

TOOLS         := $(CURDIR)/bin/tools
STATICCHECK   := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT       := mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.8.0
CONTROLLERGEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
RUNSC         := gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237

# What the tests and the demo need besides Go, gcc, make and git. Debian's gcc only
# recommends libc6-dev, without which the race detector is not built.
PACKAGES := runc crun containernetworking-plugins nftables iproute2 libc6-dev \
	busybox-static ca-certificates dmsetup e2fsprogs systemd dbus

# Packages are tested three at a time, and those first that take longest and mostly wait;
# within each, go test's own limit holds. What is compiled beside them leaves them the
# processors. Results are never taken from the cache: it does not see the programs that
# tests build and run. What go vet finds is for lint to say.
TESTFLAGS ?= -count=1 -p 3 -timeout 75m -vet=off -toolexec 'nice -n 19'
LONGEST   := ./test/chaos ./test/cri

## build: build bin/fairlead, bin/fairlead-monitor and bin/fairlead-operator
.PHONY: build
build:
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# MEANWHILE are targets that are made of what tests leave of the processors, as they wait a
# lot. If one fails whoever needs it makes it again, and says why.
MEANWHILE ?=

## test: install what the tests need, then run all of them with the race detector (needs root)
.PHONY: test
test: packages build $(TOOLS)/withcgroups $(TOOLS)/.runsc $(TOOLS)/.shims
	$(if $(MEANWHILE),nice -n 19 make $(MEANWHILE) >/dev/null 2>&1 & trap "kill $$! 2>/dev/null || true" EXIT;) \
	FAIRLEAD_TEST_RUNSC=$(TOOLS)/runsc FAIRLEAD_TEST_SHIMS=$(TOOLS) $(TOOLS)/withcgroups go test -race -tags '$(TAGS)' $(TESTFLAGS) $(LONGEST) ./...
	go test -C build/chart -count=1 ./...

# What compiles the profiles of AppArmor and the policy of SELinux, and what captures containers.
GUEST_PACKAGES := apparmor secilc criu

## test-guest: run what depends on cgroup v2 or a security module in a guest; RUN=, IN= and LSM= choose (needs root)
.PHONY: test-guest
test-guest: packages $(TOOLS)/.runsc
	@build/packages.sh $(GUEST_PACKAGES)
	@PACKAGES='$(IN)' LSM='$(LSM)' TAGS='$(TAGS)' test/guest/suite '$(RUN)'

## demo: install what the demo needs, then start pods under runc, crun, gVisor and a shim (needs root)
.PHONY: demo
demo: packages build $(TOOLS)/withcgroups $(TOOLS)/.runsc $(TOOLS)/.shims
	$(TOOLS)/withcgroups build/demo.sh

# They compile what build has compiled already.
lint generate verify: export CGO_ENABLED = 0
lint generate verify: export GOFLAGS += -trimpath

## lint: go vet, staticcheck, gofumpt, and govulncheck where its database is reachable
.PHONY: lint
lint: $(TOOLS)/.installed
	go vet -tags '$(TAGS)' ./...
	go vet -C build/chart ./...
	$(TOOLS)/staticcheck -tags '$(TAGS)' ./...
	cd build/chart && $(TOOLS)/staticcheck ./...
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
generate: $(TOOLS)/.installed
	go generate -tags '$(TAGS)' ./...
	go run -C build/chart . manifests

## verify: lint, then check that generated files, go.mod and the house rules hold
.PHONY: verify
verify: lint
	build/fresh.sh $(MAKE) generate
	go mod tidy -diff
	go mod tidy -C build/chart -diff
	go mod verify
	go test -count=1 -tags '$(TAGS)' ./internal/rules/

## chart: look the Helm chart over, and pack it into bin for images with the tag of this version
.PHONY: chart
chart:
	@mkdir -p bin
	go run -C build/chart . lint
	go run -C build/chart . pack '$(VERSION)' $(CURDIR)/bin

# Images are made of programs for each architecture, by build/images and no container
# engine. gVisor is built from its module, and go install puts what is for another
# architecture into a folder of a GOPATH only. A runtime that is no Go program comes
# from a folder: PAYLOAD_DIR, of which docs/install.md says what has to be in it.
IMAGES               := $(CURDIR)/bin/images
IMAGES_ARCHITECTURES ?= amd64 arm64
IMAGES_REGISTRY      ?=
PAYLOAD_DIR          ?=
GVISOR_RELEASE        = $(lastword $(subst @, ,$(RUNSC)))
GVISOR_VERSION        = $(shell sed -E 's/^v0\.0\.0-([0-9]{8})[0-9]{6}-/\1-/' <<< '$(GVISOR_RELEASE)')
GVISOR_PAYLOAD       := $(IMAGES)/payloads/gvisor
empty                :=
comma                := ,

# The same commit makes the same images on any machine: by the Go of go.mod, also where there
# is a newer one, and for the same processors.
images $(IMAGES)/programs $(GVISOR_PAYLOAD): export GOTOOLCHAIN := go$(shell sed -n 's/^go //p' go.mod)
images $(IMAGES)/programs $(GVISOR_PAYLOAD): export GOAMD64 := v1
images $(IMAGES)/programs $(GVISOR_PAYLOAD): export GOARM64 := v8.0
images $(IMAGES)/programs $(GVISOR_PAYLOAD): export GOEXPERIMENT :=
images $(IMAGES)/programs $(GVISOR_PAYLOAD): export GOFIPS140 := off

.PHONY: $(IMAGES)/programs
$(IMAGES)/programs:
	for arch in $(IMAGES_ARCHITECTURES); do \
		GOOS=linux GOARCH=$$arch CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $@/$$arch/ ./cmd/fairlead ./cmd/fairlead-operator; \
	done

.PHONY: $(GVISOR_PAYLOAD)
$(GVISOR_PAYLOAD):
	rm -rf $@
	mkdir -p $@
	cp -r deploy/payloads/gvisor/configs deploy/payloads/gvisor/all $@/
	sed 's/"version": ""/"version": "$(GVISOR_VERSION)"/' deploy/payloads/gvisor/payload.json > $@/payload.json
	cp "$$(go mod download -json gvisor.dev/gvisor@$(GVISOR_RELEASE) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/LICENSE" $@/all/LICENSE
	for arch in $(IMAGES_ARCHITECTURES); do \
		build/goinstall.sh $$arch $@/$$arch/runsc $(RUNSC) -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR_VERSION); \
		build/goinstall.sh $$arch $@/$$arch/containerd-shim-runsc-v1 $(RUNSC:%/runsc@$(GVISOR_RELEASE)=%/shim@$(GVISOR_RELEASE)); \
	done

## images: make the images of fairlead and of runtimes in bin/images, and push them to IMAGES_REGISTRY=... if that is given
.PHONY: images
images: $(IMAGES)/programs $(GVISOR_PAYLOAD)
	go run -tags '$(TAGS)' ./build/images -programs $(IMAGES)/programs -arch '$(subst $(empty) $(empty),$(comma),$(IMAGES_ARCHITECTURES))' \
		-version '$(VERSION)' -output $(IMAGES) -registry '$(IMAGES_REGISTRY)' $(patsubst %,-payload %,$(GVISOR_PAYLOAD) $(PAYLOAD_DIR))
	@cat $(IMAGES)/digests

# What the benchmark compares with comes from modules of their own, at the versions
# that their releases name. containerd is built as its own Makefile does, and runc too.
BENCH          := $(CURDIR)/bin/bench
BENCH_PACKAGES := iptables libseccomp-dev pkg-config
RUNC_SHIM       = CGO_ENABLED=0 go build -C test/bench/peers/containerd -trimpath -tags 'urfave_cli_no_docs no_grpc' -ldflags '-s -w'
BENCH_RUN       = go run -tags '$(TAGS)' ./test/bench -programs $(BENCH) -fairlead bin

.PHONY: $(BENCH)/peers
$(BENCH)/peers: build $(TOOLS)/.runsc $(TOOLS)/.shims
	@build/packages.sh $(PACKAGES) $(BENCH_PACKAGES)
	@mkdir -p $(BENCH)
	CGO_ENABLED=1 go build -C test/bench/peers/containerd -trimpath -tags urfave_cli_no_docs \
		-ldflags '-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2' \
		-o $(BENCH)/ github.com/containerd/containerd/v2/cmd/containerd
	CGO_ENABLED=1 go build -C test/bench/peers/runc -trimpath -buildmode=pie -tags 'seccomp urfave_cli_no_docs' \
		-ldflags '-s -w' -o $(BENCH)/ github.com/opencontainers/runc
	ln -f $(TOOLS)/runsc $(SHIMS) $(BENCH)/
	gcc -Os -Wall -static -s -o $(BENCH)/idle test/bench/workload/idle.c
	gcc -Os -Wall -static -s -o $(BENCH)/crun-1.1 test/bench/workload/crun.c

# CRI-O is built from its git repository and no module, only when it is asked for.
CRIO          := $(BENCH)/crio
CRIO_SOURCE   ?= https://github.com/cri-o/cri-o
CRIO_RELEASE  ?= v1.36.3
CRIO_PACKAGES := libseccomp-dev pkg-config

## crio: build CRI-O of CRIO_RELEASE from CRIO_SOURCE, a git repository or a folder, for test-installer and RUNTIME=crio (needs root)
.PHONY: crio
crio:
	@build/packages.sh $(CRIO_PACKAGES)
	build/crio.sh '$(CRIO_SOURCE)' '$(CRIO_RELEASE)' $(CRIO)

# Debian's containerd is of the oldest release that is supported; it is unpacked, and no service is installed.
OLD_CONTAINERD := $(TOOLS)/containerd-1.6

# The last release before 2.0 is built from a module of its own. Its shim is beside it.
MIDDLE_CONTAINERD := $(TOOLS)/containerd-1.7
$(MIDDLE_CONTAINERD)/.built: Makefile test/bench/peers/containerd-1.7/go.mod
	@mkdir -p $(MIDDLE_CONTAINERD)
	CGO_ENABLED=0 go build -C test/bench/peers/containerd-1.7 -trimpath -tags 'urfave_cli_no_docs no_btrfs no_devmapper no_zfs' \
		-ldflags '-s -w -X github.com/containerd/containerd/version.Version=v1.7.28' -o $(MIDDLE_CONTAINERD)/ \
		github.com/containerd/containerd/cmd/containerd github.com/containerd/containerd/cmd/containerd-shim-runc-v2
	@touch $@

## test-installer: run fairlead install against containerd 1.6, 1.7 and 2.4, with gVisor, and against CRI-O after make crio (needs root)
.PHONY: test-installer
test-installer: $(BENCH)/peers $(TOOLS)/withcgroups $(MIDDLE_CONTAINERD)/.built
	@[ -e $(OLD_CONTAINERD) ] || build/unpack.sh $(OLD_CONTAINERD) containerd
	FAIRLEAD_TEST_RUNSC=$(TOOLS)/runsc FAIRLEAD_TEST_SHIMS=$(TOOLS) FAIRLEAD_TEST_CONTAINERD=$(BENCH)/containerd \
		FAIRLEAD_TEST_CONTAINERD16=$(OLD_CONTAINERD)/usr/bin/containerd FAIRLEAD_TEST_CONTAINERD17=$(MIDDLE_CONTAINERD)/containerd \
		FAIRLEAD_TEST_CRIO=$(wildcard $(CRIO)) \
		$(TOOLS)/withcgroups go test -tags '$(TAGS)' -count=1 -timeout 45m -v ./test/installer $(if $(RUN),-run '$(RUN)')
	$(if $(RUN),,FAIRLEAD_TEST_CONTAINERD=$(BENCH)/containerd FAIRLEAD_TEST_CRIO=$(wildcard $(CRIO)) go test -tags '$(TAGS)' -count=1 -timeout 10m -v -run TestContainersOfDaemonSets ./internal/operator)

## bench: measure Fairlead beside containerd for 25 minutes, write docs/performance.* (needs root)
.PHONY: bench
bench: $(BENCH)/peers
	@if [ -f docs/performance.json ]; then cp docs/performance.json $(BENCH)/last.json; fi
	$(BENCH_RUN) -json docs/performance.json -page docs/performance.md

## bench-page: write docs/performance.md from docs/performance.json anew, and measure nothing
.PHONY: bench-page
bench-page:
	go run -tags '$(TAGS)' ./test/bench -redo -json docs/performance.json -page docs/performance.md

## bench-short: see in two minutes whether the benchmark works; its numbers mean little (needs root)
.PHONY: bench-short
bench-short: $(BENCH)/peers
	$(BENCH_RUN) -short -json $(BENCH)/short.json -page $(BENCH)/short.md

## bench-part: measure PART=gvisor, or serial, rest, ... alone; it writes nothing (needs root)
.PHONY: bench-part
bench-part: $(BENCH)/peers
	$(BENCH_RUN) -only '$(PART)'

## bench-compare: say what the last make bench changed against the one before
.PHONY: bench-compare
bench-compare:
	@go run -tags '$(TAGS)' ./test/bench -compare $(BENCH)/last.json docs/performance.json

# The programs of a Kubernetes release come from a module of their own, too. Building them
# the first time takes 12 minutes of processor time, and half a minute if only bin/ is empty.
E2E         := $(CURDIR)/bin/e2e
E2E_PACKAGES := bash-static
E2E_MODULE  := test/e2e/programs
KUBERNETES   = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2 }' $(E2E_MODULE)/go.mod)
E2E_LDFLAGS  = -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)
E2E_BUILD    = CGO_ENABLED=0 go build -C $(E2E_MODULE) -trimpath -ldflags '$(E2E_LDFLAGS)' -o $(E2E)/
E2E_SPECS    = cd $(E2E_MODULE) && CGO_ENABLED=0 go test -c -vet=off -trimpath -ldflags '-s -w' -o $(E2E)/
RUNTIME     ?= fairlead
AGENT       ?= kubelet
HANDLER     ?= runc
DRIVER      ?= cgroupfs
PROCS       ?= 4
FOCUS       ?=
SKIP        ?=
# Results are in a folder of the runtime's name, and those of fairlead node in one beside it.
E2E_NODE     = $(RUNTIME)$(if $(filter fairlead,$(AGENT)),-node)
E2E_TESTS    = $(or $(RUN),$(if $(FOCUS),TestSpecs,.))
# A runtime finds what it starts beside it.
E2E_PEERS    = $(if $(filter crio,$(RUNTIME)),$(CRIO),$(BENCH))
E2E_RUN      = go test -count=1 -v -timeout 7h -tags '$(TAGS)' ./test/e2e -run '$(E2E_TESTS)' -args \
	-programs $(E2E) -fairlead $(CURDIR)/bin -peers $(E2E_PEERS) -runtime $(RUNTIME) -agent $(AGENT) -handler $(HANDLER) \
	-procs $(PROCS) -skip '$(SKIP)'

# What a cluster needs, and what runs specs in it, without the specs.
.PHONY: $(E2E)/cluster
$(E2E)/cluster: build $(E2E)/kubernetes $(if $(filter containerd,$(RUNTIME)),$(BENCH)/peers)
	@build/packages.sh $(PACKAGES) $(E2E_PACKAGES)
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(E2E)/ ./test/e2e/standin ./test/e2e/agent
	CGO_ENABLED=0 go build -C build/chart -trimpath -ldflags '-s -w' -o $(E2E)/ .

.PHONY: $(E2E)/kubernetes
$(E2E)/kubernetes:
	@mkdir -p $(E2E)
	$(E2E_BUILD) k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kubectl k8s.io/kubernetes/cmd/kube-apiserver \
		k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler \
		k8s.io/kubernetes/test/images/agnhost github.com/onsi/ginkgo/v2/ginkgo
	$(E2E_BUILD)etcd go.etcd.io/etcd/server/v3

# The specs that most need, without those of the other groups.
.PHONY: $(E2E)/node.test
$(E2E)/node.test:
	@mkdir -p $(E2E)
	$(E2E_SPECS)node.test ./specs

# e2e-parts is what of e2e-short takes long to build, and changes with the release only.
.PHONY: e2e-parts
e2e-parts: $(E2E)/kubernetes $(E2E)/node.test

.PHONY: $(E2E)/programs
$(E2E)/programs: $(E2E)/cluster
	$(E2E_SPECS)e2e.test k8s.io/kubernetes/test/e2e

## bench-node: measure fairlead node beside a kubelet with containerd for 12 minutes, write docs/node-performance.* (needs root)
.PHONY: bench-node bench-node-short
NODES_RUN = go run -tags '$(TAGS)' ./test/bench/nodes -programs $(E2E) -peers $(BENCH) -fairlead bin -output $(E2E)/nodes
bench-node: $(E2E)/cluster $(BENCH)/peers
	$(NODES_RUN) -json docs/node-performance.json -page docs/node-performance.md

## bench-node-short: see in a minute whether bench-node works; its numbers mean little (needs root)
bench-node-short: $(E2E)/cluster $(BENCH)/peers
	$(NODES_RUN) -short -json $(E2E)/nodes-short.json -page $(E2E)/nodes-short.md

## e2e: run a real kubelet on Fairlead and test it, or with FOCUS=... upstream's specs; AGENT=fairlead takes its place, RUNTIME=containerd or crio that of Fairlead (needs root)
.PHONY: e2e
e2e: $(E2E)/programs
	$(E2E_RUN) -output $(E2E)/$(E2E_NODE) -focus '$(FOCUS)'

## e2e-short: run a real kubelet, our tests and upstream's specs of RuntimeClass, and build only what these need (needs root)
.PHONY: e2e-short
e2e-short: $(E2E)/cluster $(E2E)/node.test
	$(E2E_RUN) -output $(E2E)/short -specs node.test -focus RuntimeClass

## e2e-outage: keep the API server away for OUTAGE=10m under 50 pods and more that come and go, in a cluster with CROWD=20000 others, or GONE=apiserver-agent, agent, runtime or node; AGENT=fairlead (needs root)
.PHONY: e2e-outage
e2e-outage: E2E_TESTS = TestOutage
e2e-outage: $(E2E)/cluster $(E2E)/node.test
	$(E2E_RUN) -output $(E2E)/outage -specs node.test -outage $(or $(OUTAGE),10m) -gone $(or $(GONE),apiserver) -crowd $(or $(CROWD),20000)

## e2e-webhook: run fairlead webhook in a real cluster, in place of Kubernetes' own plugin and beside it, and all of deploy; RUN= chooses (needs root)
.PHONY: e2e-webhook
e2e-webhook: E2E_TESTS = $(or $(RUN),TestWebhook|TestChart|TestOperator)
e2e-webhook: $(E2E)/cluster $(E2E)/node.test
	CGO_ENABLED=0 go build -C build/chart -trimpath -ldflags '-s -w' -o $(E2E)/ helm.sh/helm/v4/cmd/helm
	$(E2E_RUN) -output $(E2E)/webhook -specs node.test -webhook

# Gardener's own CRD of ContainerRuntimes, in the place of ours, is a file of its module.
GARDENER     := github.com/gardener/gardener@v1.150.0
GARDENER_CRD := example/seed-crds/10-crd-extensions.gardener.cloud_containerruntimes.yaml

## e2e-operator: run fairlead operator in a real cluster with 200 nodes that have no kubelets, through a proxy that goes wrong, and beside fairlead webhook; RUNTIME=containerd has a kubelet start its pods (needs root)
.PHONY: e2e-operator
e2e-operator: E2E_TESTS = $(or $(RUN),TestOperator$(if $(filter containerd,$(RUNTIME)),OnNode,(Faults|Beta|Reviewed)?)$$)
e2e-operator: $(E2E)/cluster $(E2E)/node.test
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '-s -w' -o $(E2E)/ ./build/images
	gardener=$$(go mod download -json $(GARDENER) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p'); \
	$(E2E_RUN) -output $(E2E)/operator -specs node.test -operator -gardener-crd "$$gardener/$(GARDENER_CRD)"

# The program of e2e-short has all specs of e2e-full.
E2E_GUEST_OUTPUT = $(E2E)/$(E2E_NODE)-v2$(if $(filter systemd,$(DRIVER)),-systemd)

## e2e-guest: e2e-short with the kubelet in a virtual machine with cgroup v2; FOCUS=..., DRIVER=systemd; it takes long (needs root)
.PHONY: e2e-guest
e2e-guest: PROCS = 2
e2e-guest: $(E2E)/cluster $(E2E)/node.test
	test/guest/guest
	$(E2E_RUN) -guest $(CURDIR)/test/guest/guest -driver $(DRIVER) -output $(E2E_GUEST_OUTPUT) -specs node.test -focus '$(or $(FOCUS),RuntimeClass)'

## e2e-full: run upstream's NodeConformance and RuntimeClass specs; RUNTIME=containerd, AGENT=fairlead (needs root)
.PHONY: e2e-full
e2e-full: FOCUS := \[NodeConformance\]|RuntimeClass
e2e-full: $(E2E)/programs
	rm -f $(E2E)/$(E2E_NODE)/specs.json
	$(E2E_RUN) -output $(E2E)/$(E2E_NODE) -focus '$(FOCUS)'

## conformance: write docs/conformance.md from the last results of e2e-full and e2e-guest, and those in docs/conformance.json
.PHONY: conformance
conformance: OF = $(foreach r,fairlead fairlead-node containerd containerd-node,$(r) $(r)-v2 $(r)-v2-systemd) crio crio-node
conformance:
	go run ./test/e2e/page -note "$$NOTE" $(wildcard $(OF:%=$(E2E)/%/specs.json))

# The validation suite of cri-tools, of the release that its module names. Its images need
# a busybox whose shell runs what is on PATH; Debian's static one prefers its own tools.
CRITEST          := $(CURDIR)/bin/critest
CRITEST_MODULE   := test/critest/program
CRITEST_PACKAGES := iptables apparmor sudo
CRITEST_RELEASE   = $(shell awk '$$1 == "sigs.k8s.io/cri-tools" { print $$2 }' $(CRITEST_MODULE)/go.mod)
CRITEST_PROGRAM  ?= $(CRITEST)/critest
CRITEST_FLAGS    ?=
NRI_TIMEOUT      ?= 0s
CRITEST_RUN       = $(CRITEST)/run -program $(CRITEST_PROGRAM) -ginkgo $(CRITEST)/ginkgo -busybox $(CRITEST)/busybox/bin/busybox \
	-standin $(CRITEST)/standin -fairlead $(CURDIR)/bin -peers $(BENCH) -suite $(CRITEST_RELEASE) -output $(CRITEST)/$(CRITEST_RELEASE) \
	-runtime $(RUNTIME) -handler $(HANDLER) -nri-timeout $(NRI_TIMEOUT) -procs $(PROCS) -focus '$(FOCUS)' -skip '$(SKIP)'

.PHONY: $(CRITEST)/programs
$(CRITEST)/programs: build $(TOOLS)/.runsc $(TOOLS)/.shims $(if $(filter containerd,$(RUNTIME)),$(BENCH)/peers)
	@build/packages.sh $(PACKAGES) $(CRITEST_PACKAGES)
	@mkdir -p $(CRITEST) $(BENCH)
	ln -f $(TOOLS)/runsc $(SHIMS) $(BENCH)/
	cd $(CRITEST_MODULE) && CGO_ENABLED=0 go test -c -vet=off -trimpath \
		-ldflags '-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$(CRITEST_RELEASE)' -o $(CRITEST)/critest sigs.k8s.io/cri-tools/cmd/critest
	CGO_ENABLED=0 go build -C $(CRITEST_MODULE) -trimpath -ldflags '-s -w' -o $(CRITEST)/ github.com/onsi/ginkgo/v2/ginkgo
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(CRITEST)/ ./test/e2e/standin
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '-s -w' -o $(CRITEST)/run ./test/critest
	@[ -e $(CRITEST)/busybox ] || build/unpack.sh $(CRITEST)/busybox busybox

## critest: run cri-tools' validation suite on HANDLER=runc, crun, runsc, runc-shim or runsc-shim; RUNTIME=containerd compares (needs root)
.PHONY: critest
critest: $(CRITEST)/programs
	$(CRITEST_RUN) $(CRITEST_FLAGS)

# The guest has AppArmor, or with LSM=selinux enforces the policy of our tests.
CRITEST_GUEST = test/guest/guest -n -m 6144 -t 10800 -L $(or $(LSM),apparmor) -v $(CRITEST) -C $(CURDIR) -- \
	$(if $(filter selinux,$(LSM)),sh -c 'test/cri/testdata/selinux/load "$$0" && exec "$$@"' $(CRITEST)/policy)

## critest-guest: the same in a virtual machine with cgroup v2 and LSM=apparmor or selinux; it takes long (needs root)
.PHONY: critest-guest
critest-guest: $(CRITEST)/programs
	@build/packages.sh $(GUEST_PACKAGES)
	$(if $(filter selinux,$(LSM)),test/cri/testdata/selinux/load -o $(CRITEST)/policy)
	$(CRITEST_GUEST) $(CRITEST_RUN) -tmp /scratch -limit 170m $(CRITEST_FLAGS)

## critest-page: write docs/critest.md from the last runs of make critest and critest-guest, and those in docs/critest.json
.PHONY: critest-page
critest-page:
	go run ./test/critest/page -note "$$NOTE" $(wildcard $(CRITEST)/*/*.json)

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
	@sed -n 's/^## \([a-z0-9-]*\): /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 17

# It prepares the host for crun while a command runs. Go knows when it is fresh.
.PHONY: $(TOOLS)/withcgroups
$(TOOLS)/withcgroups:
	@go build -o $@ ./build/withcgroups

# gVisor, which is not on PATH: daemons of tests that are not about it need not try it.
$(TOOLS)/.runsc: Makefile
	@mkdir -p $(TOOLS)
	CGO_ENABLED=0 GOBIN=$(TOOLS) go install $(RUNSC)
	@touch $@

# The shims that are tested: containerd's for runc, and gVisor's, of the releases that
# the benchmark compares with.
SHIMS := $(TOOLS)/containerd-shim-runc-v2 $(TOOLS)/containerd-shim-runsc-v1
$(TOOLS)/.shims: Makefile build/shim.sh test/bench/peers/containerd/go.mod test/bench/peers/gvisor/go.mod
	@mkdir -p $(TOOLS)
	$(RUNC_SHIM) -o $(TOOLS)/ github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	build/shim.sh $(TOOLS)/containerd-shim-runsc-v1
	@touch $@

# One stamp for all tools, so that a changed version installs again.
$(TOOLS)/.installed: Makefile
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install $(STATICCHECK)
	GOBIN=$(TOOLS) go install $(GOFUMPT)
	GOBIN=$(TOOLS) go install $(GOVULNCHECK)
	GOBIN=$(TOOLS) go install $(CONTROLLERGEN)
	@touch $@
