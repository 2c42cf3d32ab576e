package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"procaas/engine/store"
)

// This file implements the task queue. One goroutine writes, so no locks are needed.

// Tasks returns the task queue.
func (s *Store) Tasks() *store.TaskStore {
	return &store.TaskStore{Queue: s, Work: s, Maintenance: s, Admin: s, Eraser: s}
}

// taskWatch wakes callers that wait for tasks.
type taskWatch struct {
	mu      sync.Mutex // guards waiting
	waiting map[*taskWatcher]struct{}
}

type taskWatcher struct {
	types map[string]bool
	woken chan struct{}
}

// WatchTasks implements [store.TaskWork].
func (s *Store) WatchTasks(types []string) (<-chan struct{}, func()) {
	w := &taskWatcher{types: make(map[string]bool, len(types)), woken: make(chan struct{}, 1)}
	for _, t := range types {
		w.types[t] = true
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if s.watch.waiting == nil {
		s.watch.waiting = map[*taskWatcher]struct{}{}
	}
	s.watch.waiting[w] = struct{}{}
	return w.woken, func() {
		s.watch.mu.Lock()
		defer s.watch.mu.Unlock()
		delete(s.watch.waiting, w)
	}
}

// hintTasks wakes callers that wait for tasks of these types.
func (s *Store) hintTasks(types ...string) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for w := range s.watch.waiting {
		if !slices.ContainsFunc(types, func(t string) bool { return w.types[t] }) {
			continue
		}
		select {
		case w.woken <- struct{}{}:
		default: // it has a pending hint
		}
	}
}

// These are the stored places of tasks: the unfinished states, and failed.
const (
	placeReady    = string(store.TaskReady)
	placeWaiting  = string(store.TaskWaiting)
	placeStarting = string(store.TaskStarting)
	placeRunning  = string(store.TaskRunning)
	placeLater    = string(store.TaskScheduled)
	placeDead     = "dead"
)

const (
	taskColumns = "id, type, key, uid, payload, rank, place, slot, created, due, deadline, begun, until, ended, timeout, epoch, failures, " +
		"lost, worker, error"

	insertTask = `insert into tasks (created, due, deadline, rank, timeout, slot, place, type, key, uid, payload)
		values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id`
	replaceTask = `update tasks set created = ?, due = ?, deadline = ?, rank = ?, timeout = ?, slot = ?, place = ?, type = ?, key = ?, uid = ?,
		payload = ?, failures = 0, lost = 0, error = '' where id = ?`
	mergeTask = "update tasks set payload = ? where id = ?"
	taskByID  = "select " + taskColumns + " from tasks where id = ?"

	findKey       = "select id, again, next_payload from task_keys where type = ? and uid = ?"
	insertTaskKey = "insert into task_keys (type, uid, id) values (?, ?, ?)"
	followKey     = `update task_keys set again = 1, next_due = ?, next_rank = ?, next_tolerance = ?, next_timeout = ?,
	next_slot = ?, next_key = ?,
		next_payload = ? where type = ? and uid = ?`
	aloneKey = "update task_keys set again = 0 where id = ?"

	taskMode = "select mode from task_types where type = ?"
)

func scanTask(r *sql.Rows) (store.QueuedTask, error) {
	var (
		t                                         store.QueuedTask
		payload                                   []byte
		place                                     string
		created, due, deadline, begun, until, end int64
		timeout                                   int64
	)
	err := r.Scan(&t.ID, &t.Type, &t.Key, &t.Unique, &payload, &t.Priority, &place, &t.Slot, &created, &due, &deadline, &begun, &until,
		&end, &timeout, &t.Epoch, &t.Failures, &t.Lost, &t.Worker, &t.Error)
	t.Payload, t.Priority = json.RawMessage(payload), -t.Priority
	t.State = store.TaskState(place)
	if place == placeDead {
		t.State = store.TaskFailed
	}
	if t.State == store.TaskCompleted {
		t.Result, t.Payload = t.Payload, nil
	}
	t.Created = taskTime(created)
	t.Due = taskTime(due)
	t.Deadline = taskTime(deadline)
	t.Begun = taskTime(begun)
	t.Until, t.Ended, t.Timeout = taskTime(until), taskTime(end), time.Duration(timeout)*time.Millisecond
	return t, err
}

