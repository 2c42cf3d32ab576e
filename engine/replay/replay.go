package replay

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/dsl/diag"
	"procaas/engine/records"
)

// Options configures a replay.
type Options struct {
	Now *Program

	// Was returns the program of a run's version.
	Was func(version string) (*Program, error)

	// Slower is the share by which a run may take longer, such as 0.1.
	Slower float64
}

// A Report says what another definition would do to recorded runs.
type Report struct {
	Runs      int      // that were recorded
	Same      int      // unchanged runs
	Differ    int      // changed runs
	Live      int      // real calls
	Causes    []*Cause // causes of differences, most frequent first
	LeftOut   []*LeftOut
	Versions  int      // number of versions of the runs
	Pipelines []string // of the compared runs
	Took      time.Duration
}

// A Cause is the first difference of runs, and what follows from it.
type Cause struct {
	Difference            // of the first of the runs
	Pipeline   string     // of the runs
	Span       diag.Span  // in the new files; zero if they do not have it
	Runs       int        // number of runs that differ by it first
	IDs        []string   // of some of them
	Then       []*Follows // other differences of these runs
}

// A Follows is a difference that follows a cause.
type Follows struct {
	Difference
	Runs int
}

// LeftOut are runs that cannot be compared.
type LeftOut struct {
	Why  string
	Runs int
	IDs  []string // of some of them
}

// Compared returns the number of compared runs.
func (r *Report) Compared() int { return r.Same + r.Differ }

// maxIDs is how many runs a group names.
const maxIDs = 3

// A Verdict is the result of one run.
type Verdict struct {
	Why   string       // why it cannot be compared; empty if it was
	Found []Difference // by time
	Live  int          // calls that were made for real
}

// A verdict is a Verdict with its run.
type verdict struct {
	of *records.Recorded
	Verdict
}

// Run replays the runs that next returns, until it returns nil. The error is that of ctx or next,
// or says that a version cannot be read.
func Run(ctx context.Context, next func() (*records.Recorded, error), o Options) (*Report, error) {
	began := time.Now()
	workers := runtime.GOMAXPROCS(0)
	work, done := make(chan *verdict), make(chan []*verdict, workers) // room for each worker's result
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(work)
		for {
			of, err := next()
			if of == nil || err != nil {
				return err
			}
			select {
			case work <- &verdict{of: of}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range workers {
		g.Go(func() error {
			var all []*verdict
			defer func() { done <- all }()
			for v := range work {
				if err := o.judge(ctx, v); err != nil {
					return err
				}
				all = append(all, v)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []*verdict
	for range workers {
		all = append(all, <-done...)
	}
	slices.SortFunc(all, func(a, b *verdict) int {
		if c := a.of.Accepted.Compare(b.of.Accepted); c != 0 {
			return c
		}
		return compareText(a.of.ID, b.of.ID)
	})
	r := gather(all, o.Now)
	r.Took = time.Since(began)
	return r, nil
}

func compareText(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

// judge replays one run with both definitions.
func (o Options) judge(ctx context.Context, v *verdict) error {
	v.Why = v.of.Recording.Lost
	if v.Why != "" {
		return nil
	}
	was, err := o.Was(v.of.Bundle)
	if err != nil {
		return err
	}
	v.Verdict, err = Judge(ctx, v.of, was, o.Now, o.Slower)
	return err
}

// Judge replays one run with its own definition and with another one. slower is the share by which
// it may take longer. The recording must not be lost. The error is that of ctx.
func Judge(ctx context.Context, of *records.Recorded, own, other *Program, slower float64) (v Verdict, err error) {
	was, err := own.Play(ctx, of, nil)
	if err == nil {
		v.Why = Strays(of, was)
	} else {
		v.Why = cause(err)
	}
	if v.Why != "" {
		return v, ctx.Err()
	}
	now, err := other.Play(ctx, of, was)
	if err != nil {
		v.Why = "by the new files, " + cause(err)
		return v, ctx.Err()
	}
	for _, c := range now.Calls {
		if c.Live {
			v.Live++
		}
	}
	v.Found = Compare(was, now, slower)
	return v, nil
}

// cause returns an error without the id of its run.
func cause(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return err.Error()
}

// gather groups the results.
func gather(all []*verdict, now *Program) *Report {
	r := &Report{Runs: len(all), Causes: []*Cause{}, LeftOut: []*LeftOut{}}
	causes, left := map[string]*Cause{}, map[string]*LeftOut{}
	versions, pipelines := map[string]bool{}, map[string]bool{}
	for _, v := range all {
		versions[v.of.Bundle] = true
		r.Live += v.Live
		switch {
		case v.Why != "":
			l := left[v.Why]
			if l == nil {
				l = &LeftOut{Why: v.Why}
				left[v.Why] = l
				r.LeftOut = append(r.LeftOut, l)
			}
			l.Runs++
			l.IDs = some(l.IDs, v.of.ID)
		case len(v.Found) == 0:
			r.Same++
			pipelines[v.of.Pipeline] = true
		default:
			r.Differ++
			pipelines[v.of.Pipeline] = true
			first := v.Found[0]
			id := v.of.Pipeline + "\x00" + first.id()
			c := causes[id]
			if c == nil {
				c = &Cause{Difference: first, Pipeline: v.of.Pipeline, Span: now.place(first.Path)}
				causes[id] = c
				r.Causes = append(r.Causes, c)
			}
			c.Runs++
			c.IDs = some(c.IDs, v.of.ID)
			c.follow(v.Found)
		}
	}
	r.Pipelines = slices.Sorted(maps.Keys(pipelines))
	r.Versions = len(versions)
	slices.SortStableFunc(r.Causes, func(a, b *Cause) int { return b.Runs - a.Runs })
	slices.SortStableFunc(r.LeftOut, func(a, b *LeftOut) int { return b.Runs - a.Runs })
	return r
}

func some(ids []string, id string) []string {
	if len(ids) < maxIDs {
		ids = append(ids, id)
	}
	return ids
}

// follow adds the other differences of a run, each once.
func (c *Cause) follow(found []Difference) {
	seen := map[string]bool{c.id(): true}
	for _, d := range found {
		if seen[d.id()] {
			continue
		}
		seen[d.id()] = true
		i := slices.IndexFunc(c.Then, func(f *Follows) bool { return f.id() == d.id() })
		if i < 0 {
			i = len(c.Then)
			c.Then = append(c.Then, &Follows{Difference: d})
		}
		c.Then[i].Runs++
	}
}

// place returns where the files have a handler or a pipeline, or zero.
func (p *Program) place(path string) diag.Span {
	if h := p.def.Bundle.Handler(path); h != nil {
		return h.IDPlace()
	}
	if one := p.def.Bundle.Pipeline(path); one != nil {
		return one.Span
	}
	return diag.Span{}
}
