#!/bin/bash
# Builds CRI-O: crio.sh SOURCE RELEASE FOLDER. The source is its git repository, or a
# folder with what is in that. The folder gets crio, pinns and Debian's conmon. Used by make.
set -euo pipefail

source=$1 release=$2 folder=$(realpath -m "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$source
if [ ! -e "$tree/go.mod" ]; then
	tree=$work/source
	git clone -q --depth 1 --branch "$release" "$source" "$tree"
fi
# Its vendor folder has all that it needs. What these tags leave out are drivers and
# libraries that no test of ours uses.
CGO_ENABLED=1 go build -C "$tree" -trimpath -mod=vendor -ldflags '-s -w' -o "$work/bin/crio" \
	-tags 'seccomp containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs btrfs_noversion exclude_graphdriver_devicemapper' ./cmd/crio
gcc -std=c99 -Os -static -s -o "$work/bin/pinns" "$tree"/pinns/src/*.c
"$(dirname "$0")/unpack.sh" "$work/conmon" conmon
mv "$work/conmon/usr/bin/conmon" "$work/bin/"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mv "$work/bin" "$folder"
