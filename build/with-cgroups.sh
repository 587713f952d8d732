#!/bin/bash
# Runs a command on a host whose cgroups suit crun. Used by make.
#
#   build/with-cgroups.sh COMMAND [ARGUMENT...]
#
# On a hybrid host (cgroup v1 hierarchies, and cgroup v2 at unified/ for systemd
# alone) crun refuses to start while unified/ still has controllers. Each of
# them is mounted as a v1 hierarchy of its own for the time of the command. The
# last of several runs at once takes the mounts away again, also those of a run
# that was killed. On every other host this only runs the command.
set -euo pipefail

root=/sys/fs/cgroup
source=fairlead-build # tells these mounts from everybody else's
# Shells start commands in the background with SIGINT ignored; Ctrl-C has to
# reach the command.
command=(env --default-signal=INT,QUIT "$@")

# The file's size is always 0, so it has to be read. Mounts of another run mean
# that this one must keep them alive.
needed() {
	[ "$(id -u)" = 0 ] || return 1
	[ -n "$(cat "$root/unified/cgroup.controllers" 2>/dev/null)" ] || grep -qs "^$source $root/" /proc/mounts
}
needed || exec "$@"

# Every run holds a shared lock. A lock on the directory leaves no file behind.
exec 9<"$root"
flock -s 9

# The kernel gives a controller back to unified/ only if its hierarchy is empty
# when it is unmounted, and removed cgroups go away a little later.
settled() {
	for _ in {1..40}; do
		awk -v c="$1" '$1 == c && $3 > 1 { exit 1 }' /proc/cgroups && return
		sleep 0.05
	done
}

cleanup() {
	local status=$?
	trap '' INT TERM HUP
	if flock -n -x 9; then
		while read -r from where _; do
			[ "$from" = "$source" ] || continue
			settled "${where##*/}"
			if ! umount "$where" || ! rmdir "$where"; then
				echo "could not take away the cgroup mount $where; do it by hand: umount $where; rmdir $where" >&2
			fi
		done </proc/mounts
	fi
	exit "$status"
}
trap cleanup EXIT

for controller in $(cat "$root/unified/cgroup.controllers"); do
	dir=$root/$controller
	mountpoint -q "$dir" && continue
	mkdir -p "$dir"
	if ! mount -t cgroup -o "$controller" "$source" "$dir"; then
		# Another run at once was quicker, or the kernel will not; crun says so then.
		mountpoint -q "$dir" || rmdir "$dir" || true
	fi
done

"${command[@]}" 9<&- <&0 &
child=$!
trap 'kill -TERM "$child" 2>/dev/null || true' TERM HUP
trap ':' INT # the terminal sends it to the command as well
while :; do
	status=0
	wait "$child" || status=$?
	# wait also returns when a trap ran; then the command may live on.
	kill -0 "$child" 2>/dev/null || break
done
exit "$status"
