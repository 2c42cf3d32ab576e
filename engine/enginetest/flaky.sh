#!/bin/sh
# Prints the tests that passed at a second try, last of all that make test prints, and keeps why they failed at the first.
#
#	flaky.sh REPORT EVENTS KEPT
#
# REPORT is what gotestsum writes of the tests that it ran again, EVENTS the events of all tests, and KEPT the file that the
# causes are added to. Such a test is a fault like any other: it is mended before anything else.
set -eu
report=$1 events=$2 kept=$3
[ -s "$report" ] || exit 0
while IFS=: read -r name counts; do
	test=${name##*.}
	{
		echo "flaky: $name ($(echo $counts)), $(date -u +%Y-%m-%dT%H:%M:%SZ)"
		grep -F '"Action":"output"' "$events" | grep -E "\"Test\":\"$test[\"/]" | grep -E '_test\.go:|--- FAIL' |
			sed -e 's/.*"Output":"//' -e 's/"}$//' -e 's/\\n//g' | head -n 40
	} >>"$kept"
	echo "flaky: $name passed at another try only ($(echo $counts)); why it failed is in $kept"
done <"$report"
