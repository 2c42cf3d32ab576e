#!/bin/sh
# Benchmarks, for an idle machine, from the top folder: sh cmd/procaas-bench/bench.sh [KIND...]. Without KIND, the Go benchmarks of the hot paths.
# All others take minutes. inbox takes an hour, and flows, recovery, inbox and queue need the binary of make build.
set -eu
kinds="go flows recovery inbox queue shards move pauses resolve"

for kind in ${*:-go}; do
	case $kind in
	go) go run ./engine/enginetest/testdb -- go test -run '^$' -bench . -benchmem ./... ;;
	# What durability costs, beside programs written by hand.
	flows) go run ./cmd/procaas-bench ;;
	# How long runs stop when their node is killed.
	recovery) go run ./cmd/procaas-bench -rounds 3 -only recovery ;;
	# An inbox on 1, 2 and 4 PostgreSQL servers, and how long its keys stop while a million runs move.
	inbox) go run ./cmd/procaas-bench -rounds 3 -only inbox ;;
	# The queue of tasks, beside loops written by hand.
	queue) go run ./cmd/procaas-bench -rounds 3 -only queue-drain,queue-hindered,queue-put,queue-latency,queue-bloat ;;
	# The read-only window of moving a key of a million rows, by both methods.
	shards) go test -count 1 -timeout 60m -run '^TestWindow$' ./handlers/sharding/transfer -rows 1000000 -rounds 3 ;;
	# A key moves between two PostgreSQL servers while it is written to. It shows what happens.
	move) go test -count 1 -timeout 10m -run '^TestWindow$' ./handlers/sharding/transfer -rows 20000 -show ;;
	# For how long clients cannot write to a key that moves to and fro: p50, p97, max.
	pauses) go test -count 1 -timeout 10m -run '^TestWritePause$' ./handlers/sharding/transfer -span 10s ;;
	# Resolving over HTTP beside a bare handler: requests a second, processor time, p97.
	resolve) go test -count 1 ./handlers/sharding/shardmap -run '^$' -bench '^BenchmarkHTTP$' -benchtime 40x ;;
	*) echo "there is no $kind; want some of $kinds" >&2 && exit 2 ;;
	esac
done
