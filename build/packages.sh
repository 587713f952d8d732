#!/bin/bash
# Installs the named Debian packages, those that are missing. Used by make.
set -euo pipefail

if [ "$(id -u)" != 0 ]; then
	echo "This needs root: it makes namespaces, mounts and cgroups. Run it again as root, for example: sudo env PATH=\"\$PATH\" make" >&2
	exit 1
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "No apt-get here. Please see to it that these exist, under the names that they have on this system: $*" >&2
	echo "Tests that miss one are skipped and say so." >&2
	exit 0
fi

missing=()
for package in "$@"; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

export DEBIAN_FRONTEND=noninteractive
echo "installing ${missing[*]}"
# The lists may be absent or too old; then they are fetched and it is tried again.
if ! apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
	apt-get update -q
	apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
