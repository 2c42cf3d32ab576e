package ui

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
	evidenceStep     = 10      // seconds of a sample
	evidenceChapter  = 15 * 60 // seconds of a document
	evidenceDay      = 24 * 60 * 60
	evidenceWrites   = 30 * time.Second // apart: what a node may lose when it is killed
	evidenceTries    = 5                // when other nodes write at the same time
	evidenceWrong    = 20               // problems that a node notes at once
	evidenceGap      = 60               // seconds without a problem that do not end it
	evidenceShown    = 720              // points of a chart
)

// A sample is what happened on the nodes in some seconds.
type sample struct {
	At       int64 `json:"at"` // Unix seconds of its begin
	Calls    int64 `json:"calls,omitempty"`
	Errors   int64 `json:"errors,omitempty"` // calls that failed
	Accepted int64 `json:"accepted,omitempty"`
	Failed   int64 `json:"failed,omitempty"`   // runs that failed then, also if somebody has retried them since
	LeftOut  int64 `json:"left_out,omitempty"` // runs that went on without a handler
	Out      int   `json:"out,omitempty"`      // handlers out of the flow
}

func (s *sample) add(o sample) {
	s.Calls, s.Errors, s.Accepted = s.Calls+o.Calls, s.Errors+o.Errors, s.Accepted+o.Accepted
	s.Failed, s.LeftOut, s.Out = s.Failed+o.Failed, s.LeftOut+o.LeftOut, max(s.Out, o.Out)
}

// An incident is a problem while it lasted.
type incident struct {
	Name  string `json:"name"`
	Is    string `json:"is"`
	Class string `json:"class"`
	Href  string `json:"href"`
	From  int64  `json:"from"` // Unix seconds
	To    int64  `json:"to"`   // when it was seen last
	Runs  int    `json:"runs"` // that stood still for it, at most
}

// A chapter is the evidence of a quarter of an hour.
type chapter struct {
	From    int64      `json:"from"` // Unix seconds
	Samples []sample   `json:"samples"`
	Wrong   []incident `json:"wrong,omitempty"`

	whole bool // nobody adds to it any more
}

// name is that of the document.
func (c *chapter) name() string { return fmt.Sprintf("%02d", c.From%evidenceDay/evidenceChapter) }

// merge adds what another node, or this one earlier, has seen.
func (c *chapter) merge(o chapter) {
	for _, s := range o.Samples {
		if i, known := slices.BinarySearchFunc(c.Samples, s.At, func(s sample, at int64) int { return cmp.Compare(s.At, at) }); known {
			c.Samples[i].add(s)
		} else {
			c.Samples = slices.Insert(c.Samples, i, s)
		}
	}
	for _, in := range o.Wrong {
		c.note(in)
	}
}

// note adds a time in which something was wrong, to the one that it continues.
func (c *chapter) note(in incident) {
	for i := range c.Wrong {
		if w := &c.Wrong[i]; w.Name == in.Name && w.Is == in.Is && in.From <= w.To+evidenceGap && w.From <= in.To+evidenceGap {
			w.From, w.To, w.Runs = min(w.From, in.From), max(w.To, in.To), max(w.Runs, in.Runs)
			return
		}
	}
	c.Wrong = append(c.Wrong, in)
}

// An evidence takes samples, and reads those of all nodes.
type evidence struct {
	docs store.Documents // nil keeps a day in memory

	mu    sync.Mutex         // guards the following
	at    int64              // of the last sample; 0 before the first
	last  Numbers            // then
	fresh map[int64]*chapter // what the store has not got yet, by From
	kept  map[int64]chapter  // read from the store, by From
}

func newEvidence(docs store.Documents) *evidence {
	return &evidence{docs: docs, fresh: map[int64]*chapter{}, kept: map[int64]chapter{}}
}

