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

// A verdict is the result of one run.
type verdict struct {
	of    *records.Recorded
	why   string // why it cannot be compared; empty if it was
	found []Difference
	live  int // calls that were made for real
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
	if v.why = v.of.Recording.Lost; v.why != "" {
		return nil
	}
	program, err := o.Was(v.of.Bundle)
	if err != nil {
		return err
	}
	was, err := program.Play(ctx, v.of, nil)
	if err == nil {
		v.why = Strays(v.of, was)
	} else if v.why = cause(err); ctx.Err() != nil {
		return ctx.Err()
	}
	if v.why != "" {
		return nil
	}
	now, err := o.Now.Play(ctx, v.of, was)
	if err != nil {
		if ctx.Err() == nil {
			v.why, err = "by the new files, "+cause(err), nil
		}
		return err
	}
	for _, c := range now.Calls {
		if c.Live {
			v.live++
		}
	}
	v.found = Compare(was, now, o.Slower)
	if o.Now.found != nil {
		for _, d := range v.found {
			o.Now.found(v.of, d)
		}
	}
	return nil
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
		r.Live += v.live
		switch {
		case v.why != "":
			l := left[v.why]
			if l == nil {
				l = &LeftOut{Why: v.why}
				left[v.why] = l
				r.LeftOut = append(r.LeftOut, l)
			}
			l.Runs++
			l.IDs = some(l.IDs, v.of.ID)
		case len(v.found) == 0:
			r.Same++
			pipelines[v.of.Pipeline] = true
		default:
			r.Differ++
			pipelines[v.of.Pipeline] = true
			first := v.found[0]
			id := v.of.Pipeline + "\x00" + first.id()
			c := causes[id]
			if c == nil {
				c = &Cause{Difference: first, Pipeline: v.of.Pipeline, Span: now.place(first.Path)}
				causes[id] = c
				r.Causes = append(r.Causes, c)
			}
			c.Runs++
			c.IDs = some(c.IDs, v.of.ID)
			c.follow(v.found)
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
