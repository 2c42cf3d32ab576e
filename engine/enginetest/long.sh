#!/bin/sh
# Tests that take too long for each change, from the top folder: sh engine/enginetest/long.sh [KIND...]. Without KIND, those of each night.
set -eu
nightly="properties cells addons console loops memory torture transfers pooler upgrade matrix judge fuzz release"
byhand="editors python patroni" # they need npm's registry, compare with the python3 of this machine, or must be root

db() { go run -trimpath -buildvcs=false ./engine/enginetest/testdb -- "$@"; }

# The property tests, with other random data each time and thirty times as much of it.
properties() {
	# shellcheck disable=SC2046 # a list of packages
	RAPID_CHECKS=3000 db go test -count 1 -timeout 60m $(grep -rl pgregory.net/rapid --include='*_test.go' . | xargs -n1 dirname | sort -u)
}

# The whole contract of the store on an inbox over two databases, also encrypted, on an encrypted file and on an encrypted database, and
# kill -9 at each step of a move.
cells() {
	CGO_ENABLED=1 db go test -race -count 1 -timeout 15m -run '^(TestConformance|TestConformanceOfSealedCells|TestTasksOfSeveralCellsKeepTheContract)$' ./handlers/inbox/cells -whole
	db go test -count 1 -timeout 60m ./cmd/procaas -run '^TestInboxMoveSurvivesKill9$' -every-step
	db go test -count 1 -timeout 15m -run '^TestConformance' ./engine/sealed -whole
}

# The program without each of its products.
addons() {
	go test -count 1 -timeout 15m -run '^TestProgramWithoutAddons$' ./cmd/procaas -every-addon
}

# The console in a browser, on both stores.
console() {
	sh engine/enginetest/install.sh
	go test -count 1 -timeout 15m -run '^TestConsole$' ./cmd/procaas -every-console
}

# Pipelines that emit themselves, on serving nodes, until they are bounded.
loops() {
	db go test -count 1 -timeout 15m ./cmd/procaas -run '^TestALoopOfServingNodesIsBounded$' -loops
}

# Work that takes many times the memory of a node of 4 GiB.
memory() {
	PROCAAS_TEST_MEMORY=4096MiB go test -count 1 -timeout 60m ./cmd/procaas -run '^TestNodesStayWithinTheirMemory$'
}

# Nodes, workers of the queue and their PostgreSQL under faults, and a node that is killed before and after everything that it does.
torture() {
	db go test -count 1 -timeout 15m -run '^TestCrashAtEveryIO$' ./engine/enginetest -every-moment
	go test -count 1 -timeout 15m -v -run '^TestTorture$' ./cmd/procaas -torture 3m
	go test -count 1 -timeout 15m -v -run '^TestQueueTorture$' ./cmd/procaas -torture 6m
}

# A transfer for each way to harm it at each of its points: the coordinator is killed, a shard is cut off.
transfers() {
	go test -count 1 -timeout 30m -run '^TestTransferEndsAfterOneHarm$' ./handlers/sharding/transfer -every
	db go test -count 1 -timeout 30m ./handlers/sharding -run '^TestPartsOfKeysMoveUnderWrites$' -scenarios 100
}

# The store through PgBouncer in transaction mode, which is restarted under load.
pooler() {
	sh engine/enginetest/install.sh pgbouncer
	go test -count 1 -timeout 10m -tags pooler -run '^TestPooler' ./engine/postgres ./cmd/procaas
}

# Three servers that Patroni keeps; their primary is killed, cut off, exchanged by order, and killed beside a lagging replica: under nodes
# that find the primary themselves, and under nodes behind PgBouncer and HAProxy. It needs root, for networks of their own.
patroni() {
	sh engine/enginetest/install.sh patroni etcd pgbouncer haproxy
	go test -c -o bin/patroni.test -tags patroni ./cmd/procaas
	for drill in TestFailoversOfPatroni TestFailoversBehindPgBouncer; do
		(cd cmd/procaas && unshare -n ../../bin/patroni.test -test.v -test.timeout 60m -test.run "^$drill\$")
	done
}

