package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"

	"github.com/prometheus/client_golang/prometheus"
)

// ordered is a pipeline whose keys wait behind a failed run.
const ordered = `
flows:
  - {id: orders, key: !$ event.payload.order}
pipelines:
  - id: work
    flow: orders
    stages:
      - {id: a, handlers: [{id: do, step: {}}]}
`

// A Damager changes a column of a run's row by hand, as a fault of a disk does.
type Damager func(run, column string, value []byte)

// damages are columns with values that cannot be read.
var damages = []struct{ name, column, value string }{
	{"a byte of the event is wrong", "event", `{"id":"e-0","type":"work","payload":{"order":"k0"{}`},
	{"the event is not UTF-8", "event", "\xff\xfe\x00{"},
	{"the event is empty", "event", ""},
	{"the event is of another shape", "event", `{"id":7}`},
	{"the checkpoint is cut off", "checkpoint", `{"stage":0,"shared":{`},
	{"the checkpoint is not JSON", "checkpoint", "\x00\x01"},
	{"the definition is unknown", "bundle", "0123456789abcdef"},
}

// A damagedStore is a store with an engine that does not run yet.
type damagedStore struct {
	*probe
	*engine.Engine
	metrics *prometheus.Registry
}

func newDamaged(t testing.TB, db store.Store) *damagedStore {
	step := enginetest.Scripted("step", func(context.Context, *engine.Call, any) (model.Result, error) { return model.Result{}, nil })
	d := &damagedStore{probe: newProbe(t, db), metrics: prometheus.NewRegistry()}
	e, err := engine.New(engine.Options{
		Store: db, Types: []engine.HandlerType{step}, Bundle: enginetest.Load(t, ordered, step), Metrics: stats.NewMetrics(d.metrics),
		Drain: 100 * time.Millisecond,
	})
	d.must(err)
	d.Engine = e
	return d
}

// submit accepts an event of a key, and returns its run.
func (d *damagedStore) submit(id, key string, more ...string) string {
	out, err := d.Engine.Submit(d.Context(), []intake.Submission{{Event: model.Event{
		ID: id, Source: "s", Type: "work", Payload: map[string]any{"order": key, "id": id, "more": strings.Join(more, "")},
	}}})
	d.must(err)
	d.must(out[0].Err)
	return out[0].Receipt.Run
}

// hasEnded reports whether a run can be read and has succeeded.
func (d *damagedStore) hasEnded(id string) bool {
	r, err := d.probe.Runs.Run(d.Context(), id)
	return err == nil && r.Status == model.Succeeded
}

// Damage checks, on a store of its own, that a row that cannot be read stops only its own run and
// key.
func Damage(t *testing.T, db store.Store, damage Damager) {
	d := newDamaged(t, db)
	p, e, submit := d.probe, d.Engine, d.submit
	// Each damaged run comes first in the queue and in its key.
	bad := make([]string, len(damages))
	for i := range damages {
		bad[i] = submit(fmt.Sprint("bad-", i), fmt.Sprint("k", i))
	}
	node := p.join()
	for i, held := range node.claim(len(bad)) {
		if damages[i].column != "event" {
			begun := change(held, model.Running)
			begun.Bundle = e.Bundle().Hash
			node.commit(begun)
		}
	}
	node.leave(nil)
	for i, c := range damages {
		damage(bad[i], c.column, []byte(c.value))
	}
	behind := make([]string, len(damages))
	for i := range damages {
		behind[i] = submit(fmt.Sprint("behind-", i), fmt.Sprint("k", i))
	}
	good := submit("good", "other")

	enginetest.Run(t, e)
	p.eventually("the run of another key ends", func() bool { return p.run(good).Status == model.Succeeded })
	for i, c := range damages {
		p.eventually(c.name, func() bool { return p.run(bad[i]).Status == model.Failed })
		r := p.run(bad[i])
		if !r.Blocks || r.ErrorClass != model.ClassDamaged || !strings.Contains(r.Error, "runs cancel "+bad[i]) {
			t.Errorf("%s: want the run set aside with the remedy, have %t, %s, %s", c.name, r.Blocks, r.ErrorClass, r.Error)
		}
		p.wantStatus(behind[i], model.Waiting)
	}
	list, _, err := e.List(t.Context(), store.RunFilter{ErrorClass: model.ClassDamaged, Limit: 100})
	p.must(err)
	p.equal("listed", len(list), len(damages))
	p.equal("counted", int(counted(p, d.metrics, "procaas_runs_damaged_total")), len(damages))
	p.must(e.Healthy(t.Context()))
	for i := range damages {
		p.must(p.Runs.Retry(t.Context(), bad[i], steerer))
		p.eventually("it is set aside again", func() bool { return p.run(bad[i]).Status == model.Failed })
		p.must(p.Runs.Cancel(t.Context(), bad[i], steerer, store.Tell{}))
		p.wantStatus(bad[i], model.Cancelled)
		p.eventually("the next run of its key ends", func() bool { return p.run(behind[i]).Status == model.Succeeded })
	}
}

// DamagedAwait checks, on a store of its own, that a damaged event does not hide those behind it
// from a run that waits for an event.
func DamagedAwait(t *testing.T, db store.Store, damage Damager) {
	p := newProbe(t, db)
	node := p.join()
	c := node.claimOne(p.accept(p.event("k"))[0])
	damage(p.accept(p.event("k", ofType("paid")))[0], "event", []byte(`{"type":"paid","pa`))
	node.commit(p.listen(c, 0, "paid"))
	node.wantClaims()
	paid := p.event("k", ofType("paid"))
	p.accept(paid)
	node.claimOne(c.ID)
	p.equal("pending", runsOf(p.pending("k", 0, "paid")), []string{paid.ID})
}

// DamagedPage checks that rows on a page that cannot be read stop only their own runs and keys. open
// opens the store, and damage damages a page with a part of a run's event while it is closed. At most
// so many runs may be stuck.
func DamagedPage(t *testing.T, open func() store.Store, damage func(text string), stuck int) {
	const runs = 30
	db := open()
	d := newDamaged(t, db)
	ids := make([]string, runs)
	for i := range ids {
		ids[i] = d.submit(fmt.Sprint("event-", i), fmt.Sprint("k", i), strings.Repeat(fmt.Sprintf("part-%d ", i), 3000))
	}
	d.must(db.Close())
	damage("part-12 part-12")

	d = newDamaged(t, open())
	enginetest.Run(t, d.Engine)
	d.eventually("the other runs end", func() bool {
		ended := 0
		for _, id := range ids {
			if d.hasEnded(id) {
				ended++
			}
		}
		return ended >= runs-stuck
	})
	d.eventually("the node reports the row", func() bool { return d.Damaged() != nil })
	if why := d.Damaged().Error(); !strings.Contains(why, "store.db") {
		t.Errorf("want the file named, have %s", why)
	}
	d.equal("counted", counted(d.probe, d.metrics, "procaas_runs_damaged_total") >= 1, true)
	if stuck > 1 {
		return // other rows may need the page, too
	}
	d.submit("behind", "k12")
	last := d.submit("other", "other")
	d.eventually("a new run ends", func() bool { return d.hasEnded(last) })
	d.must(d.Healthy(t.Context()))
}

// counted returns the value of a counter without labels.
func counted(p *probe, r *prometheus.Registry, name string) float64 {
	families, err := r.Gather()
	p.must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	p.Fatalf("there is no metric %s", name)
	return 0
}
