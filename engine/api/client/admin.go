package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/guard"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// Handlers lists the handlers as the server's node sees them.
func (c *Client) Handlers(ctx context.Context) ([]stats.HandlerInfo, error) {
	return List[stats.HandlerInfo](ctx, c, "/admin/v1/handlers")
}

// Durations lists how long runs and stages took on the server's node.
func (c *Client) Durations(ctx context.Context) ([]stats.DurationView, error) {
	return List[stats.DurationView](ctx, c, "/admin/v1/durations")
}

// Pipelines lists the pipelines as the server's node sees them.
func (c *Client) Pipelines(ctx context.Context) ([]stats.PipelineInfo, error) {
	return List[stats.PipelineInfo](ctx, c, "/admin/v1/pipelines")
}

// SlowRuns lists the slowest runs that ended on the server's node since a time, of a pipeline or of all.
func (c *Client) SlowRuns(ctx context.Context, pipeline string, since time.Time, limit int) ([]stats.SlowRun, error) {
	q := queryOf(map[string]string{"pipeline": pipeline, "since": timeText(since), "limit": limitText(limit)})
	return List[stats.SlowRun](ctx, c, "/admin/v1/slow-runs?"+q.Encode())
}

// Costs lists what pipelines, owners or handlers have cost on each of the last days, on all nodes.
func (c *Client) Costs(ctx context.Context, by string, days, limit int) ([]stats.Cost, error) {
	q := queryOf(map[string]string{"by": by, "days": strconv.Itoa(days), "limit": limitText(limit)})
	return List[stats.Cost](ctx, c, "/admin/v1/costs?"+q.Encode())
}

// Backlog returns what waits on all nodes.
func (c *Client) Backlog(ctx context.Context) (stats.BacklogView, error) {
	return Send[stats.BacklogView](ctx, c, http.MethodGet, "/admin/v1/backlog", nil, nil)
}

// Services lists the services as the server's node sees them.
func (c *Client) Services(ctx context.Context) ([]guard.ServiceInfo, error) {
	return List[guard.ServiceInfo](ctx, c, "/admin/v1/services")
}

// Health asks the node whether it accepts and runs events, or with live only whether it is alive.
func (c *Client) Health(ctx context.Context, live bool) (wire.Health, error) {
	path := "/readyz"
	if live {
		path = "/healthz"
	}
	return Send[wire.Health](ctx, c, http.MethodGet, path, nil, nil)
}

// Nodes lists the nodes of the server's store.
func (c *Client) Nodes(ctx context.Context) ([]records.NodeView, error) {
	return List[records.NodeView](ctx, c, "/admin/v1/nodes")
}

// Reload makes the server read its pipelines again.
func (c *Client) Reload(ctx context.Context, how wire.Reload) (diff.Diff, error) {
	return Send[diff.Diff](ctx, c, http.MethodPost, "/admin/v1/reload", how, nil)
}

// Deploy sends the server a set of pipelines.
func (c *Client) Deploy(ctx context.Context, d wire.Deployment) (diff.Diff, error) {
	return Send[diff.Diff](ctx, c.Lasting(time.Minute), http.MethodPost, "/admin/v1/deploy", d, nil)
}

// Versions lists up to limit versions of the pipelines.
func (c *Client) Versions(ctx context.Context, limit int) ([]definitions.Version, error) {
	q := queryOf(map[string]string{"limit": limitText(limit)})
	return List[definitions.Version](ctx, c, "/v1/versions?"+q.Encode())
}

// Version reads one version.
func (c *Client) Version(ctx context.Context, name string) (definitions.VersionDetail, error) {
	return Send[definitions.VersionDetail](ctx, c, http.MethodGet, "/v1/versions/"+Segment(name), nil, nil)
}

// DiffVersions compares two versions.
func (c *Client) DiffVersions(ctx context.Context, old, now string) (diff.Diff, error) {
	path := "/v1/versions/" + Segment(old) + "/diff/" + Segment(now)
	return Send[diff.Diff](ctx, c, http.MethodGet, path, nil, nil)
}

// RollBack makes an earlier version current.
func (c *Client) RollBack(ctx context.Context, how wire.Rollback) (diff.Diff, error) {
	return Send[diff.Diff](ctx, c, http.MethodPost, "/admin/v1/rollback", how, nil)
}

// Canary reads the state of the last canary.
func (c *Client) Canary(ctx context.Context) (canary.View, error) {
	return Send[canary.View](ctx, c, http.MethodGet, "/v1/canary", nil, nil)
}

// Promote increases the share of keys of the canary.
func (c *Client) Promote(ctx context.Context, how wire.Promotion) (canary.View, error) {
	return Send[canary.View](ctx, c, http.MethodPost, "/admin/v1/promote", how, nil)
}

// VerifyAudit reports whether the audit is unchanged, also against known hashes.
func (c *Client) VerifyAudit(ctx context.Context, kept []string) (records.AuditReport, error) {
	q := queryOf(map[string]string{"expect": strings.Join(kept, ",")})
	return Send[records.AuditReport](ctx, c, http.MethodGet, "/admin/v1/audit/verify?"+q.Encode(), nil, nil)
}

// Audit reads a page of the audit, newest first. cursor is Next of the page before, or empty.
func (c *Client) Audit(ctx context.Context, f store.AuditFilter, cursor string) (wire.Page[records.AuditView], error) {
	q := queryOf(map[string]string{
		"kind": f.Kind, "name": f.Name, "by": f.By, "since": timeText(f.Since), "until": timeText(f.Until), "cursor": cursor,
		"limit": limitText(f.Limit),
	})
	return Send[wire.Page[records.AuditView]](ctx, c, http.MethodGet, "/admin/v1/audit?"+q.Encode(), nil, nil)
}

// Tokens lists the tokens.
func (c *Client) Tokens(ctx context.Context) ([]credentials.TokenView, error) {
	return List[credentials.TokenView](ctx, c, "/admin/v1/tokens")
}

// NewToken makes a token.
func (c *Client) NewToken(ctx context.Context, t wire.NewToken) (wire.MadeToken, error) {
	return Send[wire.MadeToken](ctx, c, http.MethodPost, "/admin/v1/tokens", t, nil)
}

// RevokeToken revokes a token. The reason may be empty.
func (c *Client) RevokeToken(ctx context.Context, name, reason string) (credentials.TokenView, error) {
	q := ""
	if reason != "" {
		q = "?" + url.Values{"reason": {reason}}.Encode()
	}
	return Send[credentials.TokenView](ctx, c, http.MethodDelete, "/admin/v1/tokens/"+Segment(name)+q, nil, nil)
}