# Nodes of the release before are replaced one by one under load, back, and forward again.
upgrade() {
	before=$(cat testdata/release-before)
	git cat-file -e "$before" 2>/dev/null || git fetch --depth 1 origin "$before"
	dir=$(mktemp -d)
	git archive "$before" | tar -x -C "$dir"
	(cd "$dir" && go build -trimpath -buildvcs=false -o procaas ./cmd/procaas)
	go test -count 1 -timeout 15m -v -run '^TestRollingUpgrade$' ./cmd/procaas -release-before "$dir/procaas" -rolling-calls 3000
	rm -r "$dir"
}

# What depends on PostgreSQL, on each version from 13 to 18; VERSIONS="13 18" chooses. The servers come from npm, for Linux on amd64. They
# have no pg_basebackup, which makes standbys, and no pg_dump, which must be that of the server: what needs them is skipped, and only here.
# Before 15, the server counts late what it did, passwords are kept as MD5, and there are no shards.
matrix() {
	early='CheckpointsStayOnTheirPages|DeadRowsAreSeen|ClaimsWriteNoIndexEntries|APasswordMayChange'
	dir=$(mktemp -d)
	chmod 755 "$dir" # another user runs the server
	cp testdata/postgres/package*.json "$dir"
	(cd "$dir" && npm ci --ignore-scripts >/dev/null)
	for version in ${VERSIONS:-13 14 15 16 17 18}; do
		server=$dir/node_modules/pg$version
		(cd "$server" && node scripts/hydrate-symlinks.js)
		"$server/native/bin/postgres" --version
		(
			export PATH="$server/native/bin:$PATH" PROCAAS_TEST_WITHOUT="pg_basebackup pg_dump"
			if [ "$version" -lt 15 ]; then
				db go test -count 1 -timeout 30m -skip "$early" ./engine/postgres ./handlers/inbox/cells ./handlers/queue
			else
				db go test -count 1 -timeout 30m ./engine/postgres ./handlers/inbox/cells ./handlers/queue ./handlers/sharding/...
			fi
			go test -count 1 -timeout 15m ./cmd/procaas -run '^(TestTorture|TestOldStoresAreUpgraded|TestStoresOfEarlierVersions|TestRunsOfEarlierVersionsEnd)$'
		)
	done
	rm -r "$dir"
}

# The files of a release: two builds are the same, the package is installed, and its program runs. The chart is rendered.
release() {
	go -C deploy/tools test -count 1 -timeout 15m procaas/deploy/tools/chart
	make release ARGS="-version v0.0.1"
	mkdir -p bin && mv dist/SHA256SUMS bin/first.sums
	make release ARGS="-version v0.0.1"
	diff bin/first.sums dist/SHA256SUMS
	sh deploy/install.sh dist/procaas_*_"$(go env GOARCH)".deb v0.0.1
}

# v5 beside v4 in a cluster that v5 was not made for, over random scenarios. JUDGE="-from 0 -to 88 -only seesaw -trace" chooses others.
judge() {
	# shellcheck disable=SC2086 # a list of flags
	go test -count 1 -timeout 60m -v -run '^TestJudge$' ./handlers/balancer/judge ${JUDGE:--from 264 -to 440}
}

# Every fuzz target, half a minute each.
fuzz() {
	for p in $(go list ./...); do
		for f in $(go test -list '^Fuzz' "$p" | grep ^Fuzz); do
			echo "$p $f"
			go test -run '^$' -fuzz "^$f\$" -fuzztime 30s -fuzzminimizetime 5x "$p"
		done
	done
}

# The YAML language server of editors with our schemas.
editors() {
	go test -count 1 -timeout 5m -tags editors -run '^TestEditors' ./cmd/procaas
}

# The expression language beside the python3 of this machine, on random expressions.
python() {
	go test -count 1 ./dsl/expr -run '^TestPythonLive$' -v -args -python 200000
}

for kind in ${*:-$nightly}; do
	case " $nightly $byhand " in
	*" $kind "*) echo "== $kind" && "$kind" ;;
	*) echo "there is no $kind; want some of $nightly $byhand" >&2 && exit 2 ;;
	esac
done
