package main

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
)

// TestShardCommandsTellOfMapsAndShards keeps what the command shard prints, and its exit
// codes. The shard is a database of the test cluster, which cannot be enrolled.
func TestShardCommandsTellOfMapsAndShards(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	yaml := strings.ReplaceAll(`shard-maps:
  - id: mail
    key: [user, folder]
    owner: mail-team
    strategy: slots
    slots: 4
    tables: [{table: no_such_table}]
    connect: {database: postgres, user: postgres, parameters: {sslmode: disable}}
    shards:
      - {id: s1, slots: 0-3, hosts: [{address: "HOST", dc: a}]}
      - {id: s2, hosts: [{address: "127.0.0.1:1"}]} # which nobody reaches
  - id: free
    key: [user]
    strategy: slots
    slots: 4
    connect: {database: postgres, user: postgres, parameters: {sslmode: disable}}
    shards:
      - {id: s1, slots: 0-3, hosts: [{address: "HOST", dc: a}]}
      - {id: s2, hosts: [{address: "127.0.0.1:1"}]}
pipelines:
  - id: shard-transfer
    stages: [{id: move, handlers: [{id: move, set: {}}]}]
`, "HOST", u.Host)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	var quiet lockedBuffer
	server, stop := runNode(t, serve.Flags{
		Store: dsn, Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 4, Lease: time.Minute, Drain: time.Second,
		MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{dir},
	}, cli.Streams{In: strings.NewReader(""), Out: &quiet, Err: &quiet})
	defer stop()
	run := func(line string) string {
		var out bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		text := strings.NewReplacer(server, "SERVER", u.Host, "HOST:PORT").Replace(out.String())
		return "$ procaas " + line + "\n" + text + "exit code " + string(rune('0'+code)) + "\n\n"
	}
	lines := []string{
		"shard list", "shard resolve mail 42/inbox", "shard resolve mail 42 --mode replica", "shard resolve male 42", "shard resolve mail 1/2/3",
		"shard check mail s9", "shard enroll mail s1", "shard enroll mail s9", "shard close mail s1", "shard close mail s1 --reason full --dry-run",
		"shard drain mail s1 --reason moved --dry-run", "shard drain free s1 --reason moved --dry-run",
		"shard show mail s9",
		"shard close mail s9 --reason full", "shard move mail 42 s1", "shard move free 42 s2 --dry-run", "shard move mail 42 s22 --dry-run",
		"shard move free 42 s2 --grace 49h",
		"shard move mail 42 archive", "shard split mail 42 --dry-run", "shard split mail 1/2/3", "shard merge mail 42",
		"shard remove mail", "shard remove male --dry-run", "shard list male --format json", "shard resolve mail 42 --format xml",
	}
	transcript := func() string {
		var shown strings.Builder
		for _, line := range lines {
			shown.WriteString(withoutBlanks(run(line)))
		}
		return shown.String()
	}
	// A host may not be known yet, or not answer in time while the machine is busy.
	eventually(t, "the master to be known", func() bool { return strings.Contains(run("shard list mail"), "HOST:PORT") })
	want, err := os.ReadFile("../../testdata/cli/shard.golden")
	if err != nil && !*update {
		t.Fatal(err)
	}
	have := transcript()
	for over := patience.Over(time.Minute); have != string(want) && !*update && !over(); have = transcript() {
	}
	golden(t, "shard.golden", have)
	for _, line := range []string{"shard check mail", "shard check mail s1 --format json"} {
		if text := run(line); !strings.Contains(text, "no_such_table") || !strings.Contains(text, "there is none") ||
			strings.Contains(text, "could not be checked") == strings.Contains(line, "s1") || !strings.HasSuffix(text, "exit code 1\n\n") {
			t.Errorf("%s", text)
		}
	}
	for _, line := range []string{
		"shard drain free s1 --reason moved --format json", "shard open free s1 --format json",
		"shard show mail s1 --format json", "shard list --format json", "shard list mail --format json", "shard resolve mail 42 --format json",
	} {
		eventually(t, line, func() bool { return strings.HasSuffix(run(line), "exit code 0\n\n") })
		text := run(line)
		if !strings.Contains(text, `"s1"`) && !strings.Contains(text, `"mail"`) {
			t.Errorf("%s", text)
		}
	}
	if text := run("audit --kind shard"); !strings.Contains(text, "free/s1") || !strings.Contains(text, "draining") {
		t.Errorf("the audit lacks what was done to s1: %s", text)
	}
	// No run begins that the preflight would refuse, and no drain.
	for _, line := range []string{"shard move mail 42 s2", "shard move mail 42 s2 --dry-run", "shard drain mail s1 --reason moved"} {
		if text := run(line); !strings.Contains(text, "no_such_table") || strings.Contains(text, ": run ") || strings.HasSuffix(text, "exit code 0\n\n") {
			t.Errorf("%s", text)
		}
	}
	var moved string
	eventually(t, "a move", func() bool {
		text, ok := strings.CutPrefix(run("shard move free 42 s2 --grace 0s"), "$ procaas shard move free 42 s2 --grace 0s\n")
		_, moved, _ = strings.Cut(text, "moves from s1 to s2: run ")
		return ok && moved != ""
	})
	moved, _, _ = strings.Cut(moved, "\n")
	if text := run("runs show " + moved + " --format json"); !strings.Contains(text, `"grace": "0s"`) {
		t.Errorf("want a move without a way back, have %s", text)
	}
}

// withoutBlanks makes columns as wide as their words, for the width of a port differs, and
// drops what a moment decides.
func withoutBlanks(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "wal_level") {
			continue // which may be as it must
		}
		if strings.HasPrefix(line, "HOST:PORT") {
			line = "HOST:PORT a master true"
		}
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, " ") {
			line = strings.Join(fields, " ")
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
