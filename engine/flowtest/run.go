package flowtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/steps"
)

// Options says which tests to run, and how.
type Options struct {
	// Run chooses tests by "FILE: NAME"; nil runs all.
	Run *regexp.Regexp

	// Chaos runs each test again with a crash at each checkpoint, before and after it is written,
	// and without each non-critical handler.
	Chaos bool

	// Cover measures the coverage. Nil does not.
	Cover *Coverage
}

// A Report has the results of tests.
type Report struct {
	Results []*Result // in the order of files and tests
	LeftOut []string  // what tests cannot show; empty unless all ran
	Took    time.Duration
}

// Failed counts the tests that have failed.
func (r *Report) Failed() int {
	n := 0
	for _, one := range r.Results {
		if !one.Passed() {
			n++
		}
	}
	return n
}

// Variants counts the runs of tests, including the unchanged tests.
func (r *Report) Variants() int {
	n := 0
	for _, one := range r.Results {
		n += one.Variants
	}
	return n
}

// A Result is the result of one test.
type Result struct {
	File     string
	Name     string
	Span     diag.Span
	Variants int           // ways in which it was run
	Virtual  time.Duration // duration in virtual time
	Took     time.Duration // for all variants
	Failures []Failure
}

// Passed reports whether everything was as expected.
func (r *Result) Passed() bool { return len(r.Failures) == 0 }

// A Failure is a failed variant of a test.
type Failure struct {
	Variant     string // empty for the unchanged test
	Differences []Difference
}

// Run runs the tests of suites, several at once. The error is that of ctx, or has a cause outside
// of the tests.
func Run(ctx context.Context, suites []*Suite, o Options) (*Report, error) {
	began := time.Now()
	report := &Report{}
	var afterwards []func() error
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, s := range suites {
		shared := &sharedMocks{used: map[*Answer]bool{}}
		var of []*Result
		for _, test := range s.File.Tests {
			if o.Run != nil && !o.Run.MatchString(s.Name+": "+test.Name) {
				continue
			}
			r := &Result{File: s.Name, Name: test.Name, Span: head(test.Span)}
			of = append(of, r)
			g.Go(func() error { return s.run(within, test, r, o, shared) })
		}
		report.Results = append(report.Results, of...)
		if len(of) == len(s.File.Tests) && len(of) > 0 {
			afterwards = append(afterwards, func() error { return s.unusedOfFile(ctx, shared, of[0], o) })
		}
	}
	err := g.Wait()
	for _, f := range afterwards {
		err = cmp.Or(err, f())
	}
	if o.Run == nil {
		report.LeftOut = leftOut(suites)
	}
	report.Took = time.Since(began)
	return report, err
}

