package seen

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"procaas/engine/stats"
	"procaas/engine/store"
)

// The evidence of incidents are samples of all nodes together, in documents of the store: one for each quarter of an hour
// of the day, which the next day replaces.
const (
	documentEvidence = "evidence"
	EvidenceStep     = 10      // seconds of a sample
	evidenceChapter  = 15 * 60 // seconds of a document
	evidenceDay      = 24 * 60 * 60
	EvidenceWrites   = 30 * time.Second // apart: what a node may lose when it is killed
	evidenceTries    = 5                // when other nodes write at the same time
	evidenceWrong    = 20               // problems that a node notes at once
	evidenceGap      = 60               // seconds without a problem that do not end it
	evidenceShown    = 720              // points of a chart
)

// A Sample is what happened on the nodes in some seconds.
type Sample struct {
	At       int64 `json:"at"` // Unix seconds of its begin
	Calls    int64 `json:"calls,omitempty"`
	Errors   int64 `json:"errors,omitempty"` // calls that failed
	Accepted int64 `json:"accepted,omitempty"`
	Ended    int64 `json:"ended,omitempty"`    // runs, in any way
	P99      int64 `json:"p99,omitempty"`      // ms within which 99 of 100 runs succeeded, of the slowest node
	Failed   int64 `json:"failed,omitempty"`   // runs that failed then, also if somebody has retried them since
	LeftOut  int64 `json:"left_out,omitempty"` // runs that went on without a handler
	Out      int   `json:"out,omitempty"`      // handlers out of the flow
}

func (s *Sample) add(o Sample) {
	s.Calls, s.Errors, s.Accepted = s.Calls+o.Calls, s.Errors+o.Errors, s.Accepted+o.Accepted
	s.Ended, s.P99 = s.Ended+o.Ended, max(s.P99, o.P99)
	s.Failed, s.LeftOut, s.Out = s.Failed+o.Failed, s.LeftOut+o.LeftOut, max(s.Out, o.Out)
}

// An Incident is a problem while it lasted.
type Incident struct {
	Name  string `json:"name"`
	Is    string `json:"is"`
	Class string `json:"class"`
	Href  string `json:"href"`
	From  int64  `json:"from"` // Unix seconds
	To    int64  `json:"to"`   // when it was seen last
	Runs  int    `json:"runs"` // that stood still for it, at most
}

// A Chapter is the evidence of a quarter of an hour.
type Chapter struct {
	From    int64      `json:"from"` // Unix seconds
	Samples []Sample   `json:"samples"`
	Wrong   []Incident `json:"wrong,omitempty"`

	whole bool // nobody adds to it any more
}

// name is that of the document.
func (c *Chapter) name() string { return fmt.Sprintf("%02d", c.From%evidenceDay/evidenceChapter) }

// merge adds what another node, or this one earlier, has seen.
func (c *Chapter) merge(o Chapter) {
	for _, s := range o.Samples {
		if i, known := slices.BinarySearchFunc(c.Samples, s.At, func(s Sample, at int64) int { return cmp.Compare(s.At, at) }); known {
			c.Samples[i].add(s)
		} else {
			c.Samples = slices.Insert(c.Samples, i, s)
		}
	}
	for _, in := range o.Wrong {
		c.Note(in)
	}
}

// Note adds a time in which something was wrong, to the one that it continues.
func (c *Chapter) Note(in Incident) {
	for i := range c.Wrong {
		if w := &c.Wrong[i]; w.Name == in.Name && w.Is == in.Is && in.From <= w.To+evidenceGap && w.From <= in.To+evidenceGap {
			w.From, w.To, w.Runs = min(w.From, in.From), max(w.To, in.To), max(w.Runs, in.Runs)
			return
		}
	}
	c.Wrong = append(c.Wrong, in)
}

// An Evidence takes samples, and reads those of all nodes.
type Evidence struct {
	docs store.Documents // nil keeps a day in memory

	mu    sync.Mutex         // guards the following
	at    int64              // of the last sample; 0 before the first
	last  stats.Numbers      // then
	fresh map[int64]*Chapter // what the store has not got yet, by From
	kept  map[int64]Chapter  // read from the store, by From
}

func NewEvidence(docs store.Documents) *Evidence {
	return &Evidence{docs: docs, fresh: map[int64]*Chapter{}, kept: map[int64]Chapter{}}
}

// Take adds what has happened since the last time to the present sample.
func (e *Evidence) Take(now time.Time, n stats.Numbers, handlers []stats.HandlerInfo, wrong []Incident) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Sample{At: now.Unix() - now.Unix()%EvidenceStep}
	known := e.at == s.At // the calls of its time
	if e.at != 0 {
		s.Accepted, s.LeftOut = int64(n.Accepted-e.last.Accepted), int64(n.LeftOut-e.last.LeftOut)
		s.Failed = int64(n.Runs["failed"] - e.last.Runs["failed"])
		for status, count := range n.Runs {
			s.Ended += int64(count - e.last.Runs[status])
		}
		s.P99 = int64(n.P99(e.last))
	}
	e.at, e.last = s.At, n
	for _, h := range handlers {
		if h.RecentRatio != nil && !known {
			s.Calls += h.RecentCalls
			s.Errors += h.RecentCalls - int64(float64(h.RecentCalls)*(*h.RecentRatio)+0.5)
		}
		if h.Fallback.IsOut() {
			s.Out++
		}
	}
	e.put(Chapter{From: s.At - s.At%evidenceChapter, Samples: []Sample{s}})
	e.noteAll(now, wrong)
	for from := range e.fresh {
		if from < s.At-evidenceDay-evidenceChapter {
			delete(e.fresh, from)
		}
	}
}

