package addon

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"procaas/dsl/tree"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/secrets"
	"procaas/handlers/webhooks"
	"procaas/handlers/webhooks/language"
	"procaas/handlers/webhooks/remote"
)

func webhooksCommand(t addon.Tools) *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List webhooks, and what became of their requests", Args: cobra.NoArgs,
		Long: `list shows the webhooks of a server, and what became of their requests on the node that
answers, since it started. Below a webhook stands why its last refused or failed request
was not taken.`,
		Example: "  procaas webhooks list",
	}
	cli.ServerFlags(list)
	c := &cobra.Command{
		Use: "webhooks", Short: "Look at webhooks of providers, and try them",
		Long: `webhooks works with addresses for providers that sign their requests, which files declare
below webhooks. POST /v1/webhooks/ID takes the requests.`,
	}
	c.AddCommand(cli.Formatted(list, func(q *cli.Call) error {
		all, err := remote.List(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		return q.Show(cli.Items(all), func() error { return printWebhooks(q, all) })
	}), testCommand(t))
	return c
}

func printWebhooks(q *cli.Call, all []remote.Webhook) error {
	err := cli.Table(q.Out, "WEBHOOK\tSCHEME\tOWNER\tACCEPTED\tAGAIN\tIGNORED\tREFUSED\tFAILED\tLAST", all, func(w remote.Webhook) cli.Row {
		return cli.Row{w.ID, w.Scheme, cli.Dash(w.Owner), w.Accepted, w.Duplicate, w.Ignored, w.Refused, w.Failed, timeOf(w.Last)}
	})
	for _, w := range all {
		if w.Problem != "" {
			fmt.Fprintf(q.Out, "%s, %s: %s\n", w.ID, timeOf(w.Troubled), w.Problem)
		}
	}
	return err
}

func timeOf(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

// testCommand tries a webhook without a server.
func testCommand(t addon.Tools) *cobra.Command {
	c := &cobra.Command{
		Use: "test WEBHOOK FILE [PATH...]", Short: "Show what a webhook makes of a recorded request", Args: cobra.MinimumNArgs(2),
		Long: `test shows which event a webhook makes of a request, and which pipeline takes it. FILE has
the request: its headers, an empty line and its body, or only a body. PATH are the files
with the pipelines; without any, they are those in the working directory. - is stdin.

If a secret of the webhook is in the environment, such as PROCAAS_SECRET_NAME, test also
checks the signature. The time of the signature may be in the past. --curl prints a
command that sends the body to a server with a new signature. --header adds what FILE does not
have, such as the header that names the kind of the event.

It ends with 1 if a server would refuse the request.`,
		Example: "  procaas webhooks test github push.http flows/\n" +
			"  procaas webhooks test github push.json flows/ --header X-GitHub-Event=push --curl http://127.0.0.1:8080",
	}
	curl := c.Flags().String("curl", "", "print a command that sends the body to the server at this address, with a new signature")
	given := c.Flags().StringToString("header", nil, "NAME=VALUE, a header of the request that FILE does not have (repeatable)")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		s := cli.Of(c)
		r, err := readRequest(s, args[1])
		if err != nil {
			return err
		}
		r.given = *given
		b, err := t.Bundle(s, args[2:])
		if err != nil {
			return err
		}
		w := language.Of(b, args[0])
		if w == nil {
			ids := cli.Names(language.All(b), func(w *language.Webhook) string { return w.ID })
			return cli.Usagef("no file declares the webhook %q%s", args[0], cli.Meant(args[0], ids, "; did you mean %s?", ""))
		}
		secret, missing := secretIn(t, w)
		if *curl != "" {
			return printCurl(s, w, r, args[1], *curl, secret, missing)
		}
		return trial(s, b, w, r, secret, *format == "json")
	}
	return c
}

// A request is a recorded request of a provider.
type request struct {
	header http.Header // nil if only the body was recorded
	body   []byte
	given  map[string]string // headers that were not recorded
}

// complete sets the headers that were not recorded.
func (r *request) complete(h http.Header) {
	for name, value := range r.given {
		h.Set(name, value)
	}
}

// readRequest reads a recorded request. A first line such as POST /path HTTP/1.1 is allowed.
func readRequest(s cli.Streams, name string) (request, error) {
	text, err := s.Input(name)
	if err != nil {
		return request{}, err
	}
	if start := bytes.TrimSpace(text); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		return request{body: text}, nil
	}
	if line, rest, _ := bytes.Cut(text, []byte("\n")); bytes.Contains(line, []byte(" HTTP/")) {
		text = rest
	}
	in := bufio.NewReader(bytes.NewReader(text))
	header, err := textproto.NewReader(in).ReadMIMEHeader()
	if err != nil {
		return request{}, cli.Usagef("%s: want headers, an empty line and a body, or only a body of JSON: %w", name, err)
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(in); err != nil {
		return request{}, err
	}
	r := request{header: http.Header(header), body: body.Bytes()}
	if n, err := strconv.Atoi(r.header.Get("Content-Length")); err == nil && n <= len(r.body) {
		r.body = r.body[:n]
	} else {
		r.body = bytes.TrimSuffix(r.body, []byte("\n")) // editors add it, and no provider has signed it
	}
	return r, nil
}

