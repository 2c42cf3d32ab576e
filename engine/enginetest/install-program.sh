#!/bin/sh
# install-program.sh PROGRAM PACKAGE makes sure that a program is there, which the tests run. PACKAGE is Debian's.
set -eu
program=$1 package=$2

command -v "$program" >/dev/null 2>&1 && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing $program (Debian package $package)"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	if apt-get update >"$log" 2>&1 && apt-get install -y --no-install-recommends "$package" >>"$log" 2>&1 &&
		command -v "$program" >/dev/null; then
		rm -f "$log"
		exit 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
fi

echo "The tests need the program $program. Install it, then run the tests again. On Debian and Ubuntu: sudo apt-get install $package" >&2
exit 1
