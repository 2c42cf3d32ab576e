package addon

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/dsl/tree"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	engineintake "procaas/engine/intake"
	"procaas/engine/secrets"
	"procaas/handlers/webhooks"
	"procaas/handlers/webhooks/language"
	"procaas/handlers/webhooks/remote"
)

// These are the problems of webhooks.
var (
	unknownWebhook = problem.Kind{Code: "unknown_webhook", Status: http.StatusNotFound, Title: "There is no such webhook"}
	badSignature   = problem.Kind{Code: "bad_signature", Status: http.StatusUnauthorized, Title: "The request is not signed as the webhook wants it"}
	badDelivery    = problem.Kind{Code: "bad_delivery", Status: http.StatusUnprocessableEntity, Title: "The request makes no event"}
)

// A group serves the requests of providers, and what people ask about them.
type group struct {
	// These are nil before open.
	bundle func() *tree.Bundle
	secret func(secrets.Use) (string, error)
	now    func() time.Time
	log    *slog.Logger

	server api.Server

	failures access.Failures // signatures that do not hold
	seen     seen
}

// calls describes the group in the API.
func (g *group) calls() api.Group {
	return api.Group{
		Tag: "webhooks", About: "Events from providers that sign their requests.",
		Operations: func(s api.Server) []rest.Operation {
			g.server = s
			return g.operations()
		},
	}
}

// A webhookPath names a webhook.
type webhookPath struct {
	Webhook string `path:"webhook" doc:"The id of the webhook." example:"github"`
}

// An originHeader is what the handshake of CloudEvents sends.
type originHeader struct {
	Origin string `header:"WebHook-Request-Origin" doc:"The sender that asks for consent."`
}

type webhookOrigin struct {
	webhookPath
	originHeader
}

const exampleRun = "06ct7s3fdpu7n78ad8u1obqe24"

func (g *group) operations() []rest.Operation {
	return []rest.Operation{
		rest.WithParameters(rest.Operation{
			Method: http.MethodPost, Path: "/v1/webhooks/{webhook}", ID: "receive-webhook", Need: rest.Signs, Tag: "webhooks",
			Summary: "Take a signed request of a provider as an event",
			About: "The caller needs no token: the signature says who it is. A request that the webhook does not want is answered with 200 " +
				"and `ignored`. A repeated delivery is a duplicate. Slack gets an empty body, or the challenge that it sent.",
			Body: func(func(any) *huma.Schema) *huma.RequestBody {
				return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
					rest.MediaJSON: {}, "application/x-www-form-urlencoded": {},
				}}
			},
			Replies: []rest.Reply{
				{Status: http.StatusAccepted, About: "Accepted and durable.", Body: remote.Delivery{}, Example: remote.Delivery{Event: "evt-1", Run: exampleRun}},
				{About: "Accepted before, or ignored.", Body: remote.Delivery{}},
			},
			Refusals: intake.Refusals(problem.TooManyFailures, problem.NotReady), Problems: problems(),
		}, g.receive),
		rest.WithParameters(handshake(rest.Operation{
			Path: "/v1/webhooks/{webhook}", ID: "consent-to-webhook", Problems: []problem.Kind{unknownWebhook},
		}), func(c *rest.Call, in *webhookOrigin) error {
			if _, err := g.webhook(in.Webhook); err != nil {
				return err
			}
			return consent(c, in.Origin)
		}),
		rest.WithParameters(handshake(rest.Operation{Path: "/v1/events", ID: "consent-to-events"}),
			func(c *rest.Call, in *originHeader) error { return consent(c, in.Origin) }),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/webhooks", ID: "list-webhooks", Need: rest.Surveys, Tag: "webhooks",
			Summary: "List webhooks, and what became of their requests on this node since it started",
			Replies: []rest.Reply{{About: "The webhooks.", Example: wire.PageOf([]remote.Webhook{{
				ID: "github", Scheme: "github", Path: "/v1/webhooks/github", Accepted: 12,
			}}, "")}},
		}, func(*rest.Call, *rest.Nothing) (wire.Page[remote.Webhook], error) {
			return wire.PageOf(g.list(), ""), nil
		}),
	}
}

// handshake completes the operation by which senders of CloudEvents ask whether an address wants their requests. The answer allows
// nothing that a request without it could not do.
func handshake(o rest.Operation) rest.Operation {
	o.Method, o.Need, o.Tag = http.MethodOptions, rest.Signs, "webhooks"
	o.Summary = "Consent to requests of a sender of CloudEvents"
	o.About = "This is the handshake of the specification of HTTP webhooks for CloudEvents."
	o.Replies = []rest.Reply{{
		About: "The sender may send. The body is empty.", ContentType: "text/plain",
		Headers: []string{"WebHook-Allowed-Origin: the sender", "WebHook-Allowed-Rate: *, for any"},
	}}
	return o
}

func consent(c *rest.Call, origin string) error {
	h := c.W.Header()
	h.Set("Allow", http.MethodPost)
	if origin != "" {
		h.Set("WebHook-Allowed-Origin", origin)
		h.Set("WebHook-Allowed-Rate", "*")
	}
	c.W.WriteHeader(http.StatusOK)
	return nil
}

// webhook finds the webhook of a request. The answer to an unknown one names no others, because anybody may ask.
func (g *group) webhook(id string) (*language.Webhook, error) {
	if g.bundle != nil {
		if w := language.Of(g.bundle(), id); w != nil {
			return w, nil
		}
		g.seen.unknown(g.log, id, g.now())
	}
	return nil, unknownWebhook.New("no file declares a webhook %q; procaas webhooks list shows those that are declared", id)
}

