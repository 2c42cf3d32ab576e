package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
)

// onePipeline is a definition that differs by the id of its handler.
func onePipeline(handler string) string {
	return "pipelines: [{id: work, stages: [{id: a, handlers: [{id: " + handler + ", step: {}}]}]}]\n"
}

var ann = store.Actor{Name: "ann", Reason: "why"}

func (r *rig) wantBundle(e *engine.Engine, yaml string) {
	r.t.Helper()
	if have, want := e.Bundle().Hash, r.bundle(yaml).Hash; have != want {
		r.t.Errorf("want definition %.8s, have %.8s\n%s", want, have, r.log.String())
	}
}

func TestAllNodesConvergeOnTheNewestDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(onePipeline("one"))
		second, _ := r.start(onePipeline("one"))
		third, _ := r.start(onePipeline("one"))
		diff, err := second.Load(context.Background(), r.bundle(onePipeline("two")), ann)
		if err != nil {
			t.Fatal(err)
		}
		if diff.Old != r.bundle(onePipeline("one")).Hash || diff.New != r.bundle(onePipeline("two")).Hash || len(diff.Changes) != 2 {
			t.Errorf("want a handler removed and one added, have %+v", diff)
		}
		r.wantBundle(second, onePipeline("two"))
		pass(time.Second)
		for _, e := range []*engine.Engine{first, second, third} {
			r.wantBundle(e, onePipeline("two"))
		}
		// Back again, by another node.
		if _, err := third.Load(context.Background(), r.bundle(onePipeline("one")), ann); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		for _, e := range []*engine.Engine{first, second, third} {
			r.wantBundle(e, onePipeline("one"))
		}
	})
}

// Files are empty for a moment while they are written: that must not end all intake.
func TestFilesWithoutPipelinesReplaceNone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(onePipeline("one"))
		for _, text := range []string{"", "\n", "# all is commented out\n", "configs: {CITIES: {enabled: true}}\n"} {
			_, err := e.Load(context.Background(), r.bundle(text), ann)
			if _, ok := errors.AsType[*definitions.LoadError](err); !ok {
				t.Fatalf("%q: want a LoadError, have %v", text, err)
			}
			want := "no pipelines in flows.yaml, though the server has work; want at least one"
			if strings.TrimSpace(text) == "" {
				want = strings.Replace(want, "flows.yaml", "flows.yaml (empty)", 1)
			}
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q: want %q, have %q", text, want, err)
			}
			current, err := r.store.Bundles.Current(context.Background())
			if err != nil || current != r.bundle(onePipeline("one")).Hash {
				t.Errorf("%q: want the definition of before for all nodes, have %.8s, %v", text, current, err)
			}
			r.wantBundle(e, onePipeline("one"))
		}
		id := r.submit(e, event("work", "k"))
		r.settle(e, id, model.Succeeded)
	})
}

// A node that begins with nothing may continue so.
func TestNodeWithoutPipelinesLoadsAnything(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start("")
		for _, text := range []string{"# nothing yet\n", onePipeline("one")} {
			if _, err := e.Load(context.Background(), r.bundle(text), ann); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			r.wantBundle(e, text)
		}
	})
}

func TestLoadsAtTheSameTimeEndInOneDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(onePipeline("zero"))
		second, _ := r.start(onePipeline("zero"))
		for range 20 {
			done := make(chan error)
			for e, handler := range map[*engine.Engine]string{first: "one", second: "two"} {
				b := r.bundle(onePipeline(handler))
				go func() { _, err := e.Load(context.Background(), b, ann); done <- err }()
			}
			for range 2 {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			pass(time.Second)
			current, err := r.store.Bundles.Current(context.Background())
			if err != nil || first.Bundle().Hash != current || second.Bundle().Hash != current {
				t.Fatalf("want %.8s everywhere, have %.8s and %.8s (%v)", current, first.Bundle().Hash, second.Bundle().Hash, err)
			}
		}
	})
}

func TestNodeThatStartsWithAnOldDefinitionYields(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, stop := r.start(onePipeline("one"))
		stop()
		newer, _ := r.start(onePipeline("two")) // unknown to the store, so the newest
		old, _ := r.start(onePipeline("one"))
		r.wantBundle(old, onePipeline("two"))
		r.wantBundle(newer, onePipeline("two"))
		if !strings.Contains(r.log.String(), "older than the current ones") {
			t.Error("want the log to say that the node's own pipelines are not used")
		}
		id := r.submit(old, event("work", "k"))
		r.settle(old, id, model.Succeeded)
		r.want("work/a/two")
	})
}

func TestOverrulingNodeBringsItsDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, stop := r.start(onePipeline("one"))
		stop()
		other, _ := r.start(onePipeline("two"))
		e, _ := r.start(onePipeline("one"), func(o *engine.Options) { o.Overrule = true })
		pass(time.Second)
		r.wantBundle(e, onePipeline("one"))
		r.wantBundle(other, onePipeline("one"))
	})
}

func TestNodeKeepsItsDefinitionWhenItCannotRunTheCurrentOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		old, _ := r.start(onePipeline("one")) // knows the type step alone
		r.types = append(r.types, enginetest.Scripted("leap", r.calls.Record(r.handle)))
		leaps := strings.Replace(onePipeline("one"), "step", "leap", 1)
		newer, _ := r.start(leaps)
		pass(time.Second)
		r.wantBundle(old, onePipeline("one"))
		if err := old.Degraded(); err == nil || !strings.Contains(err.Error(), "leap") {
			t.Errorf("want a degradation that names the type, have %v", err)
		}
		if err := old.Healthy(context.Background()); err != nil {
			t.Errorf("want the node to go on, have %v", err)
		}
		id := r.submit(old, event("work", "k"))
		if v := r.settle(old, id, model.Succeeded); v.Bundle == newer.Bundle().Hash {
			t.Error("want a run of the definition that the node has")
		}
		// It recovers with a definition that it can run.
		if _, err := newer.Load(context.Background(), r.bundle(onePipeline("two")), ann); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		r.wantBundle(old, onePipeline("two"))
		if err := old.Degraded(); err != nil {
			t.Errorf("want no degradation any more, have %v", err)
		}
	})
}

func TestRunsKeepTheDefinitionAcrossAReloadElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		e, _ := r.start(onePipeline("one"))
		other, _ := r.start(onePipeline("one"))
		id := r.submit(e, event("work", "k"))
		synctest.Wait()
		if _, err := other.Load(context.Background(), r.bundle(onePipeline("two")), ann); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		close(open)
		v := r.settle(e, id, model.Succeeded)
		if v.Bundle != r.bundle(onePipeline("one")).Hash {
			t.Errorf("the run has changed its definition: %+v", v)
		}
		if err := core.Fits(nil, e.Plans()[0], v); err == nil || !strings.Contains(err.Error(), "work/a/one") {
			t.Errorf("want the run pinned for its handler, have %v", err)
		}
	})
}
