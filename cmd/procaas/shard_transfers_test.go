package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/engine"
)

// TestTransferCommands keeps what the commands about transfers print, and their exit codes.
func TestTransferCommands(t *testing.T) {
	t.Parallel()
	var quiet lockedBuffer
	server, stop := runNode(t, nodeFlags{
		store: "sqlite:" + filepath.Join(t.TempDir(), "a.db"), listen: "127.0.0.1:0", name: "here", migrate: true, maxInFlight: 4,
		lease: time.Minute, drain: time.Second, maxBody: "1MiB", logFormat: "json", logLevel: "error",
		pipelines: []string{"../../pipelines/sharding"},
	}, streams{strings.NewReader(""), &quiet, &quiet})
	defer stop()
	var shown strings.Builder
	for _, line := range []string{
		"shard transfers mail", "shard transfers mail --format json", "shard transfers", "shard pause t_1", "shard cancel t_1 --reason mistake",
		"shard rollback",
	} {
		var out bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", server), streams{strings.NewReader(""), &out, &out})
		shown.WriteString("$ procaas " + line + "\n" + withoutBlanks(out.String()) + "exit code " + string(rune('0'+code)) + "\n\n")
	}
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var table strings.Builder
	err := printTransfers(&table, []engine.ShardTransfer{
		{
			ID: "t_3", Key: "42", Source: "s1", Target: "s2", State: engine.TransferRunning, Step: "copy", Percent: 64, Rows: 640000,
			Lag: 20 << 10,
		},
		{
			ID: "t_2", Key: "#7", Source: "s1", Target: "s3", State: engine.TransferObserving, Step: "retire", Rows: 12, WindowMS: 7.51,
			Observe: began,
		},
		{
			ID: "t_1", Key: "43", Source: "s1", Target: "s2", State: engine.TransferFailed, Step: "plan",
			Error: "refused: shard s2 has no table mail",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "shard_transfers.golden", shown.String()+table.String())
}
