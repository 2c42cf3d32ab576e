package records_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/engine/memory"
	"procaas/engine/records"
)

type nobody struct{}

func (nobody) Number() int64       { return 0 }
func (nobody) Nudge()              {}
func (nobody) Cancel(string)       {}
func (nobody) Move(string, string) {}

// TestNodesTellTheirFlags has a node that told its flags and never joined, one that is alive, and one that follows.
func TestNodesTellTheirFlags(t *testing.T) {
	t.Parallel()
	now := time.Now()
	o := &records.Runs{Store: memory.New(nil).Ports(), Node: nobody{}, Now: func() time.Time { return now }}
	tell := func(name, retention string) {
		t.Helper()
		if err := o.TellFlags(t.Context(), name, map[string]string{"retention": retention}); err != nil {
			t.Fatal(err)
		}
	}
	join := func(name string) {
		t.Helper()
		if _, err := o.Store.Ledger.Join(t.Context(), name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	tell("gone", "1h")
	tell("a", "24h")
	join("a")
	now = now.Add(time.Hour)
	tell("b", "48h")
	join("b")
	join("gone") // of a release that tells nothing
	nodes, err := o.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, n := range nodes {
		have[n.Name] = n.Flags["retention"]
	}
	if diff := cmp.Diff(map[string]string{"a": "24h", "b": "48h", "gone": ""}, have); diff != "" {
		t.Error(diff)
	}
}
