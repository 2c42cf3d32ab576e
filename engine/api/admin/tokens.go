package admin

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api/controls"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
)

func (g *Group) tokenOperations() []rest.Operation {
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/tokens", ID: "list-tokens", Need: rest.Rules, Tag: "admin",
			Summary: "List tokens, without their secrets",
			Replies: rest.OK("All tokens, by name."), Refusals: []string{problem.StoreUnavailable},
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[credentials.TokenView], error) {
			return rest.Listed(g.Tokens.Tokens(c.Context()))
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/tokens", ID: "new-token", Need: rest.Rules, Tag: "admin", Summary: "Make a token",
			About: "The first token must be an admin's, unless the configuration of the server has one. From then on calls need tokens. " +
				"You can reuse the name of a revoked or expired token.",
			Example:  wire.NewToken{Name: "on-call", Role: "operator", Paths: []string{"new-order-created/notify"}},
			Replies:  []rest.Reply{{Status: http.StatusCreated, About: "The token."}},
			Refusals: []string{problem.InvalidToken, problem.TokenExists, problem.FirstToken, problem.ControlPath, problem.StoreUnavailable},
		}, g.newToken),
		rest.Typed(rest.Operation{
			Method: http.MethodDelete, Path: "/admin/v1/tokens/{name}", ID: "revoke-token", Need: rest.Rules, Tag: "admin",
			Summary: "Revoke a token on all nodes",
			About:   "No node accepts it after a second. The server keeps the last token of an admin, unless its configuration has one.",
			Replies: rest.OK("The revoked token."),
			Refusals: []string{
				problem.InvalidParameter, problem.TokenNotFound, problem.TokenExists, problem.LastAdmin, problem.StoreUnavailable,
			},
		}, g.revokeToken),
	}
}

type newToken struct{ Body wire.NewToken }

// newToken makes a token. Only this reply has the secret, because the store has only its hash.
func (g *Group) newToken(c *rest.Call, in *newToken) (made wire.MadeToken, err error) {
	b := &in.Body
	spec := credentials.TokenSpec{
		Name: b.Name, Role: credentials.Role(b.Role), Paths: b.Paths, Owners: b.Owners, Sources: b.Sources, Quota: b.Quota, Expires: b.Expires, Forever: b.Forever,
		Certificate: b.Certificate,
	}
	guarded := g.Configured
	if !guarded {
		if guarded, err = g.Tokens.Guarded(c.Context()); err != nil {
			return made, err
		}
	}
	if !guarded && spec.Role != credentials.RoleAdmin {
		return made, problem.New(problem.FirstToken,
			"calls will need tokens from now on, and nobody could make another one: make a token with the role admin first")
	}
	made.TokenView, made.Secret, err = g.Tokens.NewToken(c.Context(), spec, c.Actor(b.Reason))
	return made, tokenProblem(err)
}

type revokeToken struct {
	Name   string `path:"name" doc:"The token."`
	Reason string `query:"reason" bytes:"512" doc:"The reason, for people and the audit."`
}

func (g *Group) revokeToken(c *rest.Call, in *revokeToken) (view credentials.TokenView, err error) {
	if err := g.keepAnAdmin(c.Context(), in.Name); err != nil {
		return view, err
	}
	view, err = g.Tokens.RevokeToken(c.Context(), in.Name, c.Actor(in.Reason))
	return view, tokenProblem(err)
}

// keepAnAdmin refuses to revoke the last admin token, because nobody could make another one.
func (g *Group) keepAnAdmin(ctx context.Context, name string) error {
	if g.Configured {
		return nil
	}
	all, err := g.Tokens.Tokens(ctx)
	if err != nil {
		return err
	}
	admin, others := false, false
	for _, t := range all {
		if t.Role == credentials.RoleAdmin && t.State == credentials.TokenActive {
			admin, others = admin || t.Name == name, others || t.Name != name
		}
	}
	if admin && !others {
		return problem.New(problem.LastAdmin,
			"%s is the last token of an admin, and nobody could make another one: make that first, or start a server with --admin-token-file", name)
	}
	return nil
}

// tokenProblem converts the error of a token call to a problem.
func tokenProblem(err error) error {
	if wrong, ok := errors.AsType[*credentials.AccessError](err); ok {
		return problem.New(problem.KnownCode(wrong.Code, problem.InvalidToken), "%s", wrong.Message)
	}
	return controls.Problem(err, "")
}
