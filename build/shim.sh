#!/bin/bash
# Builds gVisor's containerd shim: shim.sh PROGRAM. Used by make.
#
# The shim gives itself an OOM score of -999 and ends where it may not, which takes
# CAP_SYS_RESOURCE. This one goes on with the score it has when that is refused, as
# containerd itself does with restrict_oom_score_adj. All else is as it comes.
set -euo pipefail

program=$(realpath -m "$1")
cd "$(dirname "$0")/../test/bench/peers/gvisor"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

library=github.com/containerd/containerd/v2
go mod download "$library"
cp -r "$(go list -m -f '{{.Dir}}' $library)" "$work/library"
chmod -R u+w "$work/library"
file=$work/library/pkg/sys/oom_linux.go
sed -i 's/if os\.IsPermission(err) && (!runningPrivileged() || userns\.RunningInUserNS()) {/if os.IsPermission(err) || userns.RunningInUserNS() {/' "$file"
if ! grep -q 'if os.IsPermission(err) || ' "$file"; then
	echo "shim.sh: ${file#"$work/library/"} of $library has changed: what does it do where the score may not be lowered?" >&2
	exit 1
fi
cp go.mod go.sum "$work/"
go mod edit -replace "$library=$work/library" "$work/go.mod"
CGO_ENABLED=0 go build -modfile "$work/go.mod" -trimpath -ldflags '-s -w' -o "$program" gvisor.dev/gvisor/shim
