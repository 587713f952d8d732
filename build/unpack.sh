#!/bin/bash
# Unpacks a Debian package into a folder without installing it: unpack.sh FOLDER PACKAGE.
# Used by make.
set -euo pipefail

folder=$1 package=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The lists may be absent or too old; then they are fetched and it is tried again.
if ! apt-get download -q -o APT::Sandbox::User=root "$package" >/dev/null 2>&1; then
	apt-get update -q
	apt-get download -q -o APT::Sandbox::User=root "$package"
fi
dpkg-deb -x ./*.deb unpacked
rm -rf "$folder"
mv unpacked "$folder"
