package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/guard"
	"procaas/engine/inbox"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// adminCalls are the calls about a node and its store.
type adminCalls struct{ *caller }

// Handlers lists the handlers as the server's node sees them.
func (c adminCalls) Handlers(ctx context.Context) ([]stats.HandlerInfo, error) {
	return list[stats.HandlerInfo](ctx, c.caller, "/admin/v1/handlers")
}

// Backlog returns what waits on all nodes.
func (c adminCalls) Backlog(ctx context.Context) (stats.BacklogView, error) {
	return send[stats.BacklogView](ctx, c.caller, http.MethodGet, "/admin/v1/backlog", nil, nil)
}

// Services lists the services as the server's node sees them.
func (c adminCalls) Services(ctx context.Context) ([]guard.ServiceInfo, error) {
	return list[guard.ServiceInfo](ctx, c.caller, "/admin/v1/services")
}

// Health asks the node whether it accepts and runs events, or with live only whether it is alive.
func (c adminCalls) Health(ctx context.Context, live bool) (wire.Health, error) {
	path := "/readyz"
	if live {
		path = "/healthz"
	}
	return send[wire.Health](ctx, c.caller, http.MethodGet, path, nil, nil)
}

// Nodes lists the nodes of the server's store.
func (c adminCalls) Nodes(ctx context.Context) ([]records.NodeView, error) {
	return list[records.NodeView](ctx, c.caller, "/admin/v1/nodes")
}

// Reload makes the server read its pipelines again.
func (c adminCalls) Reload(ctx context.Context, how wire.Reload) (diff.Diff, error) {
	return send[diff.Diff](ctx, c.caller, http.MethodPost, "/admin/v1/reload", how, nil)
}

// Deploy sends the server a set of pipelines.
func (c adminCalls) Deploy(ctx context.Context, d wire.Deployment) (diff.Diff, error) {
	return send[diff.Diff](ctx, c.lasting(time.Minute), http.MethodPost, "/admin/v1/deploy", d, nil)
}

// Versions lists up to limit versions of the pipelines.
func (c adminCalls) Versions(ctx context.Context, limit int) ([]definitions.Version, error) {
	q := queryOf(map[string]string{"limit": limitText(limit)})
	return list[definitions.Version](ctx, c.caller, "/v1/versions?"+q.Encode())
}

// Version reads one version.
func (c adminCalls) Version(ctx context.Context, name string) (definitions.VersionDetail, error) {
	return send[definitions.VersionDetail](ctx, c.caller, http.MethodGet, "/v1/versions/"+url.PathEscape(name), nil, nil)
}

// DiffVersions compares two versions.
func (c adminCalls) DiffVersions(ctx context.Context, old, now string) (diff.Diff, error) {
	path := "/v1/versions/" + url.PathEscape(old) + "/diff/" + url.PathEscape(now)
	return send[diff.Diff](ctx, c.caller, http.MethodGet, path, nil, nil)
}

// RollBack makes an earlier version current.
func (c adminCalls) RollBack(ctx context.Context, how wire.Rollback) (diff.Diff, error) {
	return send[diff.Diff](ctx, c.caller, http.MethodPost, "/admin/v1/rollback", how, nil)
}

// Canary reads the state of the last canary.
func (c adminCalls) Canary(ctx context.Context) (canary.View, error) {
	return send[canary.View](ctx, c.caller, http.MethodGet, "/v1/canary", nil, nil)
}

// Promote increases the share of keys of the canary.
func (c adminCalls) Promote(ctx context.Context, how wire.Promotion) (canary.View, error) {
	return send[canary.View](ctx, c.caller, http.MethodPost, "/admin/v1/promote", how, nil)
}

// VerifyAudit reports whether the audit is unchanged, also against known hashes.
func (c adminCalls) VerifyAudit(ctx context.Context, kept []string) (records.AuditReport, error) {
	q := queryOf(map[string]string{"expect": strings.Join(kept, ",")})
	return send[records.AuditReport](ctx, c.caller, http.MethodGet, "/admin/v1/audit/verify?"+q.Encode(), nil, nil)
}

// Audit reads a page of the audit, newest first. cursor is Next of the page before, or empty.
func (c adminCalls) Audit(ctx context.Context, f store.AuditFilter, cursor string) (wire.Page[records.AuditView], error) {
	q := queryOf(map[string]string{
		"kind": f.Kind, "name": f.Name, "by": f.By, "since": timeText(f.Since), "until": timeText(f.Until), "cursor": cursor,
		"limit": limitText(f.Limit),
	})
	return send[wire.Page[records.AuditView]](ctx, c.caller, http.MethodGet, "/admin/v1/audit?"+q.Encode(), nil, nil)
}

// Inbox reads which database has which slots.
func (c adminCalls) Inbox(ctx context.Context) (inbox.View, error) {
	return send[inbox.View](ctx, c.caller, http.MethodGet, "/admin/v1/inbox", nil, nil)
}

// InboxLoads is Inbox with the load of each slot.
func (c adminCalls) InboxLoads(ctx context.Context) (inbox.View, error) {
	return send[inbox.View](ctx, c.caller, http.MethodGet, "/admin/v1/inbox?loads=true", nil, nil)
}

// MoveSlots begins a move of slots.
func (c adminCalls) MoveSlots(ctx context.Context, order wire.InboxMoveRequest) (inbox.Move, error) {
	return send[inbox.Move](ctx, c.caller, http.MethodPost, "/admin/v1/inbox/moves", order, nil)
}

// RemoveCell permanently removes a database from the inbox, and returns the inbox without it.
func (c adminCalls) RemoveCell(ctx context.Context, request wire.InboxRemovalRequest) (inbox.View, error) {
	return send[inbox.View](ctx, c.caller, http.MethodPost, "/admin/v1/inbox/removals", request, nil)
}

// Tokens lists the tokens.
func (c adminCalls) Tokens(ctx context.Context) ([]credentials.TokenView, error) {
	return list[credentials.TokenView](ctx, c.caller, "/admin/v1/tokens")
}

// NewToken makes a token.
func (c adminCalls) NewToken(ctx context.Context, t wire.NewToken) (wire.MadeToken, error) {
	return send[wire.MadeToken](ctx, c.caller, http.MethodPost, "/admin/v1/tokens", t, nil)
}

// RevokeToken revokes a token. The reason may be empty.
func (c adminCalls) RevokeToken(ctx context.Context, name, reason string) (credentials.TokenView, error) {
	q := ""
	if reason != "" {
		q = "?" + url.Values{"reason": {reason}}.Encode()
	}
	return send[credentials.TokenView](ctx, c.caller, http.MethodDelete, "/admin/v1/tokens/"+url.PathEscape(name)+q, nil, nil)
}