// Note keeps what is wrong now: what somebody has seen on a page is in the evidence, however soon it ends.
func (e *Evidence) Note(now time.Time, wrong []Incident) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteAll(now, wrong)
}

func (e *Evidence) noteAll(now time.Time, wrong []Incident) {
	c := Chapter{From: now.Unix() - now.Unix()%evidenceChapter}
	for _, in := range wrong[:min(len(wrong), evidenceWrong)] {
		c.Note(in)
	}
	e.put(c)
}

// put keeps what is to be written.
func (e *Evidence) put(c Chapter) {
	if e.fresh[c.From] == nil {
		e.fresh[c.From] = &Chapter{From: c.From}
	}
	e.fresh[c.From].merge(c)
}

// Write adds what is fresh to what the store has. What cannot be written stays for the next time.
func (e *Evidence) Write(ctx context.Context) error {
	if e.docs == nil {
		return nil
	}
	e.mu.Lock()
	fresh := e.fresh
	e.fresh = map[int64]*Chapter{}
	e.mu.Unlock()
	var failed error
	for _, c := range fresh {
		if err := e.writeChapter(ctx, *c); err != nil {
			failed = err
			e.mu.Lock()
			e.put(*c)
			e.mu.Unlock()
		}
	}
	return failed
}

func (e *Evidence) writeChapter(ctx context.Context, c Chapter) error {
	for try := 1; ; try++ {
		there, version, err := e.read(ctx, c.From)
		if err != nil {
			return err
		}
		if there.From > c.From {
			return nil // of the next day, by the clock of another node
		}
		there.From = c.From
		there.merge(c)
		value, err := json.Marshal(there)
		if err != nil {
			return fmt.Errorf("write evidence: %w", err)
		}
		_, err = e.docs.WriteDocuments(ctx, 0, []store.DocumentWrite{{
			Kind: documentEvidence, Name: c.name(), Version: version, Value: value,
		}}, nil)
		if try == evidenceTries || !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// read reads a chapter, or that of a later day; it is empty when the store has neither.
func (e *Evidence) read(ctx context.Context, from int64) (c Chapter, version int64, err error) {
	c.From = from
	d, err := e.docs.Document(ctx, documentEvidence, c.name())
	if errors.Is(err, store.ErrNotFound) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, err
	}
	var there Chapter
	if err := json.Unmarshal(d.Value, &there); err != nil || there.From < from {
		return c, d.Version, nil // what nobody can read is written anew
	}
	return there, d.Version, nil
}

// Between returns all that is known of a time, in its order. It goes until now if to is zero.
func (e *Evidence) Between(ctx context.Context, from, to time.Time) (all Chapter, err error) {
	if to.IsZero() {
		to = time.Now()
	}
	first := max(from.Unix(), time.Now().Unix()-evidenceDay)
	for at := first - first%evidenceChapter; at <= to.Unix(); at += evidenceChapter {
		c, err := e.chapter(ctx, at)
		if err != nil {
			return all, err
		}
		for _, s := range c.Samples {
			if s.At >= from.Unix() && s.At <= to.Unix() {
				all.Samples = append(all.Samples, s)
			}
		}
		for _, in := range c.Wrong {
			if in.To >= from.Unix() && in.From <= to.Unix() {
				all.Note(in)
			}
		}
	}
	return all, nil
}

// chapter returns one as the store and this node have it.
func (e *Evidence) chapter(ctx context.Context, from int64) (Chapter, error) {
	e.mu.Lock()
	c, known := e.kept[from]
	e.mu.Unlock()
	if e.docs != nil && !(known && c.whole) {
		var err error
		if c, _, err = e.read(ctx, from); err != nil {
			return c, err
		}
		if c.From > from {
			c = Chapter{From: from} // the next day has replaced it
		}
		c.whole = time.Now().Unix() > from+2*evidenceChapter // the others have written what they know
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept[from] = c
	for at := range e.kept {
		if at < time.Now().Unix()-evidenceDay-evidenceChapter {
			delete(e.kept, at)
		}
	}
	if fresh := e.fresh[from]; fresh != nil {
		c.Samples, c.Wrong = slices.Clone(c.Samples), slices.Clone(c.Wrong)
		c.merge(*fresh)
	}
	return c, nil
}

// Columns are what charts show: the time, the share of calls that failed, handlers out of the flow, runs that failed,
// events and ended runs in a second, and the p99 of runs in ms. A line breaks where no node ran. The last point has not ended now.
func (c *Chapter) Columns(now time.Time) [][]any {
	out := make([][]any, 7)
	row := func(values ...any) {
		for i, v := range values {
			out[i] = append(out[i], v)
		}
	}
	if len(c.Samples) == 0 {
		return out
	}
	span := c.Samples[len(c.Samples)-1].At - c.Samples[0].At
	step := EvidenceStep * (1 + span/EvidenceStep/evidenceShown)
	for i := 0; i < len(c.Samples); {
		s := c.Samples[i]
		s.At -= s.At % step
		for i++; i < len(c.Samples) && c.Samples[i].At < s.At+step; i++ {
			s.add(c.Samples[i])
		}
		var p99 any // none without a run
		if s.P99 > 0 {
			p99 = s.P99
		}
		took := float64(max(1, min(step, now.Unix()-s.At)))
		row(s.At, 100*s.Share(), s.Out, s.Failed, float64(s.Accepted)/took, float64(s.Ended)/took, p99)
		if i < len(c.Samples) && c.Samples[i].At >= s.At+step+evidenceGap {
			row(s.At+step, nil, nil, nil, nil, nil, nil)
		}
	}
	return out
}

// Share is that of the calls that failed.
func (s *Sample) Share() float64 { return float64(s.Errors) / float64(max(s.Calls, 1)) }