func taskTime(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

func findTask(t *tx, id int64) (store.QueuedTask, bool, error) {
	found, err := rows(t, taskByID, []any{id}, scanTask)
	if err != nil || len(found) == 0 {
		return store.QueuedTask{}, false, err
	}
	return found[0], true, nil
}

func taken(t *store.QueuedTask) bool {
	return t.State == store.TaskStarting || t.State == store.TaskRunning
}

// PutTasks implements [store.TaskQueue].
func (s *Store) PutTasks(ctx context.Context, specs []store.TaskSpec) ([]store.TaskPut, error) {
	out := make([]store.TaskPut, len(specs))
	err := s.writer.do(ctx, func(t *tx) error {
		for i := range specs {
			if err := specs[i].Check(); err != nil {
				out[i] = store.TaskPut{Outcome: store.PutRefused, Err: err}
				continue
			}
			var err error
			if out[i], err = putTask(t, &specs[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range specs {
		s.hintTasks(specs[i].Type)
	}
	return out, nil
}

func payloadOf(s *store.TaskSpec) []byte {
	if len(s.Payload) == 0 {
		return []byte("null")
	}
	return s.Payload
}

// putTask stores one task, or finds the unfinished one that has its unique name. A row in task_keys exists exactly as long as that task is
// unfinished, so a name is free again when its task has ended.
func putTask(t *tx, s *store.TaskSpec) (store.TaskPut, error) {
	var mode string
	if _, err := t.row(taskMode, []any{s.Type}, &mode); err != nil {
		return store.TaskPut{}, err
	}
	if mode == string(store.TasksDraining) {
		return store.TaskPut{Outcome: store.PutRefused, Err: store.ErrDraining}, nil
	}
	if s.Unique == "" {
		id, err := addTask(t, s)
		return store.TaskPut{ID: id, Outcome: store.PutAdded}, err
	}
	var (
		id    int64
		again bool
		next  []byte
	)
	found, err := t.row(findKey, []any{s.Type, s.Unique}, &id, &again, &next)
	if err != nil {
		return store.TaskPut{}, err
	}
	if !found {
		if id, err = addTask(t, s); err == nil {
			err = t.exec(insertTaskKey, s.Type, s.Unique, id)
		}
		return store.TaskPut{ID: id, Outcome: store.PutAdded}, err
	}
	return putDuplicate(t, s, id, again, next)
}

// taskArgs are the values of a new task.
func taskArgs(t *tx, s *store.TaskSpec) []any {
	due := t.now
	if !s.At.IsZero() {
		due = s.At
	}
	due = due.Add(s.Delay)
	if due.Before(t.now) {
		due = t.now
	}
	place := placeReady
	if due.After(t.now) {
		place = placeLater
	}
	return []any{
		t.now.UnixMicro(), due.UnixMicro(), due.Add(s.Tolerance).UnixMicro(), -s.Priority, s.Timeout.Milliseconds(), s.Slot(), place,
		s.Type, s.Key, s.Unique, payloadOf(s),
	}
}

func addTask(t *tx, s *store.TaskSpec) (id int64, err error) {
	_, err = t.row(insertTask, taskArgs(t, s), &id)
	return id, err
}

// putDuplicate handles a task whose unique key is taken. A task that a worker has taken never changes. Then a duplicate that is not
// dropped is noted with the key, and becomes one more task when the first one has ended. However many duplicates come, one follows.
func putDuplicate(t *tx, s *store.TaskSpec, id int64, again bool, next []byte) (store.TaskPut, error) {
	first, found, err := findTask(t, id)
	if err == nil && !found {
		err = fmt.Errorf("the unique key %s of %s has no task: the tables were changed by hand", s.Unique, s.Type)
	}
	out := store.TaskPut{ID: id, Outcome: store.PutKept}
	switch {
	case err != nil || s.OnDuplicate == "" || s.OnDuplicate == store.DuplicateKeep:
		return out, err
	case taken(&first):
		payload := payloadOf(s)
		if again && s.OnDuplicate == store.DuplicateMerge {
			if payload, err = mergePayloads(s, next); err != nil {
				return store.TaskPut{Outcome: store.PutRefused, Err: err}, nil
			}
		}
		args := taskArgs(t, s)
		out.Outcome = store.PutFollows
		return out, t.exec(followKey, args[1], -s.Priority, s.Tolerance.Microseconds(), s.Timeout.Milliseconds(), s.Slot(), s.Key, payload,
			s.Type, s.Unique)
	case s.OnDuplicate == store.DuplicateReplace:
		out.Outcome = store.PutReplaced
		if err := t.exec(aloneKey, id); err != nil {
			return out, err
		}
		return out, t.exec(replaceTask, append(taskArgs(t, s), id)...)
	case s.OnDuplicate == store.DuplicateMerge:
		merged, err := mergePayloads(s, first.Payload)
		if err != nil {
			return store.TaskPut{Outcome: store.PutRefused, Err: err}, nil
		}
		out.Outcome = store.PutMerged
		return out, t.exec(mergeTask, merged, id)
	}
	return out, nil
}

func mergePayloads(s *store.TaskSpec, first []byte) ([]byte, error) {
	merged, err := s.Merge(first, payloadOf(s))
	if err != nil {
		return nil, fmt.Errorf("%w: merge: %w", store.ErrTask, err)
	}
	one := store.TaskSpec{Type: s.Type, Payload: merged}
	return merged, one.Check()
}

const (
	readyTasks = "select " + taskColumns + ` from tasks where type = ? and place = 'ready' order by rank, deadline, id limit ?`
	// Tasks whose keys are full are skipped, because the index does not know them. PostgreSQL sets
	// them aside as waiting. With one writer that would only be one more write, for the few tasks
	// of a file.
	readyByKey = "select " + taskColumns + ` from tasks t where type = ?1 and place in ('ready', 'waiting') and (key = '' or
		(select count(*) from tasks h where h.type = ?1 and h.key = t.key and h.place in ('starting', 'running')) < ?2)
		order by rank, deadline, id limit ?3 offset ?4`
	countTaken = "select count(*) from tasks where type = ? and place in ('starting', 'running')"
	takeTask   = "update tasks set place = ?, worker = ?, begun = ?, until = ?, epoch = ? where id = ?"
)

// ClaimTasks implements [store.TaskWork].
func (s *Store) ClaimTasks(ctx context.Context, c store.TaskClaim) ([]store.QueuedTask, error) {
	tasks, _, err := s.ExchangeTasks(ctx, store.TaskReport{}, c)
	return tasks, err
}

// ReportTasks implements [store.TaskWork].
func (s *Store) ReportTasks(ctx context.Context, r store.TaskReport) ([]store.TaskRef, error) {
	_, lost, err := s.ExchangeTasks(ctx, r, store.TaskClaim{})
	return lost, err
}

// ExchangeTasks implements [store.TaskWork]. The report comes before the claim, in one transaction: what it frees, such as a key or a place
// below a bound, is free for this claim.
func (s *Store) ExchangeTasks(ctx context.Context, r store.TaskReport,
	c store.TaskClaim,
) (tasks []store.QueuedTask, lost []store.TaskRef, err error) {
	if r.Len() == 0 && len(c.Types) == 0 {
		return nil, nil, nil
	}
	var types []string
	asked := s.asked.due(&c)
	err = s.writer.do(ctx, func(t *tx) (err error) {
		if lost, types, err = reportTasks(t, &r); err != nil {
			return err
		}
		for _, kind := range asked {
			if err := t.exec(noteAsked, kind, t.now.UnixMicro(), c.Worker); err != nil {
				return err
			}
		}
		tasks, err = claimTasks(t, &c)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	s.asked.wrote(asked)
	s.hintTasks(types...)
	return tasks, lost, nil
}

// claimTasks takes the most urgent tasks of all types of a claim. Each take has a new epoch. A worker that comes back after its lease has
// ended reports with the old epoch, and is refused.
func claimTasks(t *tx, c *store.TaskClaim) ([]store.QueuedTask, error) {
	var found []store.QueuedTask
	seen := make(map[int64]bool)
	wants, err := busyTypes(t, c)
	if err != nil {
		return nil, err
	}
	sorted := len(c.Types) > fewTypes && c.Limit > 0
	first := 0 // types that have given their first task
	for _, w := range wants {
		if sorted && first == c.Limit && w.MaxPerKey == 0 {
			continue // its first task is less urgent than enough others
		}
		some, err := findReady(t, w)
		if err != nil {
			return nil, err
		}
		if len(some) > 0 && w.MaxPerKey == 0 {
			first++
		}
		for _, one := range some {
			if !seen[one.ID] { // a claim may name a type twice
				seen[one.ID], found = true, append(found, one)
			}
		}
	}
	slices.SortFunc(found, func(a, b store.QueuedTask) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Deadline.Compare(b.Deadline), cmp.Compare(a.ID, b.ID))
	})
	if c.Limit > 0 && len(found) > c.Limit {
		found = found[:c.Limit]
	}
	state := store.TaskRunning
	if c.Prefetch {
		state = store.TaskStarting
	}
	for i := range found {
		one := &found[i]
		one.State = state
		one.Worker = c.Worker
		one.Begun = t.now
		one.Until = t.now.Add(c.Lease)
		one.Epoch = store.NextTaskEpoch(one.Epoch)
		if err := t.exec(takeTask, string(state), c.Worker, t.now.UnixMicro(), one.Until.UnixMicro(), one.Epoch, one.ID); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// fewTypes is the number of types up to which a claim asks for each of them. A claim holds the only
// writer. So a claim of more types first reads which of them have tasks, with one statement.
const fewTypes = 100

const busyOfTypes = `select f.key from (
		select w.key, (select r.id from tasks r where r.type = w.value and r.place = 'ready' order by r.rank, r.deadline, r.id limit 1) as head,
			exists (select 1 from tasks r where r.type = w.value and r.place = 'waiting') as waits
		from json_each(?) w
	) f left join tasks h on h.id = f.head
	where f.waits or h.id is not null order by h.id is null, h.rank, h.deadline, h.id`

// busyTypes returns the types of a claim that may have tasks for it. If they are many, they are in
// the order of their first tasks.
func busyTypes(t *tx, c *store.TaskClaim) ([]store.TaskWant, error) {
	if len(c.Types) <= fewTypes {
		return c.Types, nil
	}
	names := make([]string, len(c.Types))
	for i := range c.Types {
		names[i] = c.Types[i].Type
	}
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	return rows(t, busyOfTypes, []any{string(list)}, func(r *sql.Rows) (store.TaskWant, error) {
		var i int
		err := r.Scan(&i)
		return c.Types[i], err
	})
}

// findReady returns the ready tasks of a type.
func findReady(t *tx, w store.TaskWant) ([]store.QueuedTask, error) {
	var mode string
	if _, err := t.row(taskMode, []any{w.Type}, &mode); err != nil || mode == string(store.TasksPaused) {
		return nil, err
	}
	room := w.Limit
	if w.MaxTaken > 0 {
		var n int
		if _, err := t.row(countTaken, []any{w.Type}, &n); err != nil {
			return nil, err
		}
		room = min(room, w.MaxTaken-n)
	}
	if room <= 0 {
		return nil, nil
	}
	if w.MaxPerKey == 0 {
		return rows(t, readyTasks, []any{w.Type, room}, scanTask)
	}
	return findReadyByKey(t, w, room)
}

const countTakenOfKey = "select count(*) from tasks where type = ? and key = ? and place in ('starting', 'running')"

// findReadyByKey counts the taken tasks of each key once, and then those that this claim takes itself. Both must stay below the bound.
func findReadyByKey(t *tx, w store.TaskWant, room int) ([]store.QueuedTask, error) {
	const page = 200
	var out []store.QueuedTask
	keys := map[string]int{}
	for offset := 0; ; offset += page {
		some, err := rows(t, readyByKey, []any{w.Type, w.MaxPerKey, page, offset}, scanTask)
		if err != nil {
			return nil, err
		}
		for _, one := range some {
			if one.Key != "" {
				if _, known := keys[one.Key]; !known {
					var n int
					if _, err := t.row(countTakenOfKey, []any{w.Type, one.Key}, &n); err != nil {
						return nil, err
					}
					keys[one.Key] = n
				}
				if keys[one.Key] >= w.MaxPerKey {
					continue
				}
				keys[one.Key]++
			}
			out = append(out, one)
			if len(out) == room {
				return out, nil
			}
		}
		if len(some) < page {
			return out, nil
		}
	}
}

const (
	keepHistory = `insert into task_history (id, due, deadline, begun, ended, epoch, cancelled, result, type, key, worker)
		select id, due, deadline, begun, ?, epoch, ?, ?, type, key, worker from tasks where id = ?`
	deleteTask = "delete from tasks where id = ?"
	buryTask   = "update tasks set place = 'dead', until = 0, ended = ?, failures = failures + 1, error = ? where id = ?"
	returnTask = `update tasks set place = ?, until = 0, worker = '', due = ?, deadline = ?, failures = failures + ?, error = ? where id = ?`

	findFollower = "select id, again, next_due, next_rank, next_tolerance, next_timeout, next_slot, next_key, next_payload from task_keys " +
		"where type = ? and uid = ?"
	deleteKey = "delete from task_keys where type = ? and uid = ?"
	moveKey   = "update task_keys set id = ?, again = 0, next_payload = x'' where type = ? and uid = ?"
)

// reportTasks records the outcomes of tasks, and returns the types that have new ready tasks. An attempt whose epoch is not that of the
// task is lost: the lease has ended, and another worker has the task or had it. Its outcome is not recorded, whatever it is.
func reportTasks(t *tx, r *store.TaskReport) (lost []store.TaskRef, types []string, err error) {
	each := func(ref store.TaskRef, do func(*store.QueuedTask) error) {
		if err != nil {
			return
		}
		var one store.QueuedTask
		var found bool
		if one, found, err = findTask(t, ref.ID); err != nil {
			return
		}
		if !found || !taken(&one) || one.Epoch != ref.Epoch {
			lost = append(lost, ref)
			return
		}
		if err = do(&one); err == nil && one.Key != "" {
			types = append(types, one.Type)
		}
	}
	end := func(one *store.QueuedTask) error {
		follows, err := closeTask(t, one)
		if follows {
			types = append(types, one.Type)
		}
		return err
	}
	for _, ref := range r.Completed {
		each(ref, func(one *store.QueuedTask) error {
			if err := t.exec(keepHistory, t.now.UnixMicro(), false, []byte(r.Results[ref]), one.ID); err != nil {
				return err
			}
			if err := t.exec(deleteTask, one.ID); err != nil {
				return err
			}
			return end(one)
		})
	}
	for _, f := range r.Failed {
		each(f.TaskRef, func(one *store.QueuedTask) error {
			if f.Retry {
				return putBack(t, one, f.Delay, true, store.CutTaskText(f.Error))
			}
			if err := t.exec(buryTask, t.now.UnixMicro(), store.CutTaskText(f.Error), one.ID); err != nil {
				return err
			}
			return end(one)
		})
	}
	for _, z := range r.Snoozed {
		each(z.TaskRef, func(one *store.QueuedTask) error { return putBack(t, one, z.Delay, false, "") })
	}
	return lost, types, err
}

// putBack makes a task available again. A snoozed task keeps its time if it has no delay, and with it its place in the order. A failed
// one is due anew, so that it does not stand before tasks that have waited longer.
func putBack(t *tx, one *store.QueuedTask, delay time.Duration, failed bool, why string) error {
	due, place, failures := one.Due, placeReady, 0
	if failed {
		due, failures = t.now, 1
	} else {
		why = one.Error
	}
	if delay > 0 {
		due, place = t.now.Add(delay), placeLater
	}
	return t.exec(returnTask, place, due.UnixMicro(), due.Add(one.Deadline.Sub(one.Due)).UnixMicro(), failures, why, one.ID)
}

// closeTask frees the unique key of an ended task, or starts the task that follows it, in the same transaction. So there is no moment in
// which somebody else could get the name and the follower would be lost.
func closeTask(t *tx, one *store.QueuedTask) (follows bool, err error) {
	if one.Unique == "" {
		return false, nil
	}
	var (
		id, due, tolerance, timeout int64
		rank, slot                  int
		key                         string
		payload                     []byte
	)
	found, err := t.row(findFollower, []any{one.Type, one.Unique}, &id, &follows, &due, &rank, &tolerance, &timeout, &slot, &key, &payload)
	if err != nil || !found || id != one.ID {
		return false, err
	}
	if !follows {
		return false, t.exec(deleteKey, one.Type, one.Unique)
	}
	place, now := placeReady, t.now.UnixMicro()
	if due > now {
		place = placeLater
	}
	due = max(due, now)
	if _, err := t.row(insertTask, []any{now, due, due + tolerance, rank, timeout, slot, place, one.Type, key, one.Unique, payload},
		&id); err != nil {
		return false, err
	}
	return true, t.exec(moveKey, id, one.Type, one.Unique)
}

const beatTask = "update tasks set until = ?, place = ? where id = ?"

// BeatTasks implements [store.TaskWork].
func (s *Store) BeatTasks(ctx context.Context, beats []store.TaskBeat) (lost []store.TaskRef, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		lost = nil
		for _, b := range beats {
			one, found, err := findTask(t, b.ID)
			if err != nil {
				return err
			}
			if !found || !taken(&one) || one.Epoch != b.Epoch {
				lost = append(lost, b.TaskRef)
				continue
			}
			place := string(one.State)
			if b.Running {
				place = placeRunning
			}
			if err := t.exec(beatTask, t.now.Add(b.Lease).UnixMicro(), place, b.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return lost, err
}