// leftOut lists the parts of the pipelines that no test has shown: queues, and triggers that no
// test fires and whose event none submits.
func leftOut(suites []*Suite) (out []string) {
	handed := map[string]bool{}
	for _, s := range suites {
		for _, t := range s.File.Tests {
			for _, e := range t.Events {
				handed[e.Type] = true
			}
		}
	}
	for _, s := range suites {
		for _, t := range s.Bundle.Triggers {
			if !handed[t.Event] {
				out = append(out, fmt.Sprintf("trigger %s: no test fires it. Write events: {trigger: %s}", t.ID, t.ID))
			}
		}
		for _, p := range s.Bundle.Pipelines {
			if !slices.ContainsFunc(p.On, func(event string) bool { return handed[event] }) {
				continue // these tests are about others
			}
			if p.Start() != nil {
				out = append(out, fmt.Sprintf("queue of %s: tests have no queue. Their events start runs at once, "+
					"without its retry, unique, limits and order", p.ID))
			}
			out = append(out, nulls(suites, steps.Of(p, s.Bundle, s.types))...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nulls lists critical calls that may send null without a test for it. A response without a schema
// may lack what they send, and no mock omits it.
func nulls(suites []*Suite, p *steps.Pipeline) (out []string) {
	lacking := map[string][]string{} // members, by the handler whose response may lack them
	for _, sent := range p.SentOn() {
		from, member := sent.From.Path, sent.Member.String()
		if !slices.Contains(lacking[from], member) &&
			!slices.ContainsFunc(suites, func(s *Suite) bool { return s.leavesOut(from, sent.Member) }) {
			lacking[from] = append(lacking[from], member)
		}
	}
	for _, from := range sorted(lacking) {
		out = append(out, fmt.Sprintf("a response of %s without %s, which a critical request sends on. "+
			"Describe it in response-schema, or let a mock leave it out", from, strings.Join(lacking[from], ", ")))
	}
	return out
}

// leavesOut reports whether a mock of a handler omits a part of its reply, or has null there.
func (s *Suite) leavesOut(path string, part datum.Path) bool {
	leaves := func(mocks map[string][]*Answer) bool {
		for name, answers := range mocks {
			if !slices.Contains(s.names.find(name), path) {
				continue
			}
			for _, a := range answers {
				v := a.Reply
				for _, member := range part {
					v = v.Get(member)
				}
				if a.Error == "" && a.Status < 300 && v.IsNull() {
					return true
				}
			}
		}
		return false
	}
	return leaves(s.File.Mocks) || slices.ContainsFunc(s.File.Tests, func(t *Test) bool { return leaves(t.Mocks) })
}

// sharedMocks records which answers of a file any of its tests has used.
type sharedMocks struct {
	mu   sync.Mutex // guards used
	used map[*Answer]bool
}

func (m *sharedMocks) note(used map[*Answer]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.used, used)
}

// run runs one test in all its variants.
func (s *Suite) run(ctx context.Context, test *Test, r *Result, o Options, shared *sharedMocks) error {
	began := time.Now()
	defer func() { r.Took = time.Since(began) }()
	base, err := s.once(ctx, test, Variant{}, nil, r, o, shared)
	if err != nil || base == nil {
		return err
	}
	r.Virtual = base.ended
	used := base.used
	if o.Chaos && r.Passed() {
		for _, v := range base.variants() {
			t, err := s.once(ctx, test, v, base, r, o, shared)
			if err != nil {
				return err
			}
			if t != nil {
				maps.Copy(used, t.used)
			}
		}
	}
	found := unused(test.Mocks, used)
	if len(found) > 0 && !o.Chaos && r.Passed() {
		if err := s.useByChaos(ctx, test, base, test.Mocks, used); err != nil {
			return err
		}
		found = unused(test.Mocks, used)
	}
	if len(found) > 0 {
		r.fail(Variant{}, found)
	}
	return nil
}

// useByChaos adds the answers that the variants of a test use. A mock may be there only for --chaos, such as that of a
// handler that stands in for one that is left out. A crash repeats calls, so what it uses counts only for handlers that
// have no other calls. What else becomes of the variants is not looked at.
func (s *Suite) useByChaos(ctx context.Context, test *Test, base *trial, mocks map[string][]*Answer, used map[*Answer]bool) error {
	called := map[*Answer]bool{} // answers of handlers that are called without chaos
	for _, answers := range mocks {
		if slices.ContainsFunc(answers, func(a *Answer) bool { return used[a] }) {
			for _, a := range answers {
				called[a] = true
			}
		}
	}
	for _, v := range base.variants() {
		t, err := s.try(ctx, test, v, base)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue
		}
		for a := range t.used {
			used[a] = used[a] || v.Off != "" || !called[a]
		}
	}
	return nil
}

// once runs one variant of a test. An error is its failure.
func (s *Suite) once(ctx context.Context, test *Test, v Variant, base *trial, r *Result, o Options, shared *sharedMocks) (*trial, error) {
	r.Variants++
	t, err := s.try(ctx, test, v, base)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		r.fail(v, []Difference{{Path: "test", Span: head(test.Span), Want: "to run", Have: err.Error()}})
		return nil, nil
	}
	shared.note(t.used)
	o.Cover.note(t)
	if len(t.found) > 0 {
		r.fail(v, t.found)
	}
	return t, nil
}

func (r *Result) fail(v Variant, found []Difference) {
	r.Failures = append(r.Failures, Failure{Variant: v.String(), Differences: found})
}

// unused lists answers that no call got.
func unused(mocks map[string][]*Answer, used map[*Answer]bool) (found []Difference) {
	for _, name := range sorted(mocks) {
		found = append(found, unusedOf(name, mocks[name], used)...)
	}
	return found
}

// unusedOfFile reports answers of a file that none of its tests has used.
func (s *Suite) unusedOfFile(ctx context.Context, shared *sharedMocks, r *Result, o Options) error {
	found := unused(s.File.Mocks, shared.used)
	for _, test := range s.File.Tests {
		if len(found) == 0 || o.Chaos {
			break
		}
		base, err := s.try(ctx, test, Variant{}, nil)
		if err == nil && len(base.found) == 0 {
			err = s.useByChaos(ctx, test, base, s.File.Mocks, shared.used)
		}
		if ctx.Err() != nil {
			return err
		}
		found = unused(s.File.Mocks, shared.used)
	}
	if len(found) > 0 {
		r.fail(Variant{}, found)
	}
	return nil
}

func unusedOf(name string, answers []*Answer, used map[*Answer]bool) []Difference {
	var out []Difference
	for i, a := range answers {
		if used[a] {
			continue
		}
		d := Difference{
			Path: "mocks." + name, Span: a.Key.Span, Want: "a call that gets this answer", Have: "none",
			Note: "remove it, or see why nothing is called",
		}
		if len(answers) > 1 {
			d.Path, d.Span = fmt.Sprintf("%s[%d]", d.Path, i), head(a.Span)
		}
		if !slices.ContainsFunc(answers, func(a *Answer) bool { return used[a] }) {
			return append(out, d) // one is enough
		}
		out = append(out, d)
	}
	return out
}
