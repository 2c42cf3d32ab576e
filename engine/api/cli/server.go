package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/dsl/urls"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/records"
	"procaas/engine/store"
)

// ServerFlags adds the flags that choose the server of a command and its sub-commands.
func ServerFlags(c *cobra.Command) {
	serverFlags(c.PersistentFlags(), "http://127.0.0.1:8080", "address of the server")
}

// OptionalServer adds them to a command that needs no server. Only the command line enables it: PROCAAS_SERVER
// may be set for other commands.
func OptionalServer(c *cobra.Command, usage string) {
	serverFlags(c.Flags(), "", usage)
	OnlyFlag(c, "server")
}

// OnlyFlag marks a flag that neither the environment nor the file of [ConfigFlag] sets.
func OnlyFlag(c *cobra.Command, name string) {
	_ = c.Flags().SetAnnotation(name, noVariable, []string{}) // cannot fail: the flag exists
}

// OnlyOnLine reports whether a flag is marked by [OnlyFlag].
func OnlyOnLine(f *pflag.Flag) bool {
	_, only := f.Annotations[noVariable]
	return only
}

// noVariable marks the flags of [OnlyFlag].
const noVariable = "procaas no variable"

func serverFlags(f *pflag.FlagSet, server, usage string) {
	f.String("server", server, usage)
	f.String("token", "", "bearer token for the server; see procaas token")
	f.String("admin-token", "", "the same")
	_ = f.MarkHidden("admin-token") // PROCAAS_ADMIN_TOKEN is for servers and clients
	f.String("client-cert", "", "PEM file with a client certificate")
	f.String("client-key", "", "PEM file with its private key")
	_ = f.MarkHidden("client-cert") // like the token, it stands in the environment: PROCAAS_CLIENT_CERT
	_ = f.MarkHidden("client-key")
}

// checkServer refuses an invalid --server.
func checkServer(c *cobra.Command) error {
	f := c.Flags().Lookup("server")
	if f == nil || f.Value.String() == "" && f.DefValue == "" {
		return nil
	}
	if _, err := urls.ParseBase(f.Value.String()); err != nil {
		return Usagef("--server %v: want the address of a server, such as http://127.0.0.1:8080", err)
	}
	return nil
}

// A Call is the context of a command that calls a server.
type Call struct {
	Streams
	*client.Client
	Ctx    context.Context //nolint:containedctx // a call lasts as long as its command
	Args   []string
	Server string
	json   bool
	token  string

	cert, key string // files of a client certificate; empty for none
}

