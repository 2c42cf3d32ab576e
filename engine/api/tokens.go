package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// A NewToken is the body that makes a token.
type NewToken struct {
	Name    string   `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" doc:"What the audit calls its bearer."`
	Role    string   `json:"role" enum:"viewer,submitter,worker,operator,admin" doc:"viewer reads, submitter submits events and tasks, worker does tasks, operator does all that and steers runs and controls, admin does everything."`
	Paths   []string `json:"paths,omitempty" maxItems:"100" doc:"Of an operator or submitter: what it is bound to, such as pipeline or pipeline/stage. Of a worker: types of tasks."`
	Expires string   `json:"expires,omitempty" format:"date-time" doc:"When it is good no more: in 90 days when it is left out."`
	Forever bool     `json:"forever,omitempty" doc:"It never expires."`
	Reason  string   `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// A MadeToken is a new token, told this once.
type MadeToken struct {
	engine.TokenView
	Secret string `json:"token" doc:"What to send as Authorization: Bearer TOKEN. It is told this once, and kept nowhere."`
}

func (s *server) tokenOperations() []operation {
	return []operation{{
		method: http.MethodGet, path: "/admin/v1/tokens", id: "list-tokens", tag: "admin",
		summary:  "List tokens, without what is secret about them",
		replies:  []reply{{status: 200, about: "All tokens, by name.", body: Page[engine.TokenView]{}}},
		refusals: []string{codeStoreUnavailable}, serve: s.listTokens,
	}, {
		method: http.MethodPost, path: "/admin/v1/tokens", id: "new-token", tag: "admin",
		summary: "Make a token",
		about: "The first token must be one of an admin, unless the server was configured with one: from then on calls need tokens. " +
			"The name of a token that is revoked or has expired may be used again.",
		body:     jsonBody(s.schema(NewToken{}), NewToken{Name: "on-call", Role: "operator", Paths: []string{"new-order-created/notify"}}),
		replies:  []reply{{status: 201, about: "The token.", body: MadeToken{}}},
		refusals: []string{codeInvalidToken, codeTokenExists, codeFirstToken, codeControlPath, codeStoreUnavailable}, serve: s.newToken,
	}, {
		method: http.MethodDelete, path: "/admin/v1/tokens/{name}", id: "revoke-token", tag: "admin",
		summary: "Revoke a token on all nodes",
		about:   "Within a second it is good nowhere. The last token of an admin stays, unless the server was configured with one.",
		params: []*huma.Param{
			inPath("name", "The token."),
			inQuery("reason", "Why, for people and the audit.", nil),
		},
		replies:  []reply{{status: 200, about: "It is revoked.", body: engine.TokenView{}}},
		refusals: []string{codeInvalidParameter, codeTokenNotFound, codeTokenExists, codeLastAdmin, codeStoreUnavailable}, serve: s.revokeToken,
	}}
}

func (s *server) listTokens(w http.ResponseWriter, r *http.Request) error {
	tokens, err := s.engine.Tokens(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, pageOf(tokens, ""))
}

// newToken makes a token. The secret is in this reply only: the store has a hash of it.
func (s *server) newToken(w http.ResponseWriter, r *http.Request) error {
	spec, reason, err := s.readToken(w, r)
	if err != nil {
		return err
	}
	guarded, err := s.guarded(r.Context())
	if err != nil {
		return err
	}
	if !guarded && spec.Role != engine.RoleAdmin {
		return refuse(codeFirstToken, "calls will need tokens from now on, and nobody could make another one: make a token with the role admin first")
	}
	view, secret, err := s.engine.NewToken(r.Context(), spec, actor(r, reason))
	if err != nil {
		return tokenProblem(err)
	}
	return writeJSON(w, http.StatusCreated, MadeToken{view, secret})
}

// readToken reads a [NewToken].
func (s *server) readToken(w http.ResponseWriter, r *http.Request) (spec engine.TokenSpec, reason string, err error) {
	f, err := s.readObject(w, r)
	if err != nil {
		return spec, "", err
	}
	spec = engine.TokenSpec{
		Name: f.required("name"), Role: engine.Role(f.required("role")), Paths: f.labels("paths", maxName),
		Expires: f.instant("expires"), Forever: f.boolean("forever"),
	}
	reason = f.label("reason", maxReason)
	f.refuseUnknown()
	return spec, reason, faulty(f.faults)
}

func (s *server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	name, err := pathValue(r, "name")
	if err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	reason := q.label("reason", maxReason)
	if err := badParameter(q.faults); err != nil {
		return err
	}
	if err := s.keepAnAdmin(r.Context(), name); err != nil {
		return err
	}
	view, err := s.engine.RevokeToken(r.Context(), name, actor(r, reason))
	if err != nil {
		return tokenProblem(err)
	}
	return writeJSON(w, http.StatusOK, view)
}

// keepAnAdmin refuses to revoke the last token of an admin: nobody could make
// another one.
func (s *server) keepAnAdmin(ctx context.Context, name string) error {
	if s.token != nil {
		return nil
	}
	all, err := s.engine.Tokens(ctx)
	if err != nil {
		return err
	}
	admin, others := false, false
	for _, t := range all {
		if t.Role == engine.RoleAdmin && t.State == engine.TokenActive {
			admin, others = admin || t.Name == name, others || t.Name != name
		}
	}
	if admin && !others {
		return refuse(codeLastAdmin, "%s is the last token of an admin, and nobody could make another one: make that first, or start a server with --admin-token-file", name)
	}
	return nil
}

// tokenProblem says over HTTP why a token is not made or revoked.
func tokenProblem(err error) error {
	var wrong *engine.AccessError
	if errors.As(err, &wrong) {
		return refuse(knownCode(wrong.Code, codeInvalidToken), "%s", wrong.Message)
	}
	return controlProblem(err, "")
}

// Tokens lists the tokens.
func (c *Client) Tokens(ctx context.Context) ([]engine.TokenView, error) {
	var page Page[engine.TokenView]
	err := c.call(ctx, http.MethodGet, "/admin/v1/tokens", nil, nil, &page)
	return page.Items, err
}

// NewToken makes a token.
func (c *Client) NewToken(ctx context.Context, t NewToken) (MadeToken, error) {
	var made MadeToken
	err := c.call(ctx, http.MethodPost, "/admin/v1/tokens", t, nil, &made)
	return made, err
}

// RevokeToken revokes a token. The reason may be empty.
func (c *Client) RevokeToken(ctx context.Context, name, reason string) (engine.TokenView, error) {
	q := ""
	if reason != "" {
		q = "?" + url.Values{"reason": {reason}}.Encode()
	}
	var view engine.TokenView
	err := c.call(ctx, http.MethodDelete, "/admin/v1/tokens/"+url.PathEscape(name)+q, nil, nil, &view)
	return view, err
}
