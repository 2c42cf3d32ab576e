package enginetest

import (
	"fmt"
	"slices"
	"strings"
)

// A History is what an outsider sees of runs, in order. Check compares it with the engine's
// guarantees, with any nodes, stores and faults.
type History struct {
	entries []entry
}

// An entry is one observation.
type entry struct {
	what entryKind
	run  string
	path string
	call seenCall
	key  string // the entity of an accepted run
}

type entryKind int

const (
	wasAccepted entryKind = iota
	wasCalled
	wasDecided
	wasEnded
	wasFaulty
)

// A seenCall is a service's view of a call.
type seenCall struct {
	stage int
	key   string // idempotency key
}

// Accepted records a run of an entity. Call it in the order of acceptance for runs of one entity.
// An empty key means no entity.
func (h *History) Accepted(run, key string) {
	h.entries = append(h.entries, entry{what: wasAccepted, run: run, key: key})
}

// Called records that a handler of a stage called a service.
func (h *History) Called(run, path string, stage int, idempotencyKey string) {
	h.entries = append(h.entries, entry{what: wasCalled, run: run, path: path, call: seenCall{stage, idempotencyKey}})
}

// Decided records that the outcome of a handler is durable.
func (h *History) Decided(run, path string) {
	h.entries = append(h.entries, entry{what: wasDecided, run: run, path: path})
}

// Ended records that the end of a run is durable.
func (h *History) Ended(run string) {
	h.entries = append(h.entries, entry{what: wasEnded, run: run})
}

// Fault records that calls may have been interrupted, because a node has died or was considered
// dead.
func (h *History) Fault() { h.entries = append(h.entries, entry{what: wasFaulty}) }

// A seenRun is the check's state of a run.
type seenRun struct {
	id, key string
	ended   bool
	stage   int               // the last called one
	decided map[string]bool   // by path
	keys    map[string]string // idempotency keys, by path
	calls   map[string]int    // number of faults before the last call, by path
}

// historyCheck is a check in progress.
type historyCheck struct {
	runs   map[string]*seenRun
	queues map[string][]*seenRun // unfinished runs of an entity
	owners map[string]string     // of idempotency keys
	faults int
	found  []string
}

// Check returns the violated guarantees. Accepted runs end once. Runs of an entity run one at a
// time, in order. Stages run in order. A handler with a durable outcome is not called again, and
// one without it only after a fault. All calls of a handler in a run have the same key, which no
// other handler has.
func (h *History) Check() []string {
	c := &historyCheck{runs: map[string]*seenRun{}, queues: map[string][]*seenRun{}, owners: map[string]string{}}
	for _, e := range h.entries {
		r := c.runs[e.run]
		switch {
		case e.what == wasFaulty:
			c.faults++
		case e.what == wasAccepted:
			c.accept(e, r)
		case r == nil:
			c.fail("run %s was never accepted", e.run)
		case e.what == wasCalled:
			c.call(e, r)
		case e.what == wasDecided:
			if r.decided[e.path] {
				c.fail("%s of run %s is decided twice", e.path, r.id)
			}
			r.decided[e.path] = true
		case e.what == wasEnded:
			c.end(r)
		}
	}
	for _, r := range c.runs {
		if !r.ended {
			c.fail("run %s has no end", r.id)
		}
	}
	return c.found
}

func (c *historyCheck) fail(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *historyCheck) accept(e entry, known *seenRun) {
	if known != nil {
		c.fail("run %s is accepted twice", e.run)
		return
	}
	r := &seenRun{id: e.run, key: e.key, decided: map[string]bool{}, keys: map[string]string{}, calls: map[string]int{}}
	c.runs[e.run] = r
	if e.key != "" {
		c.queues[e.key] = append(c.queues[e.key], r)
	}
}

func (c *historyCheck) call(e entry, r *seenRun) {
	who := strings.TrimSpace(e.path + " of run " + r.id)
	if q := c.queues[r.key]; r.key != "" && len(q) > 0 && q[0] != r && !r.ended {
		c.fail("%s is called before run %s of the same key has ended", who, q[0].id)
	}
	switch faults, called := r.calls[e.path]; {
	case r.ended:
		c.fail("%s is called after the end", who)
	case r.decided[e.path]:
		c.fail("%s is called again, though its outcome was durable", who)
	case called && faults == c.faults:
		c.fail("%s is called twice without a fault", who)
	case e.call.stage < r.stage:
		c.fail("%s is called after stage %d has begun", who, r.stage+1)
	}
	r.stage = max(r.stage, e.call.stage)
	r.calls[e.path] = c.faults
	if key, called := r.keys[e.path]; called && key != e.call.key {
		c.fail("%s is called with the keys %s and %s", who, key, e.call.key)
	}
	r.keys[e.path] = e.call.key
	if owner := c.owners[e.call.key]; owner != "" && owner != who {
		c.fail("%s and %s have the same key", owner, who)
	}
	c.owners[e.call.key] = who
}

func (c *historyCheck) end(r *seenRun) {
	if r.ended {
		c.fail("run %s ends twice", r.id)
		return
	}
	r.ended = true
	if q := c.queues[r.key]; r.key != "" {
		if q[0] != r {
			c.fail("run %s ends before run %s of the same key", r.id, q[0].id)
		}
		c.queues[r.key] = slices.DeleteFunc(q, func(other *seenRun) bool { return other == r })
	}
}
