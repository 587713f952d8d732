#!/bin/bash
# Builds a program of a module for any architecture, as the module's release says:
# goinstall.sh ARCHITECTURE PROGRAM PACKAGE@VERSION [LINKER FLAG...]. Used by make.
#
# go install takes the versions of dependencies from the program's own module, but
# refuses to put a program for another machine into GOBIN. It has a GOPATH of its own
# here, and shares the caches.
set -euo pipefail

arch=$1 program=$2 package=$3
shift 3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOMODCACHE=$(go env GOMODCACHE) GOPATH=$work GOBIN='' GOOS=linux GOARCH=$arch CGO_ENABLED=0 \
	go install -trimpath -ldflags "-s -w $*" "$package"
mkdir -p "$(dirname "$program")"
find "$work/bin" -type f -exec install -m 0755 {} "$program" \;
