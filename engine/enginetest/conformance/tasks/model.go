package tasks

import (
	"cmp"
	"slices"
	"time"

	"procaas/engine/store"
)

// A taskModel is the simplest model of a task queue. Its time is the number of changes, because
// tolerances differ by hours.
type taskModel struct {
	now   int
	tasks map[int64]*modelTask
	dead  int
}

// A modelTask is an unfinished task.
type modelTask struct {
	id       int64
	spec     store.TaskSpec
	stamp    int // when it became due
	state    store.TaskState
	epoch    int
	failures int
	lost     int
	short    bool // its lease has ended
	next     *store.TaskSpec
}

// compare is the order of claims.
func (a *modelTask) compare(b *modelTask) int {
	return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), cmp.Compare(a.spec.Tolerance, b.spec.Tolerance),
		cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.id, b.id))
}

func (a *modelTask) taken() bool {
	return a.state == store.TaskStarting || a.state == store.TaskRunning
}

func (m *taskModel) holder(s *store.TaskSpec) *modelTask {
	for _, t := range m.tasks {
		if s.Unique != "" && t.spec.Unique == s.Unique && t.spec.Type == s.Type {
			return t
		}
	}
	return nil
}

// place returns the state of a new task.
func place(s *store.TaskSpec) store.TaskState {
	if s.Delay > 0 {
		return store.TaskScheduled
	}
	return store.TaskReady
}

// put puts a task and returns the expected outcome. id is that of a new task.
func (m *taskModel) put(s store.TaskSpec, id int64) store.PutOutcome {
	t := m.holder(&s)
	switch {
	case t == nil:
		m.tasks[id] = &modelTask{id: id, spec: s, stamp: m.now, state: place(&s)}
		return store.PutAdded
	case s.OnDuplicate == store.DuplicateKeep || s.OnDuplicate == "":
		return store.PutKept
	case t.taken():
		next := s
		if t.next != nil && s.OnDuplicate == store.DuplicateMerge {
			next.Payload, _ = s.Merge(t.next.Payload, s.Payload)
		}
		t.next = &next
		return store.PutFollows
	case s.OnDuplicate == store.DuplicateReplace:
		m.tasks[t.id] = &modelTask{id: t.id, spec: s, stamp: m.now, state: place(&s), epoch: t.epoch}
		return store.PutReplaced
	case s.OnDuplicate == store.DuplicateMerge:
		t.spec.Payload, _ = s.Merge(t.spec.Payload, s.Payload)
		return store.PutMerged
	}
	return store.PutKept
}

// waiting returns the tasks of a type that no worker has, in order.
func (m *taskModel) waiting(kind string) []*modelTask {
	var out []*modelTask
	for _, t := range m.tasks {
		if t.spec.Type == kind && (t.state == store.TaskReady || t.state == store.TaskWaiting) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, (*modelTask).compare)
	return out
}

func (m *taskModel) count(kind string, key string) (n int) {
	for _, t := range m.tasks {
		if t.taken() && t.spec.Type == kind && (key == "" || t.spec.Key == key) {
			n++
		}
	}
	return n
}

// claim returns the tasks that must be taken, in order.
func (m *taskModel) claim(c store.TaskClaim) []*modelTask {
	var found []*modelTask
	for _, w := range c.Types {
		room := w.Limit
		if w.MaxTaken > 0 {
			room = min(room, max(0, w.MaxTaken-m.count(w.Type, "")))
		}
		keys := map[string]int{}
		for _, t := range m.waiting(w.Type) {
			if room == 0 {
				break
			}
			if key := t.spec.Key; w.MaxPerKey > 0 && key != "" {
				if m.count(w.Type, key)+keys[key] >= w.MaxPerKey {
					continue
				}
				keys[key]++
			}
			found = append(found, t)
			room--
		}
	}
	slices.SortFunc(found, (*modelTask).compare)
	if c.Limit > 0 && len(found) > c.Limit {
		found = found[:c.Limit]
	}
	for _, t := range found {
		t.state, t.short = store.TaskRunning, c.Lease == 0
		if c.Prefetch {
			t.state = store.TaskStarting
		}
	}
	return found
}

// held returns the task that a ref holds, or nil.
func (m *taskModel) held(r store.TaskRef) *modelTask {
	if t := m.tasks[r.ID]; t != nil && t.taken() && t.epoch == r.Epoch {
		return t
	}
	return nil
}

// end ends a task, and returns the one that follows it.
func (m *taskModel) end(t *modelTask) (next *store.TaskSpec) {
	delete(m.tasks, t.id)
	return t.next
}

// giveBack makes a task available again.
func (m *taskModel) giveBack(t *modelTask, delay time.Duration, failed bool) {
	t.state = store.TaskReady
	if delay > 0 {
		t.state = store.TaskScheduled
	}
	if failed {
		t.failures++
		t.stamp = m.now
	}
}

// reclaim takes back the tasks whose lease has ended.
func (m *taskModel) reclaim() (n int) {
	for _, t := range m.tasks {
		if t.taken() && t.short {
			if t.state == store.TaskRunning {
				t.lost++
			}
			t.state = store.TaskReady
			n++
		}
	}
	return n
}

// raise gives the ready tasks of a type that tolerate nothing the priority of the
// first, and returns how many had less.
func (m *taskModel) raise(kind string) (n int) {
	var first *modelTask
	ready := func(t *modelTask) bool { return t.spec.Type == kind && t.state == store.TaskReady }
	for _, t := range m.tasks {
		if ready(t) && (first == nil || t.compare(first) < 0) {
			first = t
		}
	}
	for _, t := range m.tasks {
		if ready(t) && t.spec.Tolerance == 0 && t.spec.Priority < first.spec.Priority {
			t.spec.Priority = first.spec.Priority
			n++
		}
	}
	return n
}
