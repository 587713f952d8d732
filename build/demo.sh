#!/bin/bash
# Shows Fairlead at work: the same Deployment on runc and on crun, a class that is
# refused because its runtime is missing, and three kinds of runtime side by side.
# Used by make demo.
# Everything is below a temporary folder and is gone at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d /tmp/fairlead-demo.XXXXXX)
export PATH="$PWD/bin:$PATH"
job='' ids=''
bridge=fldemo$((RANDOM % 1000))
printf 'version = 1\n[network]\nbridge = "%s"\n' "$bridge" >"$dir/config.toml"

die() { printf '%s\n' "$*" >&2; exit 1; }
say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
fairlead() { command fairlead --config "$dir/config.toml" --root "$dir/lib" --state "$dir/run" "$@"; }
get() { # ADDRESS: fetch a page with nothing but bash
	exec 3<>"/dev/tcp/$1/80" || return
	printf 'GET / HTTP/1.0\r\n\r\n' >&3
	tail -n 1 <&3
	exec 3>&-
}
processes() { # those whose command line names our folder; a minimal system has no pgrep
	local file args
	for file in /proc/[0-9]*/cmdline; do
		{ mapfile -d '' -t args <"$file"; } 2>/dev/null || continue
		[[ "${args[*]}" != *"$dir"* ]] || echo "${file//[!0-9]/}: ${args[*]}"
	done
}
end_job() {
	[ -z "$job" ] && return
	kill -TERM "$job" 2>/dev/null || true
	wait "$job" || [ $? = 130 ] # 130: a signal ended it, after it had tidied up
	job=''
}
trap 'end_job || true; rm -rf "$dir"' EXIT

say "Packing a small static web server into an image, without any registry"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$dir/webserver" ./examples/webserver
go run ./build/packimage localhost/webserver:demo "$dir/webserver" "$dir/image.tar"
fairlead image import "$dir/image.tar"

say "The runtime handlers of this machine: fairlead handlers"
fairlead handlers | cut -c "1-$(tput cols 2>/dev/null || echo 120)"

show() { # CLASS: run its Deployment, look at it, fetch a page from every pod, take it down
	say "Two replicas on RuntimeClass $1: fairlead run -f examples/runtimeclasses.yaml -f examples/web-$1.yaml"
	: >"$dir/err"
	command fairlead --config "$dir/config.toml" --root "$dir/lib" --state "$dir/run" \
		run -f examples/runtimeclasses.yaml -f "examples/web-$1.yaml" 2>"$dir/err" &
	job=$!
	local page address begin=$SECONDS
	until [ "$(grep -c ' Running$' "$dir/err")" = 2 ]; do
		kill -0 "$job" 2>/dev/null || die "The pods did not start: $(cat "$dir/err")"
		[ $((SECONDS - begin)) -lt 120 ] || die "The pods are not Running after two minutes: $(cat "$dir/err")"
		sleep 0.1
	done
	grep -v '^fairlead:' "$dir/err"
	ids+=" $(fairlead ps -o json | sed -n 's/^ *"id": "\(.*\)",$/\1/p')"
	for address in $(awk '/ Running$/ { sub(/,.*/, "", $4); print $4 }' "$dir/err"); do
		printf '%-14s says: ' "$address"
		page=''
		for _ in $(seq 100); do # Running is not yet serving
			page=$(get "$address" 2>/dev/null) && break
			sleep 0.1
		done
		echo "$page"
		[[ $page == "Hello from pod web-$1-"*"runtime class \"$1\""* ]] || die "This is not the page of a pod of web-$1."
	done
	sleep 0.3 # for the last lines of the logs, which show who asked
	echo "Ctrl-C:"
	end_job
}
show native
show crun

say "A class whose runtime may be missing: fairlead run -f examples/runtimeclasses.yaml -f examples/sandboxed-nginx.yaml"
if fairlead handlers | awk '$1 == "gvisor" && $5 == "yes" { found = 1 } END { exit !found }'; then
	fairlead run --detach -f examples/runtimeclasses.yaml -f examples/sandboxed-nginx.yaml
	fairlead rm --all
elif fairlead run -f examples/runtimeclasses.yaml -f examples/sandboxed-nginx.yaml 2>"$dir/err"; then
	die "This should have been refused: there is no handler gvisor here."
else
	cat "$dir/err"
	grep 'runtime handler "gvisor", which this machine does not have' "$dir/err" | grep crun | grep -qw runc ||
		die "This does not say what is missing and what there is."
	echo "Refused, as it should be: a class never runs on another runtime than its handler's."
fi

say "Three classes side by side: runc, gVisor, and runc behind containerd's shim: fairlead run -f examples/kernels.yaml"
{
	cat "$dir/config.toml"
	printf '[handlers.runc]\n[handlers.gvisor]\npath = "%s"\n' "$PWD/bin/tools/runsc"
	printf '[handlers.runc-shim]\ntype = "shim"\nruntime_type = "io.containerd.runc.v2"\npath = "%s"\n' "$PWD/bin/tools/containerd-shim-runc-v2"
} >"$dir/three.toml"
go run ./build/packimage localhost/busybox:demo "$(command -v busybox)" "$dir/busybox.tar"
fairlead image import "$dir/busybox.tar"
three() { command fairlead --config "$dir/three.toml" --root "$dir/lib" --state "$dir/run" "$@"; }
three handlers | cut -c "1-$(tput cols 2>/dev/null || echo 120)"
three run -f examples/kernels.yaml | tee "$dir/kernels"
for pod in on-runc on-a-shim; do
	grep "^$pod/" "$dir/kernels" | grep -qF "kernel $(uname -r)" || die "Pod $pod does not see the kernel of this machine."
done
grep '^on-gvisor/' "$dir/kernels" | grep -q 'Starting gVisor' || die "Pod on-gvisor does not see a kernel of its own."
echo "Two pods share this machine's kernel, $(uname -r); the one on gVisor has another."

say "Nothing is left"
left=$(processes; grep "$dir" /proc/self/mountinfo || true
	ip -o link show "$bridge" 2>/dev/null || true
	nft list tables | grep "$bridge" || true
	for id in $ids; do find /sys/fs/cgroup /run/netns /var/run/netns -name "*$id*" 2>/dev/null || true; done)
[ -z "$left" ] || die "This is left: $left"
echo "No process, mount, bridge, nftables table, namespace or cgroup of this demo remains."