// secretsOf returns the secrets of a webhook. One that is missing is left out, so that its name may be declared before it exists.
// The error is that of the last one, if none exists.
func (g *group) secretsOf(w *language.Webhook) (all []string, err error) {
	for _, name := range w.Secrets {
		value, missing := g.secret(secrets.Use{Name: name, To: w.ID, Owner: w.Owner})
		if missing != nil {
			err = missing
			continue
		}
		all = append(all, value)
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, err
}

// receive answers a provider, and counts what became of the request.
func (g *group) receive(c *rest.Call, in *webhookPath) error {
	w, err := g.webhook(in.Webhook)
	if err != nil {
		return err
	}
	done, err := g.deliver(c, w)
	switch {
	case err == nil:
		g.seen.note(w.ID, done.outcome, "", g.now())
		return done.reply(c)
	case c.Context().Err() != nil:
		return err // the provider has gone, and sends it again
	}
	why, became := problem.Of(err), failed
	if why.Code == badSignature.Code || why.Code == problem.TooManyFailures {
		became = refused
	}
	reason := why.Detail
	if e, ok := errors.AsType[*withoutSecret](err); ok {
		reason = e.why.Error()
	}
	g.seen.note(w.ID, became, reason, g.now())
	return err
}

// deliver makes an event of a request.
func (g *group) deliver(c *rest.Call, w *language.Webhook) (*answer, error) {
	if over := g.server.Events.Intake.Overload(); over != nil {
		return nil, over
	}
	if !g.failures.Allow(c.R) {
		return nil, problem.New(problem.TooManyFailures, "many requests without a valid signature came from this address").With("Retry-After", "10")
	}
	body, err := c.SentBody()
	if err != nil {
		return nil, err
	}
	if err := g.verify(c.R, w, body); err != nil {
		return nil, err
	}
	mapped, err := webhooks.Map(w, c.R.Header, body)
	switch {
	case err != nil:
		return nil, badDelivery.New("%s", err)
	case mapped.Challenge != "":
		return &answer{outcome: ignored, challenge: mapped.Challenge}, nil
	case mapped.Ignored != "":
		return answerOf(w, remote.Delivery{Ignored: mapped.Ignored}, ignored), nil
	}
	// Providers count their attempts in the body of a repeated delivery. So only its id says what it is.
	s := engineintake.Submission{Event: mapped.Event, Hash: mapped.Event.ID}
	results, err := g.server.Events.Intake.Submit(c.Context(), []engineintake.Submission{s})
	if err != nil {
		return nil, err
	}
	return settled(w, mapped, results[0])
}

// verify returns a problem if a request is not from the provider of a webhook.
func (g *group) verify(r *http.Request, w *language.Webhook, body []byte) error {
	known, err := g.secretsOf(w)
	if err == nil {
		err = webhooks.Verify(w, r.Header, body, known, g.now())
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*webhooks.RefusedError)):
		g.failures.Note(r)
		return badSignature.New("%s", err)
	}
	answer := problem.New(problem.NotReady, "webhook %s cannot check signatures on this node; procaas webhooks list says why", w.ID)
	return &withoutSecret{answer.With("Retry-After", "60"), err}
}

// A withoutSecret is the answer to a request of a webhook whose secrets cannot be read. Anybody may send one, so only operators learn why.
type withoutSecret struct {
	*problem.Problem
	why error
}

// Unwrap returns what the caller gets.
func (e *withoutSecret) Unwrap() error { return e.Problem }

// settled returns the answer to a delivery whose event was submitted.
func settled(w *language.Webhook, mapped webhooks.Mapped, result engineintake.Submitted) (*answer, error) {
	if why, ok := errors.AsType[*engineintake.Error](result.Err); ok && why.Code == problem.UnknownEventType {
		return answerOf(w, remote.Delivery{Ignored: "no pipeline serves events of the type " + mapped.Event.Type}, ignored), nil
	}
	if result.Err != nil {
		return nil, result.Err
	}
	became := accepted
	if result.Receipt.Duplicate {
		became = duplicate
	}
	d := remote.Delivery{Event: result.Receipt.Event, Run: result.Receipt.Run, Duplicate: result.Receipt.Duplicate}
	return answerOf(w, d, became), nil
}

// An answer is what a provider gets.
type answer struct {
	outcome   outcome
	delivery  remote.Delivery
	challenge string // that the provider wants to read; empty for none
	silent    bool   // the provider would show a body to people
}

func answerOf(w *language.Webhook, d remote.Delivery, o outcome) *answer {
	return &answer{outcome: o, delivery: d, silent: w.Scheme == "slack"}
}

func (a *answer) reply(c *rest.Call) error {
	switch {
	case a.challenge != "":
		c.W.Header().Set("Content-Type", "text/plain; charset=utf-8")
		c.W.WriteHeader(http.StatusOK)
		_, err := c.W.Write([]byte(a.challenge))
		return err
	case a.silent:
		c.W.WriteHeader(http.StatusOK)
		return nil
	case a.outcome == accepted:
		c.W.Header().Set("Location", "/v1/runs/"+a.delivery.Run)
		return c.Reply(http.StatusAccepted, a.delivery)
	}
	return c.Reply(http.StatusOK, a.delivery)
}
