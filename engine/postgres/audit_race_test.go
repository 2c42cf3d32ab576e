package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// Two stores, as two processes have them, write one audit and beat for their nodes at once, and
// one of them follows the chain meanwhile: no record is lost, the chain holds at each moment, and
// nobody takes a live node for a dead one.
func TestTwoStoresWriteOneAuditAndLive(t *testing.T) {
	t.Parallel()
	const writers, records = 4, 25
	dsn := enginetest.Postgres(t)
	both := []*postgres.Store{open(t, dsn), open(t, dsn)}
	var nodes []int64
	for i, s := range both {
		node, err := s.Join(t.Context(), fmt.Sprint("node-", i), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	written := make(chan struct{})
	var writing, watching sync.WaitGroup
	for i, s := range both {
		for w := range writers {
			writing.Go(func() {
				for r := range records {
					name := fmt.Sprintf("c_%d_%d", i, w)
					if _, err := s.SetConfig(t.Context(), name, fmt.Append(nil, r), -1, store.Actor{Name: name}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		watching.Go(func() {
			for {
				if _, err := s.Beat(t.Context(), nodes[i], time.Hour, ""); err != nil {
					t.Errorf("node-%d: %v", i, err)
				}
				chains, err := s.VerifyAudit(t.Context(), nil)
				if err != nil || len(chains) != 1 || chains[0].Break != nil {
					t.Errorf("want a chain that holds, have %+v, %v", chains, err)
				}
				select {
				case <-written:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(written)
	watching.Wait()
	for _, s := range both {
		chains, err := s.VerifyAudit(t.Context(), nil)
		if want := len(both) * writers * records; err != nil || chains[0].Records != want || chains[0].Last != int64(want) {
			t.Errorf("want a chain of %d records, have %+v, %v", want, chains, err)
		}
		all, err := s.Nodes(t.Context())
		for _, n := range all {
			if !n.Alive {
				t.Errorf("want both nodes alive, have %+v", all)
			}
		}
		if err != nil || len(all) != len(both) {
			t.Errorf("want both nodes, have %+v, %v", all, err)
		}
	}
}
