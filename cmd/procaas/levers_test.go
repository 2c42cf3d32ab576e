package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/plant"
	balancerremote "procaas/handlers/balancer/remote"
)

// unwatched is a cluster that no trigger balances.
const unwatched = `clusters:
  - id: fanout
    partitions: 6
    workers:
      - {id: w1, url: http://127.0.0.1:9101, zone: a}
      - {id: w2, url: http://127.0.0.1:9102, zone: b}
      - {id: w3, url: http://127.0.0.1:9103, zone: a}
    map:
      workers: {w1: ["0-4"], w2: ["0-5"], w3: ["2-5"]}
`

// TestLeverCommands compares what the commands print with testdata/cli/levers.golden.
func TestLeverCommands(t *testing.T) {
	t.Parallel()
	o := operateNode(t, unwatched)
	have := o.transcript(
		"balancer status",
		"balancer moves",
		"balancer ban w1 --reason disk",
		"balancer ban w1 --reason disk --for 30m",
		"balancer drain --zone a --reason moving --for 2h",
		"balancer drain w2 --reason rolling",
		"balancer pin 4 w3 --reason test",
		"balancer freeze --reason hands-off",
		"balancer dry-run --reason look",
		"balancer status",
		"balancer explain 4",
		"balancer explain 5 --format json",
		"balancer record",
		"balancer record fanaut",
		"balancer unban w1",
		"balancer unban w1",
		"balancer undrain --zone a",
		"balancer undrain w2 --reason done",
		"balancer unpin 4",
		"balancer unfreeze",
		"balancer wet-run --format json",
		"balancer ban w1 --reason disk",
		"balancer pin 0 w1 --reason test",
		"balancer status",
		"balancer unban w1",
		"balancer unpin 0 --format json",
		"balancer ban w9 --reason typo",
		"balancer ban w1",
		"balancer ban",
		"balancer drain --reason x",
		"balancer drain w1 --zone a --reason x",
		"balancer drain --zone q --reason x",
		"balancer pin 0 w3 --reason x",
		"balancer pin 6 w3 --reason x",
		"balancer pin six w3 --reason x",
		"balancer ban w1 --reason x --for soon",
		"balancer explain 6",
		"balancer explain x",
		"balancer status --cluster fanaut",
	)
	golden(t, "levers.golden", have)
	o.command(cli.ExitFine, `fanout/drain/w2 +done\n +.*removed`, "audit", "--kind", "cluster")
}

// The balancer of two nodes goes on when one of them ends, and heeds levers.
func TestBalancerGoesOnOnAnotherNode(t *testing.T) {
	t.Parallel()
	dsn, dir := enginetest.MigratedPostgres(t), t.TempDir()
	var workers strings.Builder
	for i := range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"requests": 1, "drops": 0, "busy": 0.1, "age_s": 100, "partitions": {}}`)
		}))
		t.Cleanup(s.Close)
		fmt.Fprintf(&workers, "      - {id: w%d, url: %q}\n", i+1, s.URL)
	}
	pipeline, err := os.ReadFile(filepath.Join("..", "..", "pipelines", "balancer", "balance.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cluster := "clusters:\n  - id: fanout\n    partitions: 12\n    step: 200ms\n    healthcheck: {timeout: 1m}\n    parameters: {margin: 3, friction: 2}\n    workers:\n" + workers.String()
	quick := strings.Replace(string(pipeline), "every: 2s", "every: 200ms", 1)
	for name, text := range map[string]string{"cluster.yaml": cluster, "balance.yaml": quick} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first, stop := startNodeUntil(t, dsn, dir)
	second, _ := startNodeUntil(t, dsn, dir)
	until := func(client *client.Client, what string, ok func(clusters.ClusterView) bool) (v clusters.ClusterView) {
		t.Helper()
		ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
		defer cancel()
		for {
			v, err := balancerremote.Cluster(ctx, client, "fanout")
			if err == nil && ok(v) {
				return v
			}
			if ctx.Err() != nil {
				t.Fatalf("want %s, have %+v, %v", what, v, err)
			}
			clock.Pause(ctx, 20*time.Millisecond)
		}
	}
	one, other := client.New(first, ""), client.New(second, "")
	placed := until(one, "all partitions placed", func(v clusters.ClusterView) bool { return v.Version > 0 && v.Unassigned == 0 })
	ban := func(client *client.Client, worker string) {
		t.Helper()
		eventually(t, "a ban of "+worker, func() bool {
			_, err := balancerremote.PullLever(t.Context(), client, "fanout", clusters.LeverPull{Lever: clusters.LeverBan, Worker: worker, Partition: -1}, "test")
			return err == nil
		})
	}
	ban(one, "w2")
	banned := until(other, "w2 empty", func(v clusters.ClusterView) bool {
		return v.Version > placed.Version && len(v.Workers) == 3 && v.Workers[1].Partitions == 0 && v.Workers[1].Banned
	})
	stop()
	until(other, "a later observation", func(v clusters.ClusterView) bool { return v.Observed.After(banned.Observed.Add(time.Second)) })
	ban(other, "w1")
	eventually(t, "all workers up in the metrics", func() bool { // one may be slow to answer for a while
		reply, err := http.Get(second + "/metrics")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		var metrics strings.Builder
		problems, err := promlint.New(io.TeeReader(reply.Body, &metrics)).Lint()
		if err != nil || len(problems) > 0 {
			t.Fatalf("want metrics of the cluster, have %v, %v and\n%s", problems, err, metrics.String())
		}
		return strings.Contains(metrics.String(), `procaas_cluster_workers_up{cluster="fanout"} 3`)
	})
	until(other, "all on w3 in a later version", func(v clusters.ClusterView) bool {
		return v.Version > banned.Version && len(v.Workers) == 3 && v.Workers[2].Partitions == 12
	})
	recording, err := balancerremote.Recording(t.Context(), other, "fanout")
	if err != nil {
		t.Fatal(err)
	}
	checkReplay(t, recording)
	moves, err := balancerremote.Moves(t.Context(), other, "fanout", 100)
	if err != nil || !slices.ContainsFunc(moves, func(m clusters.MoveLog) bool { return m.Reason == "worker w1 is banned: test" }) {
		t.Errorf("want a move to tell of the ban, have %v, %v", moves, err)
	}
}

// checkReplay replays a recording of a live cluster.
func checkReplay(t *testing.T, recording clusters.Recording) {
	t.Helper()
	if n := reflect.TypeFor[balancer.Params]().NumField(); len(recording.Parameters) != n {
		t.Errorf("want %d parameters, have %v", n, recording.Parameters)
	}
	var file bytes.Buffer
	if err := plant.WriteRecording(&file, recording); err != nil {
		t.Fatal(err)
	}
	read, err := plant.ReadRecording(&file)
	if err != nil {
		t.Fatal(err)
	}
	want := balancer.DefaultParams()
	want.Margin, want.Friction = 3, 2
	if read.Params != want {
		t.Errorf("want %+v, have %+v", want, read.Params)
	}
	replayed, err := read.Replay([]string{"v1"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(recording.Observations); n < 2 || replayed.Observations != n || len(replayed.Policies) != 2 {
		t.Errorf("want %d observations, what was done and v1, have %+v", n, replayed)
	}
}
