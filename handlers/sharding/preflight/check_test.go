package preflight_test

import (
	"math"
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

// Each shard is offered a range for a sequence that no other shard has.
func TestSequencesAreOfferedARangePerShard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		place int
		most  int64
		want  string
	}{
		{0, math.MaxInt64, "alter sequence ids minvalue 1 maxvalue 1000000000000000"},
		{2, math.MaxInt64, "alter sequence ids minvalue 2000000000000001 maxvalue 3000000000000000 start with 2000000000000001 restart"},
		{1, math.MaxInt32, "alter sequence ids minvalue 100000001 maxvalue 200000000 start with 100000001 restart"},
		{30, math.MaxInt32, "make the column a bigint, and give its sequence a range of its own on each shard"},
		{0, math.MaxInt16, "make the column a bigint, and give its sequence a range of its own on each shard"},
	} {
		table := preflight.TableFacts{
			Kind: "r", Persistence: "p", Identity: "d", Owned: true,
			Columns: []preflight.Column{{Name: "user_id", Type: "bigint"}, {Name: "id", Type: "bigint", Sequence: "ids", Most: c.most}},
			Indexes: []preflight.Index{{Name: "pk", Columns: []string{"user_id", "id"}, Primary: true}},
		}
		found := preflight.Check(preflight.Map{
			Tables: []preflight.Table{{Name: "letters", Key: []string{"user_id"}}}, Ints: true, Place: c.place,
		}, preflight.Facts{
			Server: preflight.Server{Version: 150000, WALLevel: "logical", Slots: 20, Senders: 20, Replicates: true},
			Tables: []preflight.TableFacts{table},
		})
		if len(found) != 1 || !strings.HasSuffix(found[0].Mend, c.want) {
			t.Errorf("place %d of %d: %v", c.place, c.most, found)
		}
	}
}
