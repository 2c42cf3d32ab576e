package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/handlers/queue/remote"
	"procaas/handlers/queue/taskrun"
)

// This file serves workers.

// A receipt identifies an attempt for its worker. Its other parts save reading the task.
type receipt struct {
	store.TaskRef
	attempt  int
	taskType string
}

// receiptOf makes the receipt of an attempt.
func receiptOf(t *store.QueuedTask) receipt { return receipt{t.Ref(), t.Attempt(), t.Type} }

// String formats a receipt.
func (r receipt) String() string { return string(r.append(make([]byte, 0, usualReceipt))) }

// usualReceipt is the length of most receipts in bytes, or more.
const usualReceipt = 64

// append appends a receipt as text. The type comes last, because it may contain dots.
func (r receipt) append(b []byte) []byte {
	b = append(strconv.AppendInt(b, r.ID, 10), '.')
	b = append(strconv.AppendInt(b, int64(r.Epoch), 10), '.')
	b = append(strconv.AppendInt(b, int64(r.attempt), 10), '.')
	return append(b, r.taskType...)
}

// parseReceipt parses a receipt. It only checks the form. The store knows whether the attempt still
// holds.
func parseReceipt(text string) (r receipt, ok bool) {
	id, rest, _ := strings.Cut(text, ".")
	epoch, rest, _ := strings.Cut(rest, ".")
	attempt, taskType, _ := strings.Cut(rest, ".")
	if taskType == "" {
		return r, false
	}
	var err error
	if r.ID, err = strconv.ParseInt(id, 10, 64); err != nil || r.ID <= 0 {
		return r, false
	}
	numbers := [...]string{epoch, attempt}
	for i, into := range [...]*int{&r.Epoch, &r.attempt} {
		n, err := strconv.ParseInt(numbers[i], 10, 32)
		if err != nil || n <= 0 {
			return r, false
		}
		*into = int(n)
	}
	r.taskType = taskType
	return r, true
}

// A reading checks parts of a body that tags cannot describe.
type reading struct{ faults []problem.Fault }

func (r *reading) fault(at, format string, args ...any) {
	r.faults = append(r.faults, problem.Fault{Location: at, Message: fmt.Sprintf(format, args...)})
}

// receipt reads the receipt of a task that the caller may do.
func (r *reading) receipt(at, text string) receipt {
	one, ok := parseReceipt(text)
	if !ok {
		r.fault(at, "want a receipt that a claim gave, have %s", rest.Shown(text))
	}
	return one
}

// receipts reads a list of receipts, which may be empty.
func (r *reading) receipts(at string, list []string) []receipt {
	out := make([]receipt, len(list))
	for i, text := range list {
		out[i] = r.receipt(at, text)
	}
	return out
}

// lease reads how long a task is held.
func (r *reading) lease(d wire.Duration) time.Duration {
	lease := time.Duration(d)
	if lease == 0 {
		return defaultLease
	}
	if lease < time.Second || lease > maxTaskLease {
		r.fault("/lease", "want a lease between 1s and %v, have %v", maxTaskLease, lease)
	}
	return lease
}

// mayWork refuses a caller whose grant does not cover the types. Receipts can be forged, so for a
// grant with paths it reads the tasks.
func (g *Group) mayWork(c *rest.Call, receipts []receipt) error {
	if !c.Bound() {
		return nil
	}
	f := store.TaskFilter{Limit: maxTasks, MaxPayload: 1} // payloads are not needed
	for _, one := range receipts {
		if err := c.MayAt(one.taskType); err != nil {
			return err
		}
		f.IDs = append(f.IDs, one.ID)
	}
	if len(f.IDs) == 0 {
		return nil
	}
	tasks, err := g.Tasks.Admin.PeekTasks(c.Context(), f)
	for _, t := range tasks {
		if err := c.MayAt(t.Type); err != nil {
			return err
		}
	}
	return err
}

type claim struct{ Body remote.ClaimTasks }

func (g *Group) claim(c *rest.Call, in *claim) (out remote.Claimed, err error) {
	var r reading
	b := &in.Body
	ask := store.TaskClaim{Worker: b.Worker, Limit: b.Limit, Lease: r.lease(b.Lease), Prefetch: b.Prefetch}
	if ask.Limit == 0 {
		ask.Limit = maxTasks
	}
	wait := time.Duration(b.Wait)
	if wait > maxClaimWait {
		r.fault("/wait", "want at most %v, have %v", maxClaimWait, wait)
	}
	done := r.receipts("/complete", b.Complete)
	if err := problem.Body(r.faults); err != nil {
		return out, err
	}
	for _, t := range b.Types {
		want := store.TaskWant{Type: t.Type, Limit: max(t.Limit, 1), MaxTaken: t.MaxRunning, MaxPerKey: t.MaxPerKey}
		ask.Types = append(ask.Types, taskrun.TaskWantOf(g.Engine.Bundle().Pipeline(t.Type), want))
		if err := c.MayAt(t.Type); c.Bound() && err != nil {
			return out, err
		}
	}
	if err := g.mayWork(c, done); err != nil {
		return out, err
	}
	waiters := g.waiters(c.Context(), done)
	tasks, lost, err := g.claimUntil(c, store.TaskReport{Completed: refsOf(done)}, ask, wait)
	if err != nil {
		return out, err
	}
	g.wake(c.Context(), waiters)
	tasks = g.needed(c.Context(), tasks)
	return remote.Claimed{Items: viewsOfClaim(tasks), Lost: lostReceipts(done, lost)}, nil
}

