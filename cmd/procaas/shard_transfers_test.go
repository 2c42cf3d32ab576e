package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/handlers/sharding/transfers"
)

// TestTransferCommands keeps what the commands about transfers print, and their exit codes.
func TestTransferCommands(t *testing.T) {
	t.Parallel()
	var quiet lockedBuffer
	server, stop := runNode(t, serve.Flags{
		Store: "sqlite:" + filepath.Join(t.TempDir(), "a.db"), Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 4,
		Lease: time.Minute, Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error",
		Pipelines: []string{"../../pipelines/sharding"},
	}, cli.Streams{In: strings.NewReader(""), Out: &quiet, Err: &quiet})
	defer stop()
	var shown strings.Builder
	for _, line := range []string{
		"shard transfers mail", "shard transfers mail --format json", "shard transfers", "shard pause t_1", "shard cancel t_1 --reason mistake",
		"shard rollback",
	} {
		var out bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		shown.WriteString("$ procaas " + line + "\n" + withoutBlanks(out.String()) + "exit code " + string(rune('0'+code)) + "\n\n")
	}
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	transfers := []transfers.ShardTransfer{
		{
			ID: "t_3", Key: "42", Source: "s1", Target: "s2", State: transfers.TransferRunning, Step: "copy", Percent: 64, Rows: 640000,
			Lag: 20 << 10,
		},
		{
			ID: "t_2", Key: "#7", Source: "s1", Target: "s3", State: transfers.TransferObserving, Step: "retire", Rows: 12, WindowMS: 7.51,
			Observe: began,
		},
		{
			ID: "t_1", Key: "43", Source: "s1", Target: "s2", State: transfers.TransferFailed, Step: "plan",
			Error: "refused: shard s2 has no table mail",
		},
	}
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(cli.Items(transfers)); err != nil {
			t.Error(err)
		}
	}))
	defer answers.Close()
	var table bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &table, Err: &table}
	if code := Main(t.Context(), []string{"shard", "transfers", "mail", "--server", answers.URL}, s); code != cli.ExitFine {
		t.Errorf("have exit code %d", code)
	}

	golden(t, "shard_transfers.golden", shown.String()+table.String())
}
