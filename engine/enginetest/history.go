package enginetest

import (
	"fmt"
	"slices"
	"strings"
)

// A History is what an outsider sees of runs, in order. Its Check holds it
// against the engine's promises, whatever nodes, stores and faults made it.
type History struct {
	entries []entry
}

// An entry is one thing that was seen.
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

// A seenCall is what a service knows of a call.
type seenCall struct {
	stage int
	key   string // for idempotency
}

// Accepted notes a run of an entity. Runs of one entity are noted in the order
// in which they were accepted; an empty key is nobody's.
func (h *History) Accepted(run, key string) {
	h.entries = append(h.entries, entry{what: wasAccepted, run: run, key: key})
}

// Called notes that a service was called by a handler of a stage.
func (h *History) Called(run, path string, stage int, idempotencyKey string) {
	h.entries = append(h.entries, entry{what: wasCalled, run: run, path: path, call: seenCall{stage, idempotencyKey}})
}

// Decided notes that the outcome of a handler is durable.
func (h *History) Decided(run, path string) {
	h.entries = append(h.entries, entry{what: wasDecided, run: run, path: path})
}

// Ended notes that the end of a run is durable.
func (h *History) Ended(run string) {
	h.entries = append(h.entries, entry{what: wasEnded, run: run})
}

// Fault notes that calls may have been cut off: a node has died, or has been
// taken for dead.
func (h *History) Fault() { h.entries = append(h.entries, entry{what: wasFaulty}) }

// A seenRun is what the check knows of a run so far.
type seenRun struct {
	id, key string
	ended   bool
	stage   int               // the last one that was called
	decided map[string]bool   // by path
	keys    map[string]string // for idempotency, by path
	calls   map[string]int    // the number of faults before the last call, by path
}

// historyCheck is a check under way.
type historyCheck struct {
	runs   map[string]*seenRun
	queues map[string][]*seenRun // those of an entity that have not ended
	owners map[string]string     // of keys for idempotency
	faults int
	found  []string
}

// Check returns what breaks the promises: accepted runs end once; runs of an entity
// go one at a time, in order; stages go in order; a handler whose outcome is
// durable is not called again, and one whose outcome is not only after a fault;
// all calls of a handler in a run have one key, which no other has.
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