// viewsOfClaim converts tasks for the reply to a claim. A receipt begins with the id, and all of them share their memory, since there may
// be a thousand.
func viewsOfClaim(tasks []store.QueuedTask) []remote.QueuedTask {
	receipts, ends := make([]byte, 0, usualReceipt*len(tasks)), make([]int, len(tasks))
	for i := range tasks {
		receipts = receiptOf(&tasks[i]).append(receipts)
		ends[i] = len(receipts)
	}
	all, begin := string(receipts), 0
	views := make([]remote.QueuedTask, len(tasks))
	for i, end := range ends {
		text := all[begin:end]
		begin = end
		id, _, _ := strings.Cut(text, ".")
		views[i] = viewWithID(&tasks[i], id)
		views[i].Receipt = text
	}
	return views
}

// claimUntil claims tasks, and waits for some until a time. It does not poll if a hint would wake
// it.
func (g *Group) claimUntil(c *rest.Call, report store.TaskReport, ask store.TaskClaim,
	wait time.Duration,
) ([]store.QueuedTask, []store.TaskRef, error) {
	types := make([]string, len(ask.Types))
	for i, want := range ask.Types {
		types[i] = want.Type
	}
	woken, stop := g.Tasks.Work.WatchTasks(types)
	defer stop()
	if wait > 0 {
		extend(c.W, wait+rest.RequestTime)
	}
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	var lost []store.TaskRef
	for pause := pollAtLeast; ; pause = min(2*pause, pollAtMost) {
		tasks, gone, err := g.Tasks.Work.ExchangeTasks(c.Context(), report, ask)
		lost = append(lost, gone...)
		if err != nil || len(tasks) > 0 || wait == 0 {
			return tasks, lost, err
		}
		report = store.TaskReport{} // reported once; later tries only claim
		t := time.NewTimer(pause)
		select {
		case <-woken:
			pause = pollAtLeast
		case <-t.C:
		case <-g.Closing:
			wait = 0
		case <-ctx.Done():
			wait = 0
		}
		t.Stop()
		if wait == 0 {
			return nil, lost, c.Context().Err()
		}
	}
}

// extend lets a reply take longer than the server's usual limit.
func extend(w http.ResponseWriter, d time.Duration) {
	c := http.NewResponseController(w)
	// A test recorder has no deadlines.
	_ = c.SetReadDeadline(time.Now().Add(d))
	_ = c.SetWriteDeadline(time.Now().Add(d))
}

