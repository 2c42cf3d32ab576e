package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/explain"
	"procaas/engine/intake"
	"procaas/engine/records"
	"procaas/engine/store"
)

// A Verb is a change of many runs.
type Verb string

// These are the verbs.
const (
	RetryRuns  Verb = "retry"
	CancelRuns Verb = "cancel"
	MakeUpRuns Verb = "make-up"
)

// Run reads a run. If there is none, the error is a [*problem.Problem] with the code run_not_found.
func (c *Client) Run(ctx context.Context, id string) (checkpoint.RunView, error) {
	return Send[checkpoint.RunView](ctx, c, http.MethodGet, "/v1/runs/"+Segment(id), nil, nil)
}

// AwaitRun waits for the end of a run, at most [rest.MaxWait], and reads it. The status of the run
// says whether it has ended.
func (c *Client) AwaitRun(ctx context.Context, id string, wait time.Duration) (checkpoint.RunView, error) {
	return Send[checkpoint.RunView](ctx, c.Lasting(wait), http.MethodGet, "/v1/runs/"+Segment(id)+"?wait="+wait.String(), nil, nil)
}

// FollowRun reads the steps of a run, the current state first. It calls step for each, the end
// last. Without an end, the stream was cut: call it again.
func (c *Client) FollowRun(ctx context.Context, id string, step func(v checkpoint.RunView, ended bool) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/runs/"+Segment(id)+"/progress", http.NoBody)
	if err != nil {
		return err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	reply, err := (&http.Client{Transport: c.http.Transport}).Do(req) // without the timeout
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode >= http.StatusBadRequest {
		data, _ := io.ReadAll(io.LimitReader(reply.Body, maxReply))
		return replyProblem(reply, data)
	}
	lines := bufio.NewReader(reply.Body)
	for name := ""; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the stream of run %s was cut: %w", id, err)
		}
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			name = strings.TrimSpace(event)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var v checkpoint.RunView
		d := json.NewDecoder(strings.NewReader(data))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("%s does not answer as procaas does: %w", req.URL, err)
		}
		if err := step(v, name == "end"); err != nil || name == "end" {
			return err
		}
	}
}

// Runs reads a page of runs, newest first.
func (c *Client) Runs(ctx context.Context, f store.RunFilter) (wire.Page[checkpoint.RunView], error) {
	q := queryOf(map[string]string{
		"pipeline": f.Pipeline, "flow": f.Flow, "key": f.Key, "label": f.Labels,
		"version": f.Bundle, "status": string(f.Status), "cursor": f.Cursor,
		"handler": f.FailedPath, "left_out": f.LeftOut, "left_by": f.LeftBy, "error_class": f.ErrorClass, "error": f.Error,
		"since": timeText(f.Since), "until": timeText(f.Until), "failed_since": timeText(f.FailedSince), "limit": limitText(f.Limit),
	})
	if f.NotUndone {
		q.Set("not_undone", "true")
	}
	if f.Live && f.Begun {
		q.Set("in_flight", "true")
	}
	return Send[wire.Page[checkpoint.RunView]](ctx, c, http.MethodGet, "/v1/runs?"+q.Encode(), nil, nil)
}

// Recordings reads a page of recorded runs, oldest first.
func (c *Client) Recordings(ctx context.Context, f store.RunFilter) (wire.Page[records.Recorded], error) {
	q := queryOf(map[string]string{
		"pipeline": f.Pipeline, "version": f.Bundle, "cursor": f.Cursor, "since": timeText(f.Since), "until": timeText(f.Until),
		"limit": limitText(f.Limit),
	})
	return Send[wire.Page[records.Recorded]](ctx, c, http.MethodGet, "/v1/recordings?"+q.Encode(), nil, nil)
}

// Explain returns why a handler ran in a run, or did not. The path may be shortened from
// the left.
func (c *Client) Explain(ctx context.Context, run, path string) (explain.Explanation, error) {
	return Send[explain.Explanation](ctx, c, http.MethodGet, "/v1/runs/"+Segment(run)+"/explain?"+
		url.Values{"path": {path}}.Encode(), nil, nil)
}

