#!/bin/sh
# Makes sure that the browser test of the console can run: Chromium, Node.js, and the
# two packages that package-lock.json names. Nothing is started here.
set -eu
cd "$(dirname "$0")"

browser() {
	for name in chromium chromium-browser google-chrome google-chrome-stable; do
		command -v "$name" >/dev/null 2>&1 && return 0
	done
	[ -n "${PROCAAS_TEST_CHROMIUM:-}" ] && [ -x "$PROCAAS_TEST_CHROMIUM" ]
}

node18() {
	command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 &&
		node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)'
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! { browser && node18; } && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	wanted=
	browser || wanted=chromium
	node18 || wanted="$wanted nodejs npm"
	echo "installing for the browser test (Debian packages): $wanted"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list of packages
	{ apt-get update && apt-get install -y --no-install-recommends $wanted; } >"$log" 2>&1 || tail -n 20 "$log" >&2
fi

if browser && node18; then
	# npm writes this file last; it is as old as what it tells of.
	if [ node_modules/.package-lock.json -nt package-lock.json ]; then
		exit 0
	fi
	echo "installing the packages of the browser test"
	for attempt in 1 2 3; do
		npm ci >"$log" 2>&1 && touch node_modules/.package-lock.json && exit 0
		echo "npm ci did not work (attempt $attempt of 3)" >&2
	done
	tail -n 20 "$log" >&2
fi

cat >&2 <<'EOF'
The browser test of the console needs Chromium, Node.js 18 or later with npm, and the packages
of testdata/console/package-lock.json. Install them, then run the tests again:
  Debian:           sudo apt-get install chromium nodejs npm
  Fedora, RHEL:     sudo dnf install chromium nodejs npm
  Alpine:           sudo apk add chromium nodejs npm
  macOS:            brew install --cask chromium; brew install node
  then:             make tools-console
PROCAAS_TEST_CHROMIUM names a browser that is elsewhere.
EOF
exit 1