// refsOf returns the refs of receipts in the order of their ids. Of several of one task, the first counts.
func refsOf(receipts []receipt) []store.TaskRef {
	refs := make([]store.TaskRef, len(receipts))
	for i, r := range receipts {
		refs[i] = r.TaskRef
	}
	slices.SortStableFunc(refs, func(a, b store.TaskRef) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(refs, func(a, b store.TaskRef) bool { return a.ID == b.ID })
}

// lostReceipts returns the receipts whose attempts no longer hold, in order, as they were sent.
func lostReceipts(receipts []receipt, lost []store.TaskRef) []string {
	out := []string{}
	for _, r := range receipts {
		if slices.Contains(lost, r.TaskRef) {
			out = append(out, r.String())
		}
	}
	return out
}

type heartbeat struct{ Body remote.TaskHeartbeat }

func (g *Group) heartbeat(c *rest.Call, in *heartbeat) (done remote.TasksDone, err error) {
	var r reading
	receipts, lease := r.receipts("/receipts", in.Body.Receipts), r.lease(in.Body.Lease)
	if err := g.mayReport(c, &r, receipts); err != nil {
		return done, err
	}
	held, err := g.heldTasks(c.Context(), receipts)
	if err == nil {
		_, err = g.abandon(c.Context(), held)
	}
	if err != nil {
		return done, err
	}
	var beats []store.TaskBeat
	for _, ref := range refsOf(receipts) {
		beats = append(beats, store.TaskBeat{TaskRef: ref, Running: !in.Body.Starting, Lease: lease})
	}
	lost, err := g.Tasks.Work.BeatTasks(c.Context(), beats)
	return doneOf(receipts, lost), err
}

type complete struct{ Body remote.CompletedTasks }

// complete ends tasks. If a receipt occurs twice, the first result counts.
func (g *Group) complete(c *rest.Call, in *complete) (remote.TasksDone, error) {
	var r reading
	receipts := r.receipts("/receipts", in.Body.Receipts)
	results := map[store.TaskRef]json.RawMessage{}
	for i, one := range in.Body.Results {
		at := "/results/" + strconv.Itoa(i)
		done := r.receipt(at+"/receipt", one.Receipt)
		data, err := datum.FormatKinds(one.Result)
		if err != nil {
			r.fault(at+"/result", "%v", err)
		} else if len(data) > store.MaxTaskPayload {
			r.fault(at+"/result", "want at most %d bytes, have %d: send a reference instead", store.MaxTaskPayload, len(data))
		}
		receipts = append(receipts, done)
		if _, twice := results[done.TaskRef]; !twice {
			results[done.TaskRef] = data
		}
	}
	if len(receipts) == 0 {
		r.fault("/receipts", "want the receipts that claims gave, have none")
	}
	return g.report(c, &r, receipts, store.TaskReport{Completed: refsOf(receipts), Results: results})
}

type failed struct{ Body remote.FailedTasks }

// fail reports failed attempts. If a receipt occurs twice, the first counts.
func (g *Group) fail(c *rest.Call, in *failed) (remote.TasksDone, error) {
	var r reading
	var report store.TaskReport
	receipts := readEach(&r, in.Body.Tasks, func(t *remote.FailedTask) (string, wire.Duration) { return t.Receipt, t.Delay },
		func(t *remote.FailedTask, one receipt) { report.Failed = append(report.Failed, g.failureOf(t, one)) })
	return g.report(c, &r, receipts, report)
}

// failureOf returns how the policy of a task's type handles its failure.
func (g *Group) failureOf(t *remote.FailedTask, one receipt) store.TaskFailure {
	failure := store.TaskFailure{TaskRef: one.TaskRef, Error: t.Error}
	if !t.Final && one.attempt > 0 {
		var unsaid error
		policy := taskrun.TaskPolicyOf(g.Engine.Bundle().Pipeline(one.taskType))
		failure.Delay, failure.Retry, unsaid = policy.Next(one.ID, one.attempt)
		if unsaid != nil {
			failure.Error = strings.TrimPrefix(fmt.Sprintf("%s; %s", failure.Error, unsaid), "; ")
			g.Log.Warn("the policy of retries does not say when to try a task again", "type", one.taskType, "task", one.ID, "error", unsaid)
		}
	}
	if failure.Retry && t.Delay > 0 {
		failure.Delay = time.Duration(t.Delay)
	}
	return failure
}

type snoozed struct{ Body remote.SnoozedTasks }

// snooze returns tasks. If a receipt occurs twice, the first counts.
func (g *Group) snooze(c *rest.Call, in *snoozed) (remote.TasksDone, error) {
	var r reading
	var report store.TaskReport
	receipts := readEach(&r, in.Body.Tasks, func(t *remote.SnoozedTask) (string, wire.Duration) { return t.Receipt, t.Delay },
		func(t *remote.SnoozedTask, one receipt) {
			report.Snoozed = append(report.Snoozed, store.TaskSnooze{TaskRef: one.TaskRef, Delay: time.Duration(t.Delay)})
		})
	return g.report(c, &r, receipts, report)
}

// readEach reads the receipts of a list of tasks, and adds each task once.
func readEach[T any](r *reading, tasks []T, said func(*T) (string, wire.Duration), add func(*T, receipt)) []receipt {
	var receipts []receipt
	seen := map[int64]bool{}
	for i := range tasks {
		at := "/tasks/" + strconv.Itoa(i)
		text, delay := said(&tasks[i])
		one := r.receipt(at+"/receipt", text)
		if time.Duration(delay) > store.MaxTaskAhead {
			r.fault(at+"/delay", "want at most ten years")
		}
		receipts = append(receipts, one)
		if !seen[one.ID] {
			add(&tasks[i], one)
		}
		seen[one.ID] = true
	}
	return receipts
}

// mayReport refuses unreadable receipts, and callers who may not do the tasks.
func (g *Group) mayReport(c *rest.Call, r *reading, receipts []receipt) error {
	if err := problem.Body(r.faults); err != nil {
		return err
	}
	return g.mayWork(c, receipts)
}

func (g *Group) report(c *rest.Call, r *reading, receipts []receipt, report store.TaskReport) (done remote.TasksDone, err error) {
	if err := g.mayReport(c, r, receipts); err != nil {
		return done, err
	}
	waiters := g.waiters(c.Context(), receipts)
	lost, err := g.Tasks.Work.ReportTasks(c.Context(), report)
	if err == nil {
		g.wake(c.Context(), waiters)
	}
	return doneOf(receipts, lost), err
}

// doneOf returns which receipts were valid. One that occurs twice counts twice.
func doneOf(receipts []receipt, lost []store.TaskRef) remote.TasksDone {
	gone := lostReceipts(receipts, lost)
	return remote.TasksDone{Done: len(receipts) - len(gone), Lost: gone}
}
