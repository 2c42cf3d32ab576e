package sharding_test

import (
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// A coordinator that hangs or dies between the seal of the source and the switch of the map
// leaves a key that thaws by nobody's clock: others find it, and the key can be written again
// long before the step is done anew.
func TestKeyThawsWhoseCoordinatorHangsBehindTheSeal(t *testing.T) {
	t.Parallel()
	r := moverOn(t, newRig(t, transferMap), 2*time.Second)
	c := r.write()
	c.await(10)
	sealed, release := make(chan struct{}), make(chan struct{})
	r.at("sealed", func() error {
		close(sealed)
		<-release
		return nil
	})
	r.start(`, "grace": "0s"`)
	<-sealed
	var tried int64 // by the coordinator that hangs, or later
	r.ask("map", "select tried from shard_placements where key = '42'", &tried)
	c.await(20)
	if p, err := r.m.Find(t.Context(), "42"); err != nil || p.Shard != "s1" || p.Epoch != 1 || !p.Owned {
		t.Errorf("placed at %+v, %v", p, err)
	}
	close(release)
	got := r.awaitState(transfers.TransferDone)
	if got.Next <= tried {
		t.Errorf("switched at epoch %d: that of the coordinator that hung", got.Next)
	}
	c.await(10)
	c.check("s2")
}

// A client that was refused and asks for a later epoch need not wait for the look at the host.
func TestQuestionForALaterEpochThawsAnOverdueKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, transferMap)
	m := r.enroll("mail")
	if _, err := m.Place(t.Context(), "42", "s1", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		switched bool
		want     string // of the guard at the old epoch
	}{{"not switched", false, ""}, {"switched", true, "PC001"}} {
		tr, err := m.BeginTransfer(t.Context(), shardmap.Begin{Key: "42", Target: "s2", Transfer: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		r.exec("s1", "select procaas.claim('mail', '42', 1, $1)", tr.Next)
		r.exec("s1", "select procaas.freeze('mail', '42', 1, $1, 'dead', 1, 50)", tr.Next)
		r.exec("s1", "update procaas.fences set until = null where key = '42'") // sealed
		if c.switched {
			if err := m.Switch(t.Context(), tr); err != nil {
				t.Fatal(err)
			}
		}
		patience.Until(t, c.name+": the fence to tell what the map does", func() bool {
			_, _ = r.Resolve(t.Context(), "mail", transfers.ShardQuestion{Key: "42", AfterEpoch: 1})
			var state string
			r.ask("s1", "select state from procaas.fences where key = '42'", &state)
			return state == map[bool]string{false: "active", true: "moved"}[c.switched]
		})
		if have := sqlState(t, r.try("s1", "select procaas.guard('mail', '42', 1)")); have != c.want {
			t.Errorf("%s: the guard says %q, want %q", c.name, have, c.want)
		}
		if !c.switched {
			if err := m.Switch(t.Context(), tr); err == nil {
				t.Fatal("the coordinator whose freeze was ended has switched")
			}
		}
	}
}
