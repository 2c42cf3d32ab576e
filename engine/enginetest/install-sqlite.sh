#!/bin/sh
# Makes sure that the program sqlite3 is there: the tests run the backups of the docs with it.
set -eu

command -v sqlite3 >/dev/null 2>&1 && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing the command line of SQLite (Debian package sqlite3)"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	if apt-get update >"$log" 2>&1 && apt-get install -y --no-install-recommends sqlite3 >>"$log" 2>&1 && command -v sqlite3 >/dev/null; then
		rm -f "$log"
		exit 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
fi

cat >&2 <<'EOT'
The tests need the program sqlite3. Install it, then run the tests again:
  Debian, Ubuntu:   sudo apt-get install sqlite3
  Fedora, RHEL:     sudo dnf install sqlite
  Alpine:           sudo apk add sqlite
  macOS:            brew install sqlite
EOT
exit 1
