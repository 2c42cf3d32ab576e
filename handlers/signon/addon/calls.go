package addon

import (
	"errors"
	"html/template"
	"net/http"

	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/ui"
	"procaas/handlers/signon"
	"procaas/handlers/signon/remote"
)

// signOnOff is the problem of calls where nobody signs on.
var signOnOff = problem.Kind{Code: "sign_on_off", Status: http.StatusNotFound, Title: "The server has no sign-on"}

func off() error {
	return signOnOff.New("this server signs nobody on in this way; start it with --access FILE, and name the client in the file")
}

// endPath is where people sign out of the issuer.
const endPath = "/v1/sign-on/end"

// calls describes the group in the API.
func (p *process) calls() api.Group {
	return api.Group{
		Tag: "sign-on", About: "Signing people in by their issuer of tokens.",
		Operations: func(s api.Server) []rest.Operation {
			p.api = s
			return p.operations()
		},
	}
}

// A startQuery says what to show after signing in.
type startQuery struct {
	Issuer string `query:"issuer" doc:"The id of the issuer; the first one that signs people in to the console without."`
	Next   string `query:"next" doc:"The page of the console to show afterwards."`
}

// An endQuery says where to sign out.
type endQuery struct {
	Issuer string `query:"issuer" doc:"The id of the issuer; the first one that signs people in to the console without."`
}

// A callbackQuery is what an issuer sends a browser back with.
type callbackQuery struct {
	Code        string `query:"code" doc:"The code for a token."`
	State       string `query:"state" doc:"What the browser was sent with."`
	Error       string `query:"error" doc:"Why the issuer refuses."`
	Description string `query:"error_description" doc:"The same for people."`
	Issuer      string `query:"iss" doc:"The issuer."`
	Session     string `query:"session_state" doc:"The session at the issuer."`
	Scope       string `query:"scope" doc:"What was granted."`
}

func (p *process) operations() []rest.Operation {
	browser := func(path, id, summary, about string, replies ...rest.Reply) rest.Operation {
		return rest.Operation{
			Method: http.MethodGet, Path: path, ID: id, Need: rest.Anybody, Tag: "sign-on", Summary: summary, About: about, Replies: replies,
			Refusals: []string{problem.NotReady}, Problems: []problem.Kind{signOnOff},
		}
	}
	toIssuer := rest.Reply{Status: http.StatusFound, About: "The way to the issuer.", ContentType: "text/html", Headers: []string{"Location: the issuer"}}
	page := rest.Reply{About: "A page that leads to the console.", ContentType: "text/html"}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/sign-on", ID: "get-sign-on", Need: rest.Anybody, Tag: "sign-on",
			Summary:  "Get who signs people on, for the command line",
			Replies:  []rest.Reply{{About: "The issuers.", Example: remote.SignOn{Issuer: exampleIssuer, Issuers: []remote.Issuer{exampleIssuer}}}},
			Problems: []problem.Kind{signOnOff},
		}, func(*rest.Call, *rest.Nothing) (remote.SignOn, error) {
			if p.desk == nil {
				return remote.SignOn{}, off()
			}
			return signOnOf(p.desk.Issuers()), nil
		}),
		rest.WithParameters(browser(signon.StartPath, "start-sign-on", "Send a browser to the issuer to sign in to the console",
			"The flow is that of an authorization code with PKCE.", toIssuer),
			func(c *rest.Call, in *startQuery) error {
				if p.desk == nil {
					return off()
				}
				return known(p.desk.Start(c.W, c.R, in.Issuer, ui.OwnPage(in.Next)))
			}),
		rest.WithParameters(browser(signon.CallbackPath, "finish-sign-on", "Take a browser back from the issuer, and sign its person in to the console",
			"The session ends with the token of the issuer at the latest.", page),
			func(c *rest.Call, _ *callbackQuery) error { return p.finish(c) }),
		rest.WithParameters(browser(endPath, "end-sign-on", "Send a browser to the issuer to sign out there, too", "", toIssuer),
			func(c *rest.Call, in *endQuery) error {
				if p.desk == nil {
					return off()
				}
				to := p.desk.End(c.R, in.Issuer, ui.SignInPage)
				if to == "" {
					to = ui.SignInPage
				}
				http.Redirect(c.W, c.R, to, http.StatusFound)
				return nil
			}),
	}
}

var exampleIssuer = remote.Issuer{ID: "staff", Issuer: "https://login.example.com", Client: "procaas-cli", Scopes: []string{"openid", "email"}}

// signOnOf describes the issuers. Commands that know only one take the first one with a client for them.
func signOnOf(all []*signon.Issuer) (on remote.SignOn) {
	for _, i := range all {
		one := remote.Issuer{ID: i.ID, Issuer: i.Issuer}
		if i.Login != nil {
			one.Client, one.Scopes = i.Login.ID, i.Login.LoginScopes()
		}
		if on.Client == "" && (on.Issuer.Issuer == "" || one.Client != "") {
			on.Issuer = one
		}
		on.Issuers = append(on.Issuers, one)
	}
	return on
}

// known converts errors of package signon.
func known(err error) error {
	var claim *signon.ClaimError
	var person *signon.SignInError
	switch {
	case errors.Is(err, signon.ErrOff):
		return off()
	case errors.As(err, &claim), errors.As(err, &person):
		return problem.New(problem.Unauthorized, "%s", err)
	}
	return err
}

// finish signs a person in, and shows a page either way, since it is a browser that asks.
func (p *process) finish(c *rest.Call) error {
	if p.desk == nil {
		return off()
	}
	who, next, err := p.desk.Finish(c.W, c.R)
	if err == nil {
		err = p.api.SignIn(c.W, c.R, who)
	} else {
		err = known(err)
	}
	if err == nil {
		return show(c, http.StatusOK, pageData{Next: next})
	}
	refused := problem.Of(err)
	p.api.Log.Warn("a person is not signed in", "name", who.Name, "code", refused.Code, "detail", refused.Detail)
	return show(c, refused.Status, pageData{Text: refused.Detail, Next: ui.SignInPage})
}

type pageData struct {
	Text string // why a person is not signed in; empty if they are
	Next string
}

// The page leads to the console by itself: browsers do not send the cookie of the session with a redirect from another site.
var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>procaas</title>
{{if not .Text}}<meta http-equiv="refresh" content="0;url={{.Next}}">{{end}}</head>
<body>{{if .Text}}<h1>Not signed in</h1><p>{{.Text}}</p><p><a href="{{.Next}}">Back</a></p>
{{else}}<p>You are signed in. <a href="{{.Next}}">Go on</a></p>{{end}}</body></html>
`))

func show(c *rest.Call, status int, d pageData) error {
	h := c.W.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address has the code
	c.W.WriteHeader(status)
	return page.Execute(c.W, d)
}
