#!/bin/sh
# Makes sure that the PostgreSQL server binaries are there: the tests start a
# private cluster from them. Nothing is started here.
set -eu

found() {
	command -v initdb >/dev/null 2>&1 && return 0
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
		[ -x "$dir/initdb" ] && return 0
	done
	return 1
}

found && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing the PostgreSQL server (Debian package postgresql)"
	export DEBIAN_FRONTEND=noninteractive
	# The package would start a cluster of its own; the tests need none.
	mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
	log=$(mktemp)
	if apt-get update >"$log" 2>&1 && apt-get install -y --no-install-recommends postgresql >>"$log" 2>&1 && found; then
		rm -f "$log"
		exit 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
fi

cat >&2 <<'EOF'
The tests need the PostgreSQL server binaries (initdb, pg_ctl, postgres), version 13 or later.
Install them, then run the tests again; no server needs to be running:
  Debian, Ubuntu:   sudo apt-get install postgresql
  Fedora, RHEL:     sudo dnf install postgresql-server
  Alpine:           sudo apk add postgresql
  macOS:            brew install postgresql@17
EOF
exit 1
