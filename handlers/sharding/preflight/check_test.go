package preflight_test

import (
	"strings"
	"testing"

	"procaas/handlers/sharding/preflight"
)

// What only the stream needs is no reason to refuse a shard: its keys move by lock-copy-switch.
func TestServerWithoutStreamIsNotRefused(t *testing.T) {
	t.Parallel()
	good := preflight.Server{Version: 150000, WALLevel: "logical", Slots: 20, Senders: 20, Replicates: true}
	replica, timid, full := good, good, good
	replica.WALLevel, replica.Slots = "replica", 0
	timid.Replicates = false
	full.Slots = 1
	for _, c := range []struct {
		name    string
		server  preflight.Server
		blocks  bool
		wording string // of its only finding; empty for none
	}{
		{"good", good, false, ""},
		{"wal_level", replica, false, "lock-copy-switch"},
		{"role", timid, false, "lock-copy-switch"},
		{"slots", full, true, "max_replication_slots is 1"},
	} {
		found := preflight.Check(preflight.Map{}, preflight.Facts{Server: c.server})
		switch {
		case preflight.Blocks(found) != c.blocks:
			t.Errorf("%s: %v", c.name, found)
		case c.wording == "" && len(found) > 0:
			t.Errorf("%s: %v", c.name, found)
		case c.wording != "" && (len(found) != 1 || !strings.Contains(found[0].String(), c.wording)):
			t.Errorf("%s: %v", c.name, found)
		}
	}
}
