package balancer

import (
	"fmt"
	"testing"
	"time"

	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// A node that takes over a large cluster reads only the latest part of the ring.
func TestLargeClusterReplaysTheLatestObservations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		partitions, want int
	}{{64, 450}, {10_000, 50}, {1_000_000, 1}} {
		cluster := &language.Cluster{ID: "c", Partitions: c.partitions, Step: 2 * time.Second}
		db := memory.New(nil)
		at := 1_700_000_001.5
		for range 500 { // more than the ring has
			at += 2
			_, err := db.WriteDocuments(t.Context(), 0, []store.DocumentWrite{{
				Kind: clusters.DocumentObservation, Name: placeOf(cluster, at), Version: store.AnyVersion,
				Value: fmt.Appendf(nil, `{"cluster": "c", "t": %f}`, at),
			}}, nil)
			if err != nil {
				t.Fatal(err)
			}
		}
		have, err := recorded(t.Context(), db, cluster, at+2)
		if err != nil || len(have) == 0 {
			t.Fatalf("%d partitions: have %d observations: %v", c.partitions, len(have), err)
		}
		if len(have) != c.want || have[len(have)-1].At != at {
			t.Errorf("%d partitions: have %d observations up to %f, want %d up to %f", c.partitions, len(have), have[len(have)-1].At, c.want, at)
		}
		for i := range have[1:] {
			if have[i+1].At-have[i].At != 2 {
				t.Fatalf("%d partitions: %f follows %f", c.partitions, have[i+1].At, have[i].At)
			}
		}
	}
}
