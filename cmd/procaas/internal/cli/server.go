package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/records"
	"procaas/engine/store"
)

// ServerFlags adds the flags that say which server a command, and those below it, talk to.
func ServerFlags(c *cobra.Command) {
	serverFlags(c.PersistentFlags(), "http://127.0.0.1:8080", "address of the server")
}

// OptionalServer adds them to a command that needs no server. It asks one only when the command line
// says so: PROCAAS_SERVER is set for other commands, too.
func OptionalServer(c *cobra.Command, usage string) {
	serverFlags(c.Flags(), "", usage)
	_ = c.Flags().SetAnnotation("server", noVariable, nil) // the flag is there
}

// noVariable marks flags that have no environment twin.
const noVariable = "procaas no variable"

func serverFlags(f *pflag.FlagSet, server, usage string) {
	f.String("server", server, usage)
	f.String("token", "", "bearer token for the server; see procaas token")
	f.String("admin-token", "", "the same")
	_ = f.MarkHidden("admin-token") // PROCAAS_ADMIN_TOKEN serves a server and those who call it
}

// checkServer refuses a --server that nothing can be asked at.
func checkServer(c *cobra.Command) error {
	f := c.Flags().Lookup("server")
	if f == nil || f.Value.String() == "" && f.DefValue == "" {
		return nil
	}
	at, err := url.Parse(f.Value.String())
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return Usagef("--server %q: want the address of a server, such as http://127.0.0.1:8080", f.Value.String())
	}
	return nil
}

// A Call is what a command works with that talks to a server.
type Call struct {
	Streams
	*client.Client
	Ctx    context.Context //nolint:containedctx // a call is as long as its command
	Args   []string
	Server string
	json   bool
	token  string
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
	q.Client = q.At(q.Server)
	return q
}

// At is a client of another server of the same tokens.
func (q *Call) At(server string) *client.Client { return client.New(server, q.token) }

// runID is the form of the id of a run.
var runID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// ForRun does something to the run that name stands for: an id, or the key of an order or a user, whose newest run is meant.
// With fits, only runs that it accepts count, and a key with several of them is an error that lists them.
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
	page.Items = slices.DeleteFunc(page.Items, func(v checkpoint.RunView) bool { return !fits(v) })
	switch len(page.Items) {
	case 0:
		return Usagef("no run of the key %q can be changed in this way; procaas runs list --key %s shows its runs", name, name)
	case 1:
		return do(page.Items[0].ID)
	}
	var ids []string
	for _, v := range page.Items {
		ids = append(ids, fmt.Sprintf("%s (%s, %s)", v.ID, v.Pipeline, v.Status))
	}
	return Usagef("the key %q has several such runs; give the id of one: %s", name, strings.Join(ids, ", "))
}

// Recordings returns what reads recorded runs one by one; nil at the end.
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
			if page, last = p.Items, p.Next == nil; !last {
				f.Cursor = *p.Next
			}
		}
		run := &page[0]
		page = page[1:]
		return run, nil
	}
}

// Show shows a value as --format says: as JSON, or by text.
func (q *Call) Show(v any, text func() error) error {
	if q.json {
		return q.PrintJSON(v)
	}
	return text()
}

// Tell shows a value as --format says: as JSON, or in words.
func (q *Call) Tell(v any, format string, args ...any) error {
	return q.Show(v, func() error { return q.Printf(format, args...) })
}

// JSON reports whether programs read the result.
func (q *Call) JSON() bool { return q.json }

// Items are elements as the API gives them, all on one page.
func Items[T any](all []T) wire.Page[T] { return wire.Page[T]{Items: all} }

// Calls makes a command of what it does with its server.
func Calls(c *cobra.Command, do func(*Call) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error { return do(CallOf(c, args)) }
	return c
}

// Formatted is [Calls] for a command with --format.
func Formatted(c *cobra.Command, do func(*Call) error) *cobra.Command {
	Format(c, "text", "json")
	return Calls(c, do)
}

// Shows makes a command with --format of what it asks its server for, and the text form of that.
func Shows[T any](c *cobra.Command, ask func(*Call) (T, error), text func(*Call, T) error) *cobra.Command {
	return Formatted(c, func(q *Call) error {
		v, err := ask(q)
		if err != nil {
			return err
		}
		return q.Show(v, func() error { return text(q, v) })
	})
}

// Lists makes a command with --format of what it asks its server for, and of a table with a row for each.
func Lists[T any](c *cobra.Command, ask func(*Call) ([]T, error), header string, row func(T) Row) *cobra.Command {
	return Formatted(c, func(q *Call) error {
		all, err := ask(q)
		if err != nil {
			return err
		}
		return ShowTable(q, header, all, row)
	})
}

// ShowTable shows elements as --format says: as JSON, or in a table.
func ShowTable[T any](q *Call, header string, all []T, row func(T) Row) error {
	return q.Show(Items(all), func() error { return Table(q.Out, header, all, row) })
}
