#!/usr/bin/env bash
# make.sh PROCAAS DIR [KIND…]: makes the stores of this folder by the binary of a version, in a PostgreSQL of testdb. KIND chooses some
# of sqlite, sealed, cells, postgres, sealed-postgres, canary and shadow:
#
#   git worktree add /tmp/version VERSION && (cd /tmp/version && go build -o /tmp/procaas ./cmd/procaas)
#   go run ./engine/enginetest/testdb -- testdata/stores/make.sh /tmp/procaas testdata/stores/VERSION
#
# It needs psql, pg_dump, curl, jq, python3, and the ports 18390 to 18392 of this machine.
set -euo pipefail
procaas=$1 dir=$2 kinds=${*:3}
kinds=${kinds:-sqlite sealed cells postgres sealed-postgres canary shadow}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
export PROCAAS_SERVER=http://127.0.0.1:18390

mkdir "$work/flows"
cp "$here"/flows/* "$work/flows"
# The flow of the balancer without its trigger: one tick is enough.
sed '/^triggers:/,$d' "$here/../../pipelines/balancer/balance.yaml" >"$work/flows/balance.yaml"
"$procaas" demo-worker --name w-1 --listen 127.0.0.1:18391 --cluster fanout --partitions 8 >"$work/worker.log" 2>&1 &

# A service that takes calls and never answers.
python3 -c 'import signal, socket; s = socket.create_server(("127.0.0.1", 18392)); signal.pause()' &

until_ok() {
	for _ in $(seq 300); do
		if "$@" >"$work/out" 2>&1; then return; fi
		sleep 0.1
	done
	cat "$work/out" "$work/node.log" >&2
	return 1
}
post() { curl -sSf -H 'Content-Type: application/json' -d "$2" "$PROCAAS_SERVER$1"; }
dead() { "$procaas" queue peek mail --state failed --format json | grep -q nobody; }

# status KEY STATUS FOR tells whether a run of the key has the status, and waits for what FOR names.
status() { "$procaas" runs list --key "$1" --status "$2" | grep -q -e "$3"; }

# language lets a run stop at each place where a run can wait.
language() {
	"$procaas" switch hold undone/a/first/compensate --reason corpus
	"$procaas" submit --type undone --key undone --id undone-1
	"$procaas" submit --type loop --key loop --id loop-1
	"$procaas" submit --type caller --key caller --id caller-1
	"$procaas" submit --type scored --key scored --id scored-1
	"$procaas" submit --type retried --key retried --id retried-1
	"$procaas" submit --type unknown --key unknown --id unknown-1
	"$procaas" submit --type paid --key o-2 --id too-early-1
	"$procaas" submit --type limited --key one --id limited-1 --payload '{"city": "berlin"}' --wait
	"$procaas" submit --type limited --key two --id limited-2 --payload '{"city": "berlin"}'
	"$procaas" submit --type opened --key front --id front-1 --label city=berlin --wait
	"$procaas" submit --type opened --key front --id front-deferred
	"$procaas" config set GREETING '"good morning"' --reason corpus
	"$procaas" limit limited 5/s --reason corpus
	until_ok status undone parked compensate
	until_ok status loop parked each
	until_ok status caller parked approval
	until_ok status scored parked score
	until_ok status retried parked call
	until_ok status two parked tell
	until_ok status unknown running .
}

fill() { # fills the store that the flags name
	start "$@"
	until_ok curl -sSf http://127.0.0.1:18391/ping
	case $* in *--cell*) "$procaas" inbox move --slots 0-2047 --to b --at-once 2048 ;; esac # half of the keys
	for n in 1 2 3; do
		for key in ann ben eve; do "$procaas" submit --type step --key $key --id "$key-$n" --payload "{\"n\": $n}" --wait; done
	done
	"$procaas" submit --type parked --key o-1 --id parked-1
	"$procaas" submit --type parked --key o-1 --id waits-for-parked-1
	"$procaas" submit --type broken --id broken-1 --wait || true
	"$procaas" submit --type balance-cluster --key fanout --id tick-1 --wait
	"$procaas" balancer freeze --cluster fanout --reason corpus
	"$procaas" switch hold broken --reason corpus
	"$procaas" submit --type broken --id held-1
	# Of the tasks of a pipeline one completes, and one becomes a dead letter.
	post /v1/queues/mail/tasks '[{"payload": {"to": "ann"}}, {"payload": {"to": "nobody"}}]'
	until_ok dead
	# Of the tasks of other programs one is completed, one fails for good, and one stays taken. Two wait, one of them for its
	# time. One is cancelled.
	post /v1/queues/resize/tasks '[{"payload": 1}, {"payload": 2}, {"payload": 3}]'
	post /v1/queues/claim '{"worker": "w", "types": [{"type": "resize", "limit": 3}], "lease": "1h"}' >"$work/claim"
	post /v1/queues/complete "$(jq -c '{receipts: [.items[] | select(.payload == 1) | .receipt]}' "$work/claim")"
	post /v1/queues/fail "$(jq -c '{tasks: [.items[] | select(.payload == 2) | {receipt, error: "no such picture", final: true}]}' "$work/claim")"
	post /v1/queues/resize/tasks '[{"payload": 4, "unique": "four", "key": "k"}, {"payload": 5, "delay": "8760h"}, {"payload": 6, "key": "gone"}]'
	"$procaas" queue cancel resize --key gone --reason corpus
	"$procaas" queue pause resize --reason corpus
	language
	kill -9 $node
	wait $node || true
	start "$@"
	until_ok status unknown parked call # its result is unknown
	"$procaas" token new --name reader --role admin >/dev/null # the last: from now on, calls need a token
	kill $node
	wait $node
}
start() { # starts a node on the definition in $flows
	"$procaas" serve --listen 127.0.0.1:18390 --name corpus --log-format text -p "$flows" "$@" >>"$work/node.log" 2>&1 &
	node=$!
	until_ok curl -sSf "$PROCAAS_SERVER/readyz"
}
flows=$work/flows
makes() { case " $kinds " in *" $1 "*) ;; *) return 1 ;; esac } # whether a kind is wanted

cp "$here/keys.json" "$work/keys.json"
chmod 600 "$work/keys.json"
if makes sqlite; then
	fill --store "sqlite:$work/store.db"
	gzip -9nc "$work/store.db" >"$dir/sqlite.db.gz"
fi
if makes sealed; then
	fill --store "sqlite:$work/sealed.db" --encryption-keys "$work/keys.json"
	gzip -9nc "$work/sealed.db" >"$dir/sealed.db.gz"
fi

# Dumps name no schema: a test loads each into a schema of its own. Nodes refuse a dump on another server than that where others wrote, so
# it says nothing of the server.
dump() {
	psql -q "$PROCAAS_TEST_POSTGRES" -c "update $1.incarnation set system = 0, timeline = 0"
	pg_dump --no-owner --no-privileges --inserts --schema="$1" "$PROCAAS_TEST_POSTGRES" |
		sed -E -e "/^(--|SET |SELECT pg_catalog.set_config|CREATE SCHEMA|\\\\)/d" -e '/^$/d' -e "s/$1\.//g" | gzip -9n >"$dir/$2.sql.gz"
}
at() { # the address of an empty schema
	psql -q "$PROCAAS_TEST_POSTGRES" -c "create schema $1" >&2
	case $PROCAAS_TEST_POSTGRES in *\?*) echo "$PROCAAS_TEST_POSTGRES&search_path=$1" ;; *) echo "$PROCAAS_TEST_POSTGRES?search_path=$1" ;; esac
}
if makes cells; then
	home=$(at corpus_home) b=$(at corpus_b)
	fill --store "$home" --cell "b=$b"
	dump corpus_home home
	dump corpus_b b
fi
if makes sealed-postgres; then
	whole=$(at corpus_sealed)
	fill --store "$whole" --encryption-keys "$work/keys.json"
	dump corpus_sealed sealed-postgres
fi
if makes postgres; then
	cp "$here"/maps/* "$work/flows"
	whole=$(at corpus_whole)
	fill --store "$whole"
	dump corpus_whole postgres
fi

# The stores with a trial have runs of both versions that wait. Their nodes are killed.
flows=$work/trial
parked() { [ "$("$procaas" runs list --status parked | grep -c order)" = "$1" ]; }
if makes canary; then
	mkdir "$flows" && cp "$here"/trial/*.yaml "$flows"
	start --store "sqlite:$work/canary.db"
	for key in old-1 old-2; do "$procaas" submit --type order --key $key --id $key; done
	until_ok parked 2
	cp "$here"/trial/next/*.yaml "$flows"
	"$procaas" release reload --canary 50% --hold --reason corpus
	for n in 1 2 3 4 5 6 7 8; do "$procaas" submit --type order --key "key-$n" --id "key-$n"; done
	until_ok parked 10
	kill -9 $node
	wait $node || true
	start --store "sqlite:$work/canary.db"
	kill $node
	wait $node
	gzip -9nc "$work/canary.db" >"$dir/canary.db.gz"
	rm -r "$flows"
fi
if makes shadow; then
	mkdir "$flows" && cp "$here"/trial/*.yaml "$flows"
	start --store "sqlite:$work/shadow.db"
	cp "$here"/trial/next/*.yaml "$flows"
	"$procaas" release reload --shadow 100% --reason corpus
	for key in ended waits; do "$procaas" submit --type order --key $key --id $key; done
	until_ok parked 2
	"$procaas" submit --type approved --key ended --id approved-1
	replayed() { "$procaas" release canary | grep -q '1 different'; }
	until_ok replayed
	kill $node
	wait $node
	gzip -9nc "$work/shadow.db" >"$dir/shadow.db.gz"
fi
