package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/records"
	"procaas/engine/store"
)

const archived = `
pipelines:
  - {id: brief, retention: 1h, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: few, keep: 2, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: other, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
`

// A shelf is an archive in memory.
type shelf struct {
	mu    sync.Mutex // guards the following
	away  error
	calls int
	parts map[string][]records.Archived // by day and name
}

// Keep implements [records.Archive].
func (s *shelf) Keep(_ context.Context, p records.ArchivePart) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.away != nil {
		return s.away
	}
	if s.parts == nil {
		s.parts = map[string][]records.Archived{}
	}
	s.parts[p.Day.Format(time.DateOnly)+"/"+p.Name] = slices.Collect(p.Runs)
	return nil
}

// Check implements [records.Archive].
func (s *shelf) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// Address implements [records.Archive].
func (s *shelf) Address() string { return "shelf:one" }

func (s *shelf) set(away error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// runs lists the ids of archived runs, in order.
func (s *shelf) runs() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range s.parts {
		for _, r := range part {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// into gives an engine an archive.
func into(s *shelf) func(*engine.Options) {
	return func(o *engine.Options) { o.Archive = records.ArchiveOptions{Archive: s, Every: 5 * time.Minute} }
}

// left lists those of the runs that the store still has.
func (r *rig) left(runs ...string) (ids []string) {
	for _, id := range runs {
		if _, err := r.store.Runs.Run(context.Background(), id); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func wantRuns(t *testing.T, what string, have []string, want ...string) {
	t.Helper()
	have, want = slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want))
	if !slices.Equal(have, want) {
		t.Errorf("%s: want %v, have %v", what, want, have)
	}
}

// No run leaves before the archive has it, however long the archive is away. The runs of other pipelines stay as long as ever.
func TestEndedRunsLeaveThroughTheArchive(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &shelf{away: errors.New("no space")}
		e, stop := r.start(archived, into(s))
		brief, other := r.submit(e, event("brief", "k")), r.submit(e, event("other", "k"))
		var few []string
		for range 5 {
			few = append(few, r.submit(e, event("few", "k")))
			synctest.Wait()
		}
		all := append([]string{brief, other}, few...)
		pass(2 * time.Hour)
		wantRuns(t, "while the archive is away", r.left(all...), all...)
		if err := e.Degraded(); err == nil || !strings.Contains(err.Error(), "shelf:one") || !strings.Contains(err.Error(), "no space") {
			t.Errorf("want the node to say that the archive fails, have %v", err)
		}
		if tries := s.calls; tries < 100 || tries > 200 {
			t.Errorf("want a try each minute, have %d in two hours", tries)
		}
		s.set(nil)
		pass(6 * time.Minute)
		wantRuns(t, "left", r.left(all...), other, few[3], few[4])
		wantRuns(t, "archived", s.runs(), brief, few[0], few[1], few[2])
		if err := e.Degraded(); err != nil {
			t.Errorf("the archive works again, have %v", err)
		}
		for _, part := range s.parts {
			for _, run := range part {
				if run.Event.Payload == nil || len(run.Handlers) != 1 || run.Finished == nil {
					t.Errorf("want a whole run archived, have %+v", run)
				}
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A node that starts while its archive is away says so at once, although no run waits for it yet, and also what goes wrong later.
func TestAnArchiveThatIsAwayIsToldBeforeRunsWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &shelf{away: errors.New("no answer")}
		e, stop := r.start(archived, into(s))
		other, stopOther := r.start(archived)
		tell := func(when string, after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			for name, node := range map[string]*engine.Engine{"the node with the archive": e, "another node": other} {
				if err := node.Degraded(); (err != nil) != want || want && !strings.Contains(err.Error(), "no answer") {
					t.Errorf("%s, %s: have %v", when, name, err)
				}
			}
		}
		tell("at the start", 2*time.Minute, true)
		s.set(nil)
		tell("when it answers", 3*time.Minute, false)
		s.set(errors.New("no answer"))
		tell("when it is away again", 7*time.Minute, true)
		if err := errors.Join(stop(), stopOther()); err != nil {
			t.Error(err)
		}
		if s.calls > 0 {
			t.Errorf("want no part written, have %d", s.calls)
		}
	})
}

// A recorded run takes its recording along, so it can be replayed when the store has forgotten it. The others have none.
func TestRecordingsAreArchived(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		recorded, plain := &shelf{}, &shelf{}
		e, stop := r.start(archived, into(recorded), func(o *engine.Options) { o.Record = 100 })
		with := r.submit(e, event("brief", "k"))
		pass(70 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		e, stop = r.start(archived, into(plain))
		without := r.submit(e, event("brief", "k"))
		pass(70 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantRuns(t, "archived with recordings", recorded.runs(), with)
		wantRuns(t, "archived without", plain.runs(), without)
		for _, part := range recorded.parts {
			if have := part[0].Recording; have == nil || have.Lost != "" || len(have.Calls) != 1 || have.Calls[0].Ref != "brief/a/one" {
				t.Errorf("want the call recorded, have %+v", have)
			}
		}
		for _, part := range plain.parts {
			if part[0].Recording != nil {
				t.Errorf("want no recording, have %+v", part[0].Recording)
			}
		}
	})
}

// One node archives, and another one when it has stopped.
func TestOneNodeArchives(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, second := &shelf{}, &shelf{}
		e1, stop1 := r.start(archived, into(first))
		_, stop2 := r.start(archived, into(second))
		a := r.submit(e1, event("brief", "k"))
		pass(70 * time.Minute)
		if first.calls+second.calls != 1 || len(r.left(a)) > 0 {
			t.Errorf("want one part, have %d and %d", first.calls, second.calls)
		}
		if first.calls == 0 {
			first, second, stop1, stop2 = second, first, stop2, stop1
		}
		b := r.submit(e1, event("brief", "k"))
		synctest.Wait()
		if err := stop1(); err != nil {
			t.Error(err)
		}
		pass(70 * time.Minute)
		wantRuns(t, "archived by the first", first.runs(), a)
		wantRuns(t, "archived by the second", second.runs(), b)
		wantRuns(t, "left", r.left(a, b))
		if err := stop2(); err != nil {
			t.Error(err)
		}
	})
}

// A part whose runs could not be forgotten is archived again, in the place of the first.
func TestAPartIsArchivedAgainInItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &shelf{}
		r.store.Trimmer = &forgetful{Trimmer: r.store.Trimmer, fails: 3}
		e, stop := r.start(archived, into(s))
		a, b := r.submit(e, event("brief", "a")), r.submit(e, event("brief", "b"))
		pass(70 * time.Minute)
		wantRuns(t, "archived", s.runs(), a, b)
		wantRuns(t, "left", r.left(a, b))
		if s.calls != 4 || len(s.parts) != 1 {
			t.Errorf("want one part, written 4 times, have %d and %d", len(s.parts), s.calls)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A forgetful trimmer fails to forget, for some times.
type forgetful struct {
	store.Trimmer
	fails int
}

// Forget implements [store.Trimmer].
func (f *forgetful) Forget(ctx context.Context, runs []store.RunRecord) error {
	if f.fails--; f.fails >= 0 {
		return errors.New("the store is away")
	}
	return f.Trimmer.Forget(ctx, runs)
}

// The archive is a fact of the store. A node without one removes nothing, until somebody ends it.
func TestANodeWithoutTheArchiveRemovesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &shelf{}
		first, stop := r.start(archived, into(s))
		a := r.submit(first, event("brief", "k"))
		pass(2 * time.Second)
		without, stopWithout := r.start(archived)
		pass(2 * time.Minute)
		if err := without.Degraded(); err != nil {
			t.Errorf("want nothing wrong while another node archives, have %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		var few []string
		for range 3 {
			few = append(few, r.submit(without, event("few", "k")))
			synctest.Wait()
		}
		pass(2 * time.Hour)
		wantRuns(t, "left without the archive", r.left(append(few, a)...), append(few, a)...)
		if err := without.Degraded(); err == nil || !strings.Contains(err.Error(), "--archive none") {
			t.Errorf("want the node to say that nobody archives, have %v", err)
		}
		_, stopEnder := r.start(archived, func(o *engine.Options) { o.Archive.End = true })
		pass(3 * time.Minute)
		wantRuns(t, "left after the end of the archive", r.left(append(few, a)...), few[1:]...)
		wantRuns(t, "archived", s.runs())
		if err := without.Degraded(); err != nil {
			t.Errorf("want nothing wrong after the end, have %v", err)
		}
		if err := errors.Join(stopWithout(), stopEnder()); err != nil {
			t.Error(err)
		}
	})
}

// Where an archive is, or was, its copies are named in the receipt of an erasure.
func TestAReceiptNamesTheArchive(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(archived, into(&shelf{}))
		r.submit(e, event("brief", "k"))
		pass(time.Minute)
		receipt, err := e.Erase(context.Background(), records.Erasure{Flow: "brief", Key: "k"}, store.Actor{Name: "ann"})
		if err != nil || !strings.Contains(fmt.Sprint(receipt.Remains), "shelf:one") {
			t.Errorf("want the archive among what remains, have %v, %v", receipt.Remains, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