// secretIn returns the first secret of a webhook that is in the environment.
func secretIn(t addon.Tools, w *language.Webhook) (secret string, missing error) {
	for _, name := range w.Secrets {
		secret, missing = t.Secret(secrets.Use{Name: name, To: w.ID, Owner: w.Owner})
		if missing == nil {
			return secret, nil
		}
	}
	return "", missing
}

// A tried is what a webhook makes of a request.
type tried struct {
	Signature string `json:"signature"` // valid, missing, unchecked or refused
	Refused   string `json:"refused,omitempty"`
	Ignored   string `json:"ignored,omitempty"`
	Challenge string `json:"challenge,omitempty"`
	Type      string `json:"type,omitempty"`
	ID        string `json:"id,omitempty"`
	Source    string `json:"source,omitempty"`
	Key       string `json:"key,omitempty"`
	Payload   any    `json:"payload,omitempty"`
	Pipeline  string `json:"pipeline,omitempty"` // empty if none takes the event
}

func trial(s cli.Streams, b *tree.Bundle, w *language.Webhook, r request, secret string, asJSON bool) error {
	out := tried{Signature: "unchecked"}
	if r.header != nil {
		r.complete(r.header)
	}
	switch {
	case r.header == nil:
		out.Signature = "missing"
		r.header, _ = webhooks.Sign(w, r.body, secret, "delivery-1", time.Now()) // for the delivery's id
		r.complete(r.header)
	case secret != "":
		out.Signature = "valid"
		err := webhooks.Verify(w, r.header, r.body, []string{secret}, webhooks.SignedAt(w, r.header, time.Now()))
		if why, ok := errors.AsType[*webhooks.RefusedError](err); ok {
			out.Signature, out.Refused = "refused", why.Message
		} else if err != nil {
			return err
		}
	}
	mapped, err := webhooks.Map(w, r.header, r.body)
	if err != nil {
		out.Refused = cmp.Or(out.Refused, err.Error())
	}
	e := mapped.Event
	out.Ignored, out.Challenge = mapped.Ignored, mapped.Challenge
	if e.Type != "" {
		out.Type = e.Type
		out.ID = e.ID
		out.Source = e.Source
		out.Key = e.Key
		out.Payload = e.Payload
		switch served := slices.Concat(b.On(e.Type), b.Awaiting(e.Type)); {
		case len(served) == 0:
			out.Ignored = "no pipeline serves events of the type " + e.Type
		default:
			out.Pipeline = served[0].ID
			if err := b.Event(e.Type).Contract().Check(e.Payload); err != nil {
				out.Refused = cmp.Or(out.Refused, err.Error())
			}
		}
	}
	if asJSON {
		err = s.PrintJSON(out)
	} else {
		err = printTrial(s, &out)
	}
	return cmp.Or(err, cli.FindingsIf(out.Refused != ""))
}

func printTrial(s cli.Streams, out *tried) error {
	fmt.Fprintf(s.Out, "signature  %s\n", out.Signature)
	for _, line := range []struct{ name, value string }{
		{"refused", out.Refused}, {"ignored", out.Ignored}, {"challenge", out.Challenge}, {"event", out.Type}, {"id", out.ID},
		{"source", out.Source}, {"key", out.Key}, {"pipeline", out.Pipeline},
	} {
		if line.value != "" {
			fmt.Fprintf(s.Out, "%-9s  %s\n", line.name, line.value)
		}
	}
	if out.Type == "" {
		return nil
	}
	fmt.Fprint(s.Out, "payload    ")
	return s.PrintJSON(out.Payload)
}

// printCurl prints a command that sends a body with a new signature.
func printCurl(s cli.Streams, w *language.Webhook, r request, file, server, secret string, missing error) error {
	if missing != nil {
		return cli.Usagef("--curl needs a secret of webhook %s to sign with: %w", w.ID, missing)
	}
	if file == "-" || r.header != nil {
		return cli.Usagef("--curl needs a file with only the body, because curl sends the whole file")
	}
	h, err := webhooks.Sign(w, r.body, secret, uuid.NewString(), time.Now())
	if err != nil {
		return err
	}
	h.Set("Content-Type", "application/json")
	r.complete(h)
	var line strings.Builder
	fmt.Fprintf(&line, "curl -sS %s/v1/webhooks/%s", strings.TrimRight(server, "/"), w.ID)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&line, " \\\n  -H '%s'", strings.ReplaceAll(name+": "+h.Get(name), "'", `'\''`))
	}
	fmt.Fprintf(&line, " \\\n  --data-binary '@%s'", file)
	return s.Printf("%s\n", line.String())
}
