package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"procaas/engine/api/wire"
	"procaas/engine/guard"
	"procaas/engine/settings"
	"procaas/engine/steering"
)

// Controls lists the controls.
func (c *Client) Controls(ctx context.Context) ([]guard.ControlView, error) {
	return List[guard.ControlView](ctx, c, "/admin/v1/controls")
}

// SetControl sets the control of a path. ifRevision prevents lost updates: it is the revision to
// replace, 0 for none, -1 for any.
func (c *Client) SetControl(ctx context.Context, path string, change wire.ControlChange,
	ifRevision int64,
) (guard.ControlView, error) {
	return Send[guard.ControlView](ctx, c, http.MethodPut, controlURL(path), change, ifHeader(ifRevision))
}

// ControlEffect returns the effect that a control would have.
func (c *Client) ControlEffect(ctx context.Context, path string, change wire.ControlChange) (steering.ControlEffect, error) {
	return Send[steering.ControlEffect](ctx, c, http.MethodPut, controlURL(path)+"?dry_run=true", change, nil)
}

// RemoveControl removes the control of a path. ifRevision is as in SetControl.
func (c *Client) RemoveControl(ctx context.Context, path, reason string, ifRevision int64) (wire.ControlRemoved, error) {
	q := ""
	if reason != "" {
		q = "?" + url.Values{"reason": {reason}}.Encode()
	}
	return Send[wire.ControlRemoved](ctx, c, http.MethodDelete, controlURL(path)+q, nil, ifHeader(ifRevision))
}

// UndoControl undoes the change of a control.
func (c *Client) UndoControl(ctx context.Context, revision int64, reason string) (wire.Undone, error) {
	return Send[wire.Undone](ctx, c, http.MethodPost, "/admin/v1/controls/undo", wire.Undo{Revision: revision, Reason: reason}, nil)
}

// EndFallbacks turns handlers below a path on again that fallback has turned off, and lists them.
func (c *Client) EndFallbacks(ctx context.Context, path, reason string) ([]string, error) {
	ended, err := Send[wire.FallbacksEnded](ctx, c, http.MethodPost, "/admin/v1/fallbacks/end",
		wire.FallbackEnd{Path: path, Reason: reason}, nil)
	return ended.Handlers, err
}

// Configs lists the live settings.
func (c *Client) Configs(ctx context.Context) ([]settings.ConfigView, error) {
	return List[settings.ConfigView](ctx, c, "/admin/v1/configs")
}

// SetConfig changes a live setting. ifRevision prevents lost updates: it is the revision to
// replace, -1 for any.
func (c *Client) SetConfig(ctx context.Context, name string, change wire.ConfigChange,
	ifRevision int64,
) (settings.ConfigView, error) {
	h := http.Header{}
	if ifRevision >= 0 {
		h.Set("If-Match", wire.ETag(ifRevision))
	}
	return Send[settings.ConfigView](ctx, c, http.MethodPut, "/admin/v1/configs/"+Segment(name), change, h)
}

// controlURL returns the address of a control.
func controlURL(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = Segment(parts[i])
	}
	return "/admin/v1/controls/" + strings.Join(parts, "/")
}

// ifHeader returns the precondition of a change; see [Client.SetControl].
func ifHeader(revision int64) http.Header {
	switch {
	case revision > 0:
		return http.Header{"If-Match": {wire.ETag(revision)}}
	case revision == 0:
		return http.Header{"If-None-Match": {"*"}}
	}
	return nil
}
