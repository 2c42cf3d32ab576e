package stub

import (
	"maps"
	"sync"
	"time"
)

// A Call is a stub service's record of one request.
type Call struct {
	Service string    `json:"service"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	Key     string    `json:"key,omitempty"`     // of the Idempotency-Key header
	Handler string    `json:"handler,omitempty"` // of the X-Procaas-Path header
	Run     string    `json:"run,omitempty"`     // of the X-Procaas-Run header
	Attempt string    `json:"attempt,omitempty"` // of the X-Procaas-Attempt header
	Time    time.Time `json:"time"`
	Status  int       `json:"status"` // 0: closed without a reply
}

// A Tally counts the calls with one Idempotency-Key.
type Tally struct {
	Calls   int `json:"calls"`
	Effects int `json:"effects"` // 1 if any call succeeded, because a service does the work of a key once
}

// A Record has everything that the services remember, as in GET /__stub/calls.
type Record struct {
	Total   int              `json:"total"`   // total number of calls
	Effects int              `json:"effects"` // keys with a successful call
	Calls   []Call           `json:"calls"`   // the latest, oldest first
	Keys    map[string]Tally `json:"keys"`
}

// These bound what is kept, because a demo may run for days.
const (
	rememberedCalls = 10_000
	rememberedKeys  = 1 << 20
)

// A journal records calls.
type journal struct {
	mu      sync.Mutex // guards all below
	calls   ring[Call]
	effects int
	keys    map[string]Tally
	recent  ring[string] // keys in the order of their first calls
}

func newJournal() *journal {
	return &journal{
		calls:  ring[Call]{size: rememberedCalls},
		keys:   make(map[string]Tally),
		recent: ring[string]{size: rememberedKeys},
	}
}

func (j *journal) add(c Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls.add(c)
	if c.Key == "" {
		return
	}
	tally, known := j.keys[c.Key]
	if !known {
		if old, full := j.recent.add(c.Key); full {
			delete(j.keys, old)
		}
	}
	tally.Calls++
	if c.Status/100 == 2 && tally.Effects == 0 {
		tally.Effects = 1
		j.effects++
	}
	j.keys[c.Key] = tally
}

func (j *journal) record() Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Record{Total: j.calls.total, Effects: j.effects, Calls: j.calls.all(), Keys: maps.Clone(j.keys)}
}

// A ring keeps the latest items, up to its size.
type ring[T any] struct {
	size  int
	items []T
	total int // number ever added
}

// add adds an item and returns the removed one, if any.
func (r *ring[T]) add(item T) (old T, full bool) {
	at := r.total % r.size
	r.total++
	if len(r.items) < r.size {
		r.items = append(r.items, item)
		return old, false
	}
	old, r.items[at] = r.items[at], item
	return old, true
}

// all lists the items, oldest first.
func (r *ring[T]) all() []T {
	oldest := 0
	if len(r.items) == r.size {
		oldest = r.total % r.size
	}
	out := make([]T, 0, len(r.items))
	return append(append(out, r.items[oldest:]...), r.items[:oldest]...)
}
