#!/bin/bash
# Runs a command and fails if it changed a file that git knows or would add.
# Changes that were there before do not count. Used by make.
#
#   build/fresh.sh COMMAND [ARGUMENT...]
set -euo pipefail

if ! git rev-parse --is-inside-work-tree >/dev/null; then
	echo "not a git work tree, so nobody can say whether generated files are fresh" >&2
	exit 1
fi

# One line for each file that differs from the last commit, with its content.
state() {
	git ls-files -z --modified --deleted --others --exclude-standard | sort -zu |
		while IFS= read -r -d '' file; do
			if [ -f "$file" ]; then sha256sum "$file"; else printf 'gone  %s\n' "$file"; fi
		done
}

before=$(state)
"$@"
after=$(state)
if [ "$before" != "$after" ]; then
	echo "these files were not up to date; look at them and commit them:" >&2
	diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") | sed -n 's/^[<>] [0-9a-z]*  /  /p' | sort -u >&2
	exit 1
fi
