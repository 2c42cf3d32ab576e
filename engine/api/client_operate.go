package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"procaas/engine"
)

// NewRedrive makes the body of a call that does something to the runs that a
// filter chooses.
func NewRedrive(f engine.RunFilter) Redrive {
	return Redrive{
		Pipeline: f.Pipeline, Flow: f.Flow, Key: f.Key, Status: string(f.Status), Handler: cmp.Or(f.FailedPath, f.LeftOut),
		ErrorClass: f.ErrorClass, Error: f.Error, Since: timeText(f.Since), Until: timeText(f.Until),
		Limit: f.Limit, Cursor: f.Cursor,
	}
}

// timeText is a time as the API takes it; empty for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// A Verb is what is done to many runs.
type Verb string

// The verbs.
const (
	RetryRuns  Verb = "retry"
	CancelRuns Verb = "cancel"
	MakeUpRuns Verb = "make-up"

	moveRuns Verb = "migrate"
)

// Preview tells which runs would be retried or cancelled.
func (c *Client) Preview(ctx context.Context, verb Verb, r Redrive) (engine.RunsPreview, error) {
	r.Preview = true
	var preview engine.RunsPreview
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+string(verb), r, nil, &preview)
	return preview, err
}

// Redrive retries or cancels a page of runs.
func (c *Client) Redrive(ctx context.Context, verb Verb, r Redrive) (engine.RunsDone, error) {
	var done engine.RunsDone
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+string(verb), r, nil, &done)
	return done, err
}

// Fit tells whether a run fits the present definition.
func (c *Client) Fit(ctx context.Context, id string) (engine.RunFit, error) {
	var fit engine.RunFit
	err := c.call(ctx, http.MethodPost, migratePath(id), Migration{Preview: true}, nil, &fit)
	return fit, err
}

// Migrate lets a run go on by the present definition.
func (c *Client) Migrate(ctx context.Context, id, reason string) (engine.RunView, error) {
	var run engine.RunView
	err := c.call(ctx, http.MethodPost, migratePath(id), Migration{Reason: reason}, nil, &run)
	return run, err
}

// MigrateRuns moves a page of runs, or with Preview tells which fit.
func (c *Client) MigrateRuns(ctx context.Context, r Redrive) (engine.RunsMoved, error) {
	var moved engine.RunsMoved
	err := c.call(ctx, http.MethodPost, migratePath(""), r, nil, &moved)
	return moved, err
}

// Nodes lists the nodes of the server's store.
func (c *Client) Nodes(ctx context.Context) ([]engine.NodeView, error) {
	var page Page[engine.NodeView]
	err := c.call(ctx, http.MethodGet, "/admin/v1/nodes", nil, nil, &page)
	return page.Items, err
}

// Reload lets the server read its pipelines again.
func (c *Client) Reload(ctx context.Context, how Reload) (engine.Diff, error) {
	var diff engine.Diff
	err := c.call(ctx, http.MethodPost, "/admin/v1/reload", how, nil, &diff)
	return diff, err
}

// VerifyAudit tells whether the audit is as it was written, and holds hashes that were kept.
func (c *Client) VerifyAudit(ctx context.Context, kept []string) (engine.AuditReport, error) {
	var report engine.AuditReport
	err := c.call(ctx, http.MethodGet, "/admin/v1/audit/verify?"+url.Values{"expect": {strings.Join(kept, ",")}}.Encode(), nil, nil, &report)
	return report, err
}

// Audit reads a page of who changed what, newest first; the cursor is next of the
// page before, or empty.
func (c *Client) Audit(ctx context.Context, f engine.AuditFilter, cursor string) (Page[engine.AuditView], error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"kind": f.Kind, "name": f.Name, "by": f.By, "since": timeText(f.Since), "until": timeText(f.Until), "cursor": cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	var page Page[engine.AuditView]
	err := c.call(ctx, http.MethodGet, "/admin/v1/audit?"+q.Encode(), nil, nil, &page)
	return page, err
}