// CallOf reads the flags that [ServerFlags] and [Format] have added.
func CallOf(c *cobra.Command, args []string) *Call {
	flag := func(name string) string {
		if f := c.Flag(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	q := &Call{Streams: Of(c), Ctx: c.Context(), Args: args, Server: flag("server"), json: flag("format") == "json"}
	q.token = cmp.Or(flag("token"), flag("admin-token"))
	q.cert, q.key = flag("client-cert"), flag("client-key")
	if q.token == "" && q.cert == "" && q.Server != "" {
		q.token = q.kept(q.Server)
	}
	q.Client = q.At(q.Server)
	return q
}

// At returns a client of another server with the same token and certificate.
func (q *Call) At(server string) *client.Client {
	c := client.New(server, q.token)
	if q.cert == "" {
		return c
	}
	shows, err := c.WithCertificate(q.cert, q.key)
	if err != nil {
		fmt.Fprintf(q.Err, "procaas: %v; the call is made without it\n", err)
		return c
	}
	return shows
}

// runID is the syntax of run ids, now and in earlier versions.
var runID = regexp.MustCompile(`^([0-9a-v]{26}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// ForRun calls do with the run that name denotes: an id, or a key, which means its newest run. If fits is not
// nil, only runs that it accepts count. Then several runs of a key are an error that lists them.
func (q *Call) ForRun(name string, fits func(checkpoint.RunView) bool, do func(id string) error) error {
	if runID.MatchString(name) {
		err := do(name)
		if refused, ok := errors.AsType[*problem.Problem](err); !ok || refused.Code != problem.RunNotFound {
			return err
		}
	}
	page, err := q.Runs(q.Ctx, store.RunFilter{Key: name, Limit: 20})
	if err != nil {
		return err
	}
	if len(page.Items) == 0 {
		return Usagef("there is no run with the id or the key %q; procaas runs list shows the newest runs", name)
	}
	if fits == nil {
		return do(page.Items[0].ID)
	}
	newest := page.Items[0]
	page.Items = slices.DeleteFunc(page.Items, func(v checkpoint.RunView) bool { return !fits(v) })
	switch len(page.Items) {
	case 0:
		// The server refuses the newest run, too, and says why. It may also have changed meanwhile.
		return do(newest.ID)
	case 1:
		return do(page.Items[0].ID)
	}
	var ids []string
	for _, v := range page.Items {
		ids = append(ids, fmt.Sprintf("%s (%s, %s)", v.ID, v.Pipeline, v.Status))
	}
	return Usagef("the key %q has several such runs; give the id of one: %s", name, strings.Join(ids, ", "))
}

// Recordings returns a function that reads recorded runs one by one, and nil at the end.
func (q *Call) Recordings(f store.RunFilter) func() (*records.Recorded, error) {
	var page []records.Recorded
	last := false
	return func() (*records.Recorded, error) {
		for len(page) == 0 {
			if last {
				return nil, nil
			}
			p, err := q.Client.Recordings(q.Ctx, f)
			if err != nil {
				return nil, err
			}
			page, last = p.Items, p.Next == nil
			if !last {
				f.Cursor = *p.Next
			}
		}
		run := &page[0]
		page = page[1:]
		return run, nil
	}
}

// Show prints a value as JSON, or calls text, depending on --format.
func (q *Call) Show(v any, text func() error) error {
	if q.json {
		return q.PrintJSON(v)
	}
	return text()
}

// Tell prints a value as JSON, or a text, depending on --format.
func (q *Call) Tell(v any, format string, args ...any) error {
	return q.Show(v, func() error { return q.Printf(format, args...) })
}

// JSON reports whether the result is printed as JSON.
func (q *Call) JSON() bool { return q.json }

// Items returns elements in the form of the API, on one page.
func Items[T any](all []T) wire.Page[T] { return wire.Page[T]{Items: all} }

// Group makes a command of sub-commands that call the same server.
func Group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	ServerFlags(c)
	c.AddCommand(commands...)
	return c
}

// former is the annotation of [Formerly].
const former = "procaas_former_name"

// Formerly says how a command was called before it moved below another. Scripts still call it so.
func Formerly(c *cobra.Command, name string) { c.Annotations = map[string]string{former: name} }

// Formers returns the present names of commands by their former ones.
func Formers(root *cobra.Command) map[string][]string {
	now := map[string][]string{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if name := c.Annotations[former]; name != "" {
			now[name] = strings.Fields(c.CommandPath())[1:]
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return now
}

// Calls makes c call do with its server.
func Calls(c *cobra.Command, do func(*Call) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error { return do(CallOf(c, args)) }
	return c
}

// Formatted is [Calls] with the flag --format.
func Formatted(c *cobra.Command, do func(*Call) error) *cobra.Command {
	Format(c, "text", "json")
	return Calls(c, do)
}

// Shows makes c print the result of ask as JSON, or by text.
func Shows[T any](c *cobra.Command, ask func(*Call) (T, error), text func(*Call, T) error) *cobra.Command {
	return Formatted(c, func(q *Call) error {
		v, err := ask(q)
		if err != nil {
			return err
		}
		return q.Show(v, func() error { return text(q, v) })
	})
}

// Lists makes c print the result of ask as JSON, or as a table with a row per element.
func Lists[T any](c *cobra.Command, ask func(*Call) ([]T, error), header string, row func(T) Row) *cobra.Command {
	return Formatted(c, func(q *Call) error {
		all, err := ask(q)
		if err != nil {
			return err
		}
		return ShowTable(q, header, all, row)
	})
}

// ShowTable prints elements as JSON or as a table, depending on --format.
func ShowTable[T any](q *Call, header string, all []T, row func(T) Row) error {
	return q.Show(Items(all), func() error { return Table(q.Out, header, all, row) })
}

// PageSize refuses an invalid --limit of a list.
func PageSize(limit int) error {
	if limit < 1 || limit > 1000 {
		return Usagef("--limit %d: want a number from 1 to 1000", limit)
	}
	return nil
}
