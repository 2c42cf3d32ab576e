package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/checkpoint"
	"procaas/engine/watch"
)

// This file reads one run: now, at its end, or step by step.

type getRun struct {
	runPath
	rest.WaitQuery
}

// get returns a run. A caller that waits gets its end, or 202 with its current state.
func (g *Group) get(c *rest.Call, in *getRun) (run checkpoint.RunView, err error) {
	wait, err := in.For(c)
	if err != nil {
		return run, err
	}
	run, err = g.Runs.RunByID(c.Context(), in.ID)
	if err == nil {
		if err := c.MayRead(run.Pipeline); err != nil {
			return checkpoint.RunView{}, err
		}
	}
	if err != nil || wait == 0 || run.Status.Ended() {
		return run, runProblem(err, in.ID)
	}
	if err := rest.LetLast(c.W, wait+rest.WriteTime); err != nil {
		return run, err
	}
	ctx, cancel := g.Streams.UntilEnd(c.Context(), wait)
	defer cancel()
	ended, err := g.Runs.AwaitRun(ctx, in.ID)
	switch {
	case errors.Is(err, watch.ErrFull):
		return run, tooManyWait()
	case err == nil:
		return ended, nil
	case c.Context().Err() != nil:
		return run, c.Context().Err()
	}
	if run, err = g.Runs.RunByID(c.Context(), in.ID); err == nil && !run.Status.Ended() {
		c.Status(http.StatusAccepted)
		c.W.Header().Set("Location", "/v1/runs/"+url.PathEscape(in.ID))
	}
	return run, runProblem(err, in.ID)
}

// tooManyWait refuses another waiting caller.
func tooManyWait() error {
	return problem.New(problem.TooManyWait, "%d callers wait for runs on this node already, or %d follow them; ask again in a "+
		"moment, or another node",
		watch.MostWatchers, watch.MostFollowers).With("Retry-After", "1")
}

type followQuery struct {
	runPath
	Last string `header:"Last-Event-ID" doc:"The id of the last event that the caller has."`
}

// progress streams the steps of a run until its end.
func (g *Group) progress(c *rest.Call, in *followQuery) (none checkpoint.RunView, err error) {
	if err := g.mayRead(c, in.ID); err != nil {
		return none, err
	}
	p, err := g.Runs.FollowRun(c.Context(), in.ID)
	if errors.Is(err, watch.ErrFull) {
		return none, tooManyWait()
	}
	if err != nil {
		return none, runProblem(err, in.ID)
	}
	defer p.Leave()
	if p.Ended() && in.Last == endID(p.Version()) {
		c.Answered()
		c.W.WriteHeader(http.StatusNoContent)
		return none, nil
	}
	over := false
	return none, g.Streams.Stream(c, func(ctx context.Context) (rest.Event, error) {
		if over {
			return rest.Event{}, io.EOF
		}
		s, err := p.Next(ctx)
		if err != nil {
			return rest.Event{}, nil // a keep-alive
		}
		e := rest.Event{ID: strconv.FormatInt(s.Version, 10), Name: "progress"}
		over = s.Ended
		if over {
			e.ID, e.Name = endID(s.Version), "end"
		}
		e.Data, err = json.Marshal(s.Run)
		return e, err
	})
}

// endID returns the id of the event that ends a stream.
func endID(version int64) string { return strconv.FormatInt(version, 10) + "-end" }
