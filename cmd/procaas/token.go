package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/api/wire"
)

func tokenCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Say who may call a server: make, list and revoke tokens",
		Long: `token says who may call a server, on all its nodes. The roles are

  viewer     reads
  submitter  submits events and tasks, and does nothing else
  worker     takes tasks, does them, and does nothing else
  operator   does all that, and steers: switches, limits, retries, cancellations
  admin      does everything, tokens included

Operators and submitters may be bound to paths: pipeline, pipeline/stage or
pipeline/stage/handler; workers to types of tasks. What a token is told by is random, shown once when it is
made, and kept nowhere; the audit calls its bearer by the token's name. Before the
first token, calls on a server of this machine need none.`,
		Args: onlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f clientFlags
	f.add(c)
	c.AddCommand(tokenNew(s, &f), tokenList(s, &f), tokenRevoke(s, &f))
	return c
}

// tokenNew prints the token alone on standard output, so that a script can keep it, and what
// is said about it on standard error.
func tokenNew(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "new",
		Short: "Make a token and show it, this once",
		Example: `  procaas token new --name ann --role admin
  procaas token new --name on-call --role operator --path new-order-created/notify --expires 30d
  procaas token new --name resizer --role worker --path thumbnails`,
		Args: cobra.NoArgs,
	}
	var t wire.NewToken
	flags := c.Flags()
	flags.StringVar(&t.Name, "name", "", "what the audit calls its bearer (required)")
	flags.StringVar(&t.Role, "role", "", "viewer, submitter, worker, operator or admin (required)")
	flags.StringSliceVar(&t.Paths, "path", nil,
		"what an operator, submitter or worker is bound to (repeatable); everything when it is left out")
	flags.StringVar(&t.Reason, "reason", "", "why, for the audit")
	expires := flags.String("expires", "90d", "when it is good no more: in a time such as 30d, at one such as 2006-01-02T15:04:05Z, or never")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		if t.Name == "" || t.Role == "" {
			return usagef("token new needs --name and --role")
		}
		var err error
		if t.Expires, t.Forever, err = expiry(*expires, time.Now()); err != nil {
			return err
		}
		made, err := f.client().NewToken(c.Context(), t)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, made)
		}
		fmt.Fprintln(s.out, made.Secret)
		fmt.Fprintf(s.err, "%s, %s, %s. Keep the token: it is shown this once.\n", made.Name, holdsFor(made.TokenView), endText(made.TokenView))
		return nil
	})
	return c
}

// expiry reads when a token is good no more. A duration is counted from the clock of this
// machine; the server refuses a time that has passed.
func expiry(text string, now time.Time) (at time.Time, forever bool, err error) {
	if text == "never" {
		return at, true, nil
	}
	if d, err := datum.ParseDuration(text); err == nil {
		return now.Add(d).UTC().Truncate(time.Second), false, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, false, usagef("--expires %q: want a duration such as 30d, a time such as 2006-01-02T15:04:05Z, or never", text)
	}
	return at, false, nil
}

// tokenList shows tokens that are good no more, too: the audit still names their bearers.
func tokenList(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List tokens, those that are good no more included", Args: cobra.NoArgs}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		tokens, err := f.client().Tokens(c.Context())
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": tokens, "next": nil})
		}
		w := newTable(s.out, "NAME\tROLE\tSTATE\tBY\tREASON")
		for _, t := range tokens {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Name, holdsFor(t), endText(t), t.By, t.Reason)
		}
		return w.Flush()
	})
	return c
}

// tokenRevoke takes a name, for nobody but the bearer knows the token.
func tokenRevoke(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "revoke NAME", Short: "Make a token worthless, on all nodes within a second", Args: cobra.ExactArgs(1),
		Example: `  procaas token revoke on-call --reason "the phone is lost"`,
	}
	reason := c.Flags().String("reason", "", "why, for the audit")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.client().RevokeToken(c.Context(), args[0], *reason)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s: %s\n", t.Name, endText(t))
		return nil
	}
	return c
}

// holdsFor says what a token allows.
func holdsFor(t engine.TokenView) string {
	if len(t.Paths) == 0 {
		return string(t.Role)
	}
	return string(t.Role) + " of " + strings.Join(t.Paths, ", ")
}

// endText says how long a token is good.
func endText(t engine.TokenView) string {
	switch {
	case t.State == engine.TokenRevoked:
		return "revoked"
	case t.State == engine.TokenExpired:
		return "expired " + t.Expires.Local().Format(time.DateTime)
	case t.Expires == nil:
		return "good for ever"
	}
	return "good until " + t.Expires.Local().Format(time.DateTime)
}
