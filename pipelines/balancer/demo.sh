#!/bin/sh
# Eight real workers, their balancer and requests of which many are for one key: watch the Gini index come down in
# the console. Usage: demo.sh BINARY [SECONDS]; without SECONDS it goes on until Ctrl-C.
set -eu
bin=$1 seconds=${2:-0} here=$(dirname "$0") dir=$(mktemp -d) api=http://127.0.0.1:8085
children=
end() { trap - EXIT INT TERM; kill $children 2>/dev/null || true; wait; rm -rf "$dir"; }
trap end EXIT
trap 'exit 0' INT TERM
for i in 1 2 3 4 5 6 7 8; do
	"$bin" demo-worker --name "worker-$i" --listen "127.0.0.1:930$i" --cluster fanout --partitions 64 --capacity 100 >"$dir/worker-$i.log" 2>&1 &
	children="$children $!"
done
"$bin" serve --store "sqlite:$dir/demo.db" --pipelines "$here" --listen 127.0.0.1:8085 --log-level error \
	--proxy fanout=127.0.0.1:9300 --proxy-key fanout=query:key &
children="$children $!"
until curl -sf "$api/v1/clusters/fanout/assignment" >/dev/null 2>&1; do sleep 1; done
echo "console: $api/   requests go to http://127.0.0.1:9300/keys/x?key=KEY"
echo "v5 takes the first drops for those of cold caches: it moves partitions once they have lasted for some minutes"
curl -s --rate 85/s -o /dev/null "http://127.0.0.1:9300/keys/[1-100000000]?key=hot" >/dev/null 2>&1 &
children="$children $!"
curl -s --rate 250/s -o /dev/null "http://127.0.0.1:9300/keys/x?key=user-[1-100000000]" >/dev/null 2>&1 &
children="$children $!"
passed=0
while [ "$seconds" = 0 ] || [ "$passed" -lt "$seconds" ]; do
	sleep 4
	passed=$((passed + 4))
	"$bin" balancer status --server "$api" | grep -E '^(Gini|alert)' || true
done
"$bin" balancer status --server "$api" || true
"$bin" balancer moves --server "$api" --limit 10
