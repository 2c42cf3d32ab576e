package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/guard"
	"procaas/engine/store"
)

// A queueHistory is what the torture test of the queue saw. Times are those of the test,
// but for those of tasks.
type queueHistory struct {
	wrongBy   time.Duration // the clock of the database, less that of the test
	puts      []taskPut
	poisonous map[int]bool
	doings    []doing
	jobs      map[int]int
	orders    []orderedTask

	completed, dead []store.QueuedTask

	wrong   []string
	done    map[int64]*store.QueuedTask // by id, of completed
	buried  map[int64]*store.QueuedTask
	byID    map[int64][]*doing
	final   map[int64]*doing // the attempt that completed a task
	unknown map[int]taskPut  // by number, puts without an answer
	shared  int              // pairs of attempts that ran at the same time, after a lease was over
}

func readBody(t *store.QueuedTask) (b taskBody) {
	_ = json.Unmarshal(t.Payload, &b) // what is no body has no numbers
	if len(b.NS) == 0 {
		b.NS = []int{0}
	}
	return b
}

func (h *queueHistory) bad(format string, args ...any) {
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func (h *queueHistory) summary() string {
	outcomes := map[string]int{}
	for _, p := range h.puts {
		outcomes[cmp.Or(p.outcome, "unknown")]++
	}
	return fmt.Sprintf("%d puts %v, %d attempts, %d completed, %d dead letters, %d attempts beside another one whose lease was over, %d in order",
		len(h.puts), outcomes, len(h.doings), len(h.completed), len(h.dead), h.shared, len(h.orders))
}

// violations lists what must not be.
func (h *queueHistory) violations() []string {
	h.index()
	h.checkEnds()
	h.checkOverlaps()
	h.checkPuts()
	h.checkMerged()
	h.checkReplaced()
	h.checkRerun()
	h.checkDead()
	h.checkOrder()
	return h.wrong
}

func (h *queueHistory) index() {
	h.done, h.buried, h.byID = map[int64]*store.QueuedTask{}, map[int64]*store.QueuedTask{}, map[int64][]*doing{}
	h.final, h.unknown = map[int64]*doing{}, map[int]taskPut{}
	for i := range h.completed {
		one := &h.completed[i]
		if h.done[one.ID] != nil {
			h.bad("task %d of %s is completed twice", one.ID, one.Type)
		}
		h.done[one.ID] = one
	}
	for i := range h.dead {
		one := &h.dead[i]
		if h.done[one.ID] != nil || h.buried[one.ID] != nil {
			h.bad("task %d of %s has ended twice, as a dead letter: %s", one.ID, one.Type, one.Error)
		}
		h.buried[one.ID] = one
	}
	for i := range h.doings {
		d := &h.doings[i]
		h.byID[d.ID] = append(h.byID[d.ID], d)
		if one := h.done[d.ID]; one != nil && one.Epoch == d.Epoch {
			if h.final[d.ID] != nil {
				h.bad("attempt %d of task %d was made twice", d.Epoch, d.ID)
			}
			h.final[d.ID] = d
		}
	}
	for _, p := range h.puts {
		if p.id == "" {
			h.unknown[p.n] = p
		}
	}
}

// checkEnds: a worker whose completion was confirmed has completed the task, and nobody
// else; each that is completed was worked to its end by the attempt that holds.
func (h *queueHistory) checkEnds() {
	for i := range h.doings {
		d := &h.doings[i]
		if one := h.done[d.ID]; d.accepted && (one == nil || one.Epoch != d.Epoch) {
			h.bad("attempt %d of task %d of %s was told that it counts, and completed is %+v", d.Epoch, d.ID, d.Type, one)
		}
	}
	for id, one := range h.done {
		if one.Type == "order" || one.Type == "job" {
			continue
		}
		if d := h.final[id]; d == nil || d.ended.IsZero() {
			h.bad("task %d of %s was completed by attempt %d, which has not come to its end", id, one.Type, one.Epoch)
		}
	}
}

// checkOverlaps: of attempts that exclude each other, the later one begins when the
// earlier one has ended, or its lease. They are those of a task, of a name, and of a
// bounded key.
func (h *queueHistory) checkOverlaps() {
	groups := map[string][]*doing{}
	for i := range h.doings {
		d := &h.doings[i]
		names := []string{fmt.Sprint("task ", d.ID)}
		if d.Payload.Name != "" {
			names = append(names, fmt.Sprintf("the name %s of %s", d.Payload.Name, d.Type))
		}
		if d.Type == "keyed" {
			names = append(names, "the key "+d.Key)
		}
		for _, name := range names {
			groups[name] = append(groups[name], d)
		}
	}
	for name, group := range groups {
		slices.SortFunc(group, func(a, b *doing) int { return a.begun.Compare(b.begun) })
		for i, later := range group {
			for _, earlier := range group[max(0, i-10):i] {
				began := later.begun.Add(h.wrongBy)
				switch {
				case !earlier.ended.IsZero() && !earlier.ended.After(later.begun):
				case !began.Before(earlier.Until), !began.Before(later.Until): // of one of them the lease may be over
					h.shared++
				default:
					h.bad("%s: attempt %d of task %d began at %s beside another one: %s; %s", name, later.Epoch, later.ID, timeOfDay(began),
						h.story(fmt.Sprint(earlier.ID)), h.story(fmt.Sprint(later.ID)))
				}
			}
		}
	}
}

// ended reports whether a task has ended.
func (h *queueHistory) ended(id string) (int64, bool) {
	n, _ := strconv.ParseInt(id, 10, 64)
	return n, h.done[n] != nil || h.buried[n] != nil
}

// checkPuts: what was accepted has ended, and as it should; nothing comes of nothing.
func (h *queueHistory) checkPuts() {
	known := map[int]bool{}
	for _, p := range h.puts {
		known[p.n] = true
		if p.id == "" {
			continue
		}
		id, ended := h.ended(p.id)
		if !ended {
			h.bad("task %s of %s, put as number %d with the outcome %s, is lost", p.id, p.kind, p.n, p.outcome)
			continue
		}
		single := p.name == ""
		if single && p.outcome != "added" {
			h.bad("task %s of %s: the outcome is %s, and it has no name", p.id, p.kind, p.outcome)
		}
		if d := h.final[id]; single && d != nil && !slices.Equal(d.Payload.NS, []int{p.n}) {
			h.bad("task %s of %s was put with %d, and done with %v", p.id, p.kind, p.n, d.Payload.NS)
		}
		if p.kind == "job" && h.done[id] != nil && h.jobs[p.n] == 0 {
			h.bad("the job of task %d is completed, and was never called", id)
		}
	}
	for i := range h.doings {
		for _, n := range h.doings[i].Payload.NS {
			if !known[n] {
				h.bad("task %d of %s was done with %d, which nobody has put", h.doings[i].ID, h.doings[i].Type, n)
			}
		}
	}
}

// payloads returns what tasks of a type were completed or buried with, by name.
func (h *queueHistory) payloads(kind string) map[string][]taskBody {
	out := map[string][]taskBody{}
	for _, d := range h.final {
		if d.Type == kind {
			out[d.Payload.Name] = append(out[d.Payload.Name], d.Payload)
		}
	}
	return out
}

// story tells what is known of a task, for people.
func (h *queueHistory) story(id string) string {
	var out []string
	n, _ := strconv.ParseInt(id, 10, 64)
	for _, d := range h.byID[n] {
		out = append(out, fmt.Sprintf("attempt %d of %s began %s with %d numbers, held until %s, ended %s, accepted %v", d.Epoch, d.process,
			timeOfDay(d.begun.Add(h.wrongBy)), len(d.Payload.NS), timeOfDay(d.Until), timeOfDay(d.ended.Add(h.wrongBy)), d.accepted))
	}
	if one := h.done[n]; one != nil {
		out = append(out, fmt.Sprintf("completed by attempt %d, taken %s, ended %s", one.Epoch, timeOfDay(one.Begun), timeOfDay(one.Ended)))
	}
	if one := h.buried[n]; one != nil {
		out = append(out, fmt.Sprintf("dead after attempt %d: %s", one.Epoch, one.Error))
	}
	return "task " + id + ": " + strings.Join(out, "; ")
}

func timeOfDay(t time.Time) string { return t.UTC().Format("04:05.000") }

// checkMerged: each number that was accepted is in exactly one task that has ended.
func (h *queueHistory) checkMerged() {
	count := map[int]int{}
	for _, bodies := range h.payloads("merge") {
		for _, b := range bodies {
			for _, n := range b.NS {
				count[n]++
			}
		}
	}
	for _, one := range h.buried {
		if one.Type == "merge" {
			for _, n := range readBody(one).NS {
				count[n]++
			}
		}
	}
	for _, p := range h.puts {
		if p.kind != "merge" {
			continue
		}
		if n := count[p.n]; n > 1 || n == 0 && p.id != "" {
			h.bad("number %d was put to be merged as %s with task %s and the outcome %q, and is in %d tasks; %s", p.n, p.name, p.id, p.outcome, n,
				h.story(p.id))
		}
	}
}

// checkReplaced: the last one of a name is done, unless one whose fate was unknown came
// after it.
func (h *queueHistory) checkReplaced() {
	for _, p := range h.puts {
		if p.kind != "replace" || !p.last || p.id == "" {
			continue
		}
		found := slices.ContainsFunc(h.payloads("replace")[p.name], func(b taskBody) bool {
			_, late := h.unknown[b.NS[0]]
			return b.NS[0] == p.n || late
		})
		if !found {
			h.bad("number %d was the last to be put as %s, and was not done", p.n, p.name)
		}
	}
}

// checkRerun: each one that was accepted is followed by an attempt that completes, and
// exactly one more task comes of a task that was in flight, however many duplicates came.
func (h *queueHistory) checkRerun() {
	type name struct{ kind, name string }
	added, unknown := map[name]int{}, map[name]int{}
	holders := map[name]map[string]bool{}
	ended := map[name]int{}
	seeing := map[name][]*doing{}
	for _, one := range h.buried {
		if b := readBody(one); b.Name != "" {
			ended[name{one.Type, b.Name}]++
		}
	}
	for _, d := range h.final {
		if k := (name{d.Type, d.Payload.Name}); d.Payload.Name != "" {
			seeing[k] = append(seeing[k], d)
			ended[k]++
		}
	}
	for _, p := range h.puts {
		k := name{p.kind, p.name}
		switch {
		case p.name == "":
			continue
		case p.id == "":
			unknown[k]++
		case p.outcome == "added":
			added[k]++
		case p.outcome == "follows":
			if holders[k] == nil {
				holders[k] = map[string]bool{}
			}
			holders[k][p.id] = true
		}
		id, _ := h.ended(p.id)
		if p.kind == "rerun" && p.id != "" && h.buried[id] == nil &&
			!slices.ContainsFunc(seeing[k], func(d *doing) bool { return !d.begun.Before(p.sent) }) {
			h.bad("number %d of %s was put with the outcome %s, and nothing was done afterwards", p.n, p.name, p.outcome)
		}
	}
	for k, n := range ended {
		least := added[k] + len(holders[k])
		if n > least+unknown[k] || n < least && k.kind != "replace" { // what takes the place of a task does so of its follower, too
			h.bad("%s of %s: %d were added, %d followed others, %d are unknown; %d have ended", k.name, k.kind, added[k], len(holders[k]),
				unknown[k], n)
		}
	}
}

// checkDead: dead letters are what fails and what kills, and few that had bad luck.
func (h *queueHistory) checkDead() {
	var unlucky []string
	for _, one := range h.buried {
		lost := strings.Contains(one.Error, "not heard of")
		poisonous := h.poisonous[readBody(one).NS[0]]
		switch {
		case one.Type == "fails" && one.Failures == 3, poisonous && lost:
		case lost && one.Lost == guard.MaxLost:
			unlucky = append(unlucky, fmt.Sprintf("task of %s, %s; %s", one.Type, one.Error, h.story(fmt.Sprint(one.ID))))
		default:
			h.bad("task %d of %s is a dead letter after %d failures and %d lost workers: %s", one.ID, one.Type, one.Failures, one.Lost, one.Error)
		}
	}
	if most := 3 + len(h.completed)/200; len(unlucky) > most {
		h.bad("%d tasks that do no harm are dead letters, want at most %d:\n%s", len(unlucky), most,
			strings.Join(unlucky[:min(10, len(unlucky))], "\n"))
	}
	for id, d := range h.final {
		if d.Type == "fails" || h.poisonous[d.Payload.NS[0]] {
			h.bad("task %d of %s is completed, and cannot have been", id, d.Type)
		}
	}
}

// checkOrder: those that are taken for the first time by one worker come in order.
func (h *queueHistory) checkOrder() {
	for i := 1; i < len(h.orders); i++ {
		a, b := h.orders[i-1], h.orders[i]
		ida, _ := strconv.Atoi(a.ID)
		idb, _ := strconv.Atoi(b.ID)
		if cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Deadline.Compare(b.Deadline), cmp.Compare(ida, idb)) > 0 {
			h.bad("task %s of priority %d and deadline %v came before task %s of %d and %v", a.ID, a.Priority, a.Deadline, b.ID, b.Priority,
				b.Deadline)
		}
	}
}