// take adds what has happened since the last time to the present sample.
func (e *evidence) take(now time.Time, n Numbers, handlers []stats.HandlerInfo, wrong []problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := sample{At: now.Unix() - now.Unix()%evidenceStep}
	known := e.at == s.At // the calls of its time
	if e.at != 0 {
		s.Accepted, s.LeftOut = int64(n.Accepted-e.last.Accepted), int64(n.LeftOut-e.last.LeftOut)
		s.Failed = int64(n.Runs["failed"] - e.last.Runs["failed"])
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
	e.put(chapter{From: s.At - s.At%evidenceChapter, Samples: []sample{s}})
	e.noteAll(now, wrong)
	for from := range e.fresh {
		if from < s.At-evidenceDay-evidenceChapter {
			delete(e.fresh, from)
		}
	}
}

// note keeps what is wrong now: what somebody has seen on a page is in the evidence, however soon it ends.
func (e *evidence) note(now time.Time, wrong []problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteAll(now, wrong)
}

func (e *evidence) noteAll(now time.Time, wrong []problem) {
	c := chapter{From: now.Unix() - now.Unix()%evidenceChapter}
	for _, p := range wrong[:min(len(wrong), evidenceWrong)] {
		c.note(p.incident(now))
	}
	e.put(c)
}

// put keeps what is to be written.
func (e *evidence) put(c chapter) {
	if e.fresh[c.From] == nil {
		e.fresh[c.From] = &chapter{From: c.From}
	}
	e.fresh[c.From].merge(c)
}

// incident is the problem as it is noted.
func (p *problem) incident(now time.Time) incident {
	in := incident{Name: p.Name, Is: p.Is, Class: p.Class, Href: p.Href, From: now.Unix(), To: now.Unix(), Runs: p.Runs}
	if p.Since != nil && !p.Since.IsZero() {
		in.From = min(in.From, p.Since.Unix())
	}
	return in
}

// write adds what is fresh to what the store has. What cannot be written stays for the next time.
func (e *evidence) write(ctx context.Context) error {
	if e.docs == nil {
		return nil
	}
	e.mu.Lock()
	fresh := e.fresh
	e.fresh = map[int64]*chapter{}
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

func (e *evidence) writeChapter(ctx context.Context, c chapter) error {
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
func (e *evidence) read(ctx context.Context, from int64) (c chapter, version int64, err error) {
	c.From = from
	d, err := e.docs.Document(ctx, documentEvidence, c.name())
	if errors.Is(err, store.ErrNotFound) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, err
	}
	var there chapter
	if err := json.Unmarshal(d.Value, &there); err != nil || there.From < from {
		return c, d.Version, nil // what nobody can read is written anew
	}
	return there, d.Version, nil
}

// between returns all that is known of a time, in its order; until now when to is zero.
func (e *evidence) between(ctx context.Context, from, to time.Time) (all chapter, err error) {
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
				all.note(in)
			}
		}
	}
	return all, nil
}

// chapter returns one as the store and this node have it.
func (e *evidence) chapter(ctx context.Context, from int64) (chapter, error) {
	e.mu.Lock()
	c, known := e.kept[from]
	e.mu.Unlock()
	if e.docs != nil && !(known && c.whole) {
		var err error
		if c, _, err = e.read(ctx, from); err != nil {
			return c, err
		}
		if c.From > from {
			c = chapter{From: from} // the next day has replaced it
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

// columns are what a chart shows: the time, the share of calls that failed, handlers out of the flow, runs that failed.
// A line breaks where no node ran.
func (c *chapter) columns() [][]any {
	out := make([][]any, 4)
	row := func(values ...any) {
		for i, v := range values {
			out[i] = append(out[i], v)
		}
	}
	if len(c.Samples) == 0 {
		return out
	}
	span := c.Samples[len(c.Samples)-1].At - c.Samples[0].At
	step := evidenceStep * (1 + span/evidenceStep/evidenceShown)
	for i := 0; i < len(c.Samples); {
		s := c.Samples[i]
		s.At -= s.At % step
		for i++; i < len(c.Samples) && c.Samples[i].At < s.At+step; i++ {
			s.add(c.Samples[i])
		}
		row(s.At, 100*s.share(), s.Out, s.Failed)
		if i < len(c.Samples) && c.Samples[i].At >= s.At+step+evidenceGap {
			row(s.At+step, nil, nil, nil)
		}
	}
	return out
}

// share is that of the calls that failed.
func (s *sample) share() float64 { return float64(s.Errors) / float64(max(s.Calls, 1)) }
