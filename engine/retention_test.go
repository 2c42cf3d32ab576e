package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
)

// Audit records go when they are old, one by one with the time that passes; the
// last one stays.
func TestAuditIsKeptAsLongAsOneIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := r.engine(r.store, three, func(o *engine.Options) { o.AuditRetention = 10 * time.Minute })
		stop := r.run(e)
		synctest.Wait()
		change := engine.ControlChange{Mode: engine.ModeHold, Forever: true}
		for range 3 {
			if _, err := e.SetControl(context.Background(), "work", change, -1, engine.Actor{Name: "ann"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Minute)
		}
		kept := func() (n int) {
			list, err := e.Audit(context.Background(), engine.AuditFilter{Kind: engine.AuditControl, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if n := kept(); n != 2 {
			t.Errorf("after 12 minutes: want what is younger than 10, have %d", n)
		}
		time.Sleep(time.Hour)
		if n := kept(); n != 1 {
			t.Errorf("want the last record kept, have %d", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
