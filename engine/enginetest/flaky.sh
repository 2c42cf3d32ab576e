#!/bin/sh
# Prints the tests that passed at a second try, last of all that make test prints, and keeps why they failed at the first.
# A test that never passed is named too, as what it is: it failed, and calling it flaky would hide a fault.
#
#	flaky.sh REPORT EVENTS KEPT
#
# REPORT is what gotestsum writes of the tests that it ran again, EVENTS the events of all tests, and KEPT the file that the
# causes are added to. Such a test is a fault like any other: it is mended before anything else.
set -eu
report=$1 events=$2 kept=$3
[ -s "$report" ] || exit 0
# A line of the report is "package.TestName: 3 runs, 2 failures".
while read -r name runs _ failures _; do
	name=${name%:} test=${name##*.}
	tries="$runs runs, $failures failures"
	if [ "$failures" -ge "$runs" ]; then
		echo "failed: $name never passed ($tries)"
		continue
	fi
	{
		echo "flaky: $name ($tries), $(date -u +%Y-%m-%dT%H:%M:%SZ)"
		grep -F '"Action":"output"' "$events" | grep -E "\"Test\":\"$test[\"/]" | grep -E '_test\.go:|--- FAIL' |
			sed -e 's/.*"Output":"//' -e 's/"}$//' -e 's/\\n//g' | head -n 40
	} >>"$kept"
	echo "flaky: $name passed at another try only ($tries); why it failed is in $kept"
done <"$report"