// Entity reads a key of a flow.
func (c *Client) Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error) {
	return Send[checkpoint.EntityView](ctx, c, http.MethodGet, "/v1/flows/"+Segment(flow)+"/keys/"+Segment(key), nil,
		nil)
}

// Erase removes all data of a key, or counts it.
func (c *Client) Erase(ctx context.Context, e wire.Erasure) (records.ErasureReceipt, error) {
	return Send[records.ErasureReceipt](ctx, c.Lasting(wire.EraseTime), http.MethodPost, "/admin/v1/erasures", e, nil)
}

// Retry continues a run that has failed or waits for an operator. The reason may be empty.
func (c *Client) Retry(ctx context.Context, id, reason string) (checkpoint.RunView, error) {
	return Send[checkpoint.RunView](ctx, c, http.MethodPost, "/v1/runs/"+Segment(id)+"/retry", wire.Reason{Reason: reason}, nil)
}

// Cancel ends a run. If its pipeline has compensations, the run first undoes what it has done. The
// reason may be empty.
func (c *Client) Cancel(ctx context.Context, id, reason string) (checkpoint.RunView, error) {
	return Send[checkpoint.RunView](ctx, c, http.MethodPost, "/v1/runs/"+Segment(id)+"/cancel",
		wire.Cancellation{Reason: reason}, nil)
}

// Abandon ends a run as it is, without undoing what it has done. The reason may be empty.
func (c *Client) Abandon(ctx context.Context, id, reason string) (checkpoint.RunView, error) {
	how := wire.Cancellation{Reason: reason, Compensate: new(bool)}
	return Send[checkpoint.RunView](ctx, c, http.MethodPost, "/v1/runs/"+Segment(id)+"/cancel", how, nil)
}

// Rerun repeats a run as a new one, from a stage on, or completely if that is empty. The reason may
// be empty.
func (c *Client) Rerun(ctx context.Context, id, stage, reason string) (checkpoint.RunView, error) {
	return Send[checkpoint.RunView](ctx, c, http.MethodPost, "/v1/runs/"+Segment(id)+"/rerun",
		wire.Rerun{From: stage, Reason: reason}, nil)
}

// RerunPlan returns what Rerun would do.
func (c *Client) RerunPlan(ctx context.Context, id, stage string) (intake.RerunPlan, error) {
	return Send[intake.RerunPlan](ctx, c, http.MethodPost, "/v1/runs/"+Segment(id)+"/rerun",
		wire.Rerun{From: stage, Preview: true}, nil)
}

// Preview returns which runs would be retried or cancelled.
func (c *Client) Preview(ctx context.Context, verb Verb, r wire.Redrive) (records.RunsPreview, error) {
	r.Preview = true
	return Send[records.RunsPreview](ctx, c, http.MethodPost, "/v1/runs/"+string(verb), r, nil)
}

// Redrive retries or cancels a page of runs.
func (c *Client) Redrive(ctx context.Context, verb Verb, r wire.Redrive) (records.RunsDone, error) {
	return Send[records.RunsDone](ctx, c, http.MethodPost, "/v1/runs/"+string(verb), r, nil)
}

// Fit reports whether a run fits the current definition.
func (c *Client) Fit(ctx context.Context, id string) (records.RunFit, error) {
	return Send[records.RunFit](ctx, c, http.MethodPost, migratePath(id), wire.Migration{Preview: true}, nil)
}

// Migrate moves a run to the current definition.
func (c *Client) Migrate(ctx context.Context, id, reason string) (checkpoint.RunView, error) {
	return Send[checkpoint.RunView](ctx, c, http.MethodPost, migratePath(id), wire.Migration{Reason: reason}, nil)
}

// MigrateRuns moves a page of runs, or with Preview reports which fit.
func (c *Client) MigrateRuns(ctx context.Context, r wire.Redrive) (records.RunsMoved, error) {
	return Send[records.RunsMoved](ctx, c, http.MethodPost, migratePath(""), r, nil)
}

// migratePath returns the path for moving one run, or all runs of a filter if id is empty.
func migratePath(id string) string {
	if id == "" {
		return "/v1/runs/migrate"
	}
	return "/v1/runs/" + Segment(id) + "/migrate"
}
