#!/bin/sh
# Makes sure that the programs are there that the tests run. As root on Debian it installs those that are missing, with apt-get; elsewhere
# it says what to install. Arguments name more programs. Nothing is started here.
set -eu
cd "$(dirname "$0")/../.."

has() { command -v "$1" >/dev/null 2>&1; }

# Debian keeps the server's programs off the PATH.
postgres() {
	has initdb && return
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
		[ ! -x "$dir/initdb" ] || return 0
	done
	return 1
}

browser() {
	has chromium || has chromium-browser || has google-chrome || has google-chrome-stable || [ -x "${PROCAAS_TEST_CHROMIUM:-}" ]
}

node18() {
	has node && has npm && node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)'
}

# missing prints the Debian packages of what is not there.
missing() {
	has cc || echo gcc libc6-dev # of the race detector
	postgres || echo postgresql
	has sqlite3 || echo sqlite3
	has systemd-analyze || echo systemd
	has dpkg || echo dpkg
	has rpm || echo rpm
	has zsh || echo zsh
	has fish || echo fish
	[ -e /usr/share/bash-completion/bash_completion ] || echo bash-completion
	has rabbitmq-server || [ -x /usr/sbin/rabbitmq-server ] || echo rabbitmq-server
	browser || echo chromium
	node18 || echo nodejs npm
	has python3 || echo python3
	for program in "$@"; do
		has "$program" || [ -x "/usr/sbin/$program" ] || case $program in
		etcd) echo etcd-server ;;
		*) echo "$program" ;;
		esac
	done
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

packages=$(missing "$@" | tr '\n' ' ')
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && has apt-get; then
	echo "installing what the tests run, as Debian packages: $packages"
	export DEBIAN_FRONTEND=noninteractive
	# The package of PostgreSQL would start a cluster of its own. The tests need none.
	mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
	# RUNLEVEL=1 keeps packages from starting their services.
	# shellcheck disable=SC2086 # a list of packages
	{ apt-get update && RUNLEVEL=1 apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1 || tail -n 20 "$log" >&2
	packages=$(missing "$@" | tr '\n' ' ')
fi
if [ -n "$packages" ]; then
	cat >&2 <<EOF
The tests need programs that are not here, in Debian's packages: $packages
Install them, then run the tests again. No server needs to be running.
  Debian, Ubuntu:   sudo apt-get install $packages
  Fedora, RHEL:     sudo dnf install gcc postgresql-server sqlite systemd dpkg bash-completion rabbitmq-server zsh fish chromium nodejs npm python3
  Alpine:           sudo apk add build-base postgresql sqlite bash-completion rabbitmq-server zsh fish rpm chromium nodejs npm python3
  macOS:            brew install postgresql@17 sqlite bash-completion@2 zsh fish rabbitmq node python; brew install --cask chromium
They need PostgreSQL 13, Node.js 18 with npm, Python 3.9, or later. PROCAAS_TEST_CHROMIUM names a browser that is elsewhere.
EOF
	exit 1
fi

# packages installs what the lock file of a folder names. npm writes this file last; it is as old as what it tells of.
packages() (
	cd "$1"
	[ ! node_modules/.package-lock.json -nt package-lock.json ] || exit 0
	echo "installing the packages of $1"
	for attempt in 1 2 3; do
		npm ci --ignore-scripts >"$log" 2>&1 && touch node_modules/.package-lock.json && exit 0
		echo "npm ci did not work (attempt $attempt of 3)" >&2
	done
	tail -n 20 "$log" >&2
	exit 1
)

packages testdata/console
packages clients/typescript
