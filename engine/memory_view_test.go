package engine_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/budget"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Each node knows only its own memory, so a list has that of the node that answers.
func TestANodeShowsItsOwnMemory(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := budget.New(1 << 30)
		bounded, _ := r.start(awaiting, func(o *engine.Options) { o.Name, o.Memory = "bounded", m })
		free, _ := r.start(awaiting, func(o *engine.Options) { o.Name = "free" })
		used := m.Hold(budget.Requests)
		used.Set(3 << 20)
		defer used.Close()
		for asked, want := range map[*engine.Engine]string{bounded: "bounded", free: ""} {
			nodes, err := asked.Nodes(context.Background())
			if err != nil || len(nodes) != 2 {
				t.Fatalf("want two nodes, have %v and %v", nodes, err)
			}
			for _, n := range nodes {
				switch v := n.Memory; {
				case (v != nil) != (n.Name == want):
					t.Errorf("want the memory of %q only, have %+v of %q", want, v, n.Name)
				case v != nil && (v.Limit != 1<<30 || v.Budget != 1<<29 || v.Used < 3<<20 || v.Waiting != 0):
					t.Errorf("want 3 MiB of 512 MiB in use, have %+v", v)
				}
			}
		}
	})
}

// A page of large runs is shorter on a small node. The cursor leads to all of them.
func TestAPageOfRunsFitsASmallNode(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(bulky, func(o *engine.Options) { o.Memory = budget.New(64 << 20) }) // pages of 1 MiB
		const runs = 4
		for i := range runs {
			r.submit(e, model.Event{Type: "work", Key: "k" + strconv.Itoa(i), Payload: strings.Repeat("x", 400<<10)})
		}
		total, pages := 0, 0
		for f := (store.RunFilter{Limit: 50}); ; pages++ {
			page, next, err := e.List(context.Background(), f)
			if err != nil {
				t.Fatal(err)
			}
			total += len(page)
			f.Cursor = next
			if next == "" {
				pages++
				break
			}
		}
		if total != runs || pages < 2 {
			t.Errorf("want %d runs on several pages, have %d on %d", runs, total, pages)
		}
	})
}

// A call that waits for the memory of a large reply has the only place at its handler. The run that
// has the reserve needs that place to go on.
func TestLargeRepliesLeaveTheirPlaceToTheRunWithTheReserve(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const one = 8 << 20
		m := budget.New(8 * one)
		full, reserved := make(chan struct{}), make(chan struct{})
		r.on("first", func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
			if value != "a" {
				return model.Result{}, nil
			}
			<-full
			defer close(reserved)
			return model.Result{}, c.Reserve(ctx, one/2, false)
		})
		r.on("narrow", func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
			if value == "a" {
				return model.Result{}, nil
			}
			<-reserved
			return model.Result{}, c.Reserve(ctx, one/2, false)
		})
		e, _ := r.start(narrow, func(o *engine.Options) { o.Memory = m })
		b := r.submit(e, event("work", "b"))
		synctest.Wait()
		a := r.submit(e, event("work", "a"))
		synctest.Wait()
		var others []*budget.Holder
		for _, kind := range []budget.Kind{budget.Requests, budget.Proxied, budget.Pages} {
			h := m.Hold(kind)
			h.Set(one)
			others = append(others, h)
		}
		close(full)
		pass(time.Minute)
		r.settle(e, a, model.Succeeded)
		for _, h := range others {
			h.Close()
		}
		pass(time.Minute)
		r.settle(e, b, model.Succeeded)
	})
}

const narrow = `
pipelines:
  - id: work
    on: [work]
    stages:
      - {id: s, handlers: [{id: first, step: {value: !$ event.key}}]}
      - {id: t, handlers: [{id: narrow, max-in-flight: 1, step: {value: !$ event.key}}]}
`

const bulky = `
pipelines:
  - id: work
    stages:
      - {id: s, handlers: [{id: one, step: {}}]}
`
