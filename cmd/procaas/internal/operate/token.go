package operate

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
)

func tokenCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of a server",
		Long: `token manages who may call a server, on all its nodes. The roles are

  viewer     reads
  submitter  submits events and tasks only
  worker     takes and finishes tasks only
  operator   reads, submits, works, and controls: switches, limits, retries, cancellations
  deployer   makes versions current: deploy, pull, promote, rollback
  admin      does everything, including tokens

You can bind viewers, operators and submitters to paths: pipeline, pipeline/stage or
pipeline/stage/handler. You can bind workers to types of tasks, and
deployers to owners: then they may change only files in which all belongs to these.

A token is random. The server shows it once and keeps only its hash. The audit has
the token's name. Until somebody makes the first token, calls to a server on the
loopback address need none.`,
	}, tokenNew(), tokenList(), tokenRevoke())
}

// tokenNew prints only the token on standard output, for scripts. Everything else goes to standard error.
func tokenNew() *cobra.Command {
	c := &cobra.Command{
		Use:   "new",
		Short: "Make a token, and show it once",
		Example: `  procaas token new --name ann --role admin
  procaas token new --name on-call --role operator --path new-order-created/notify --expires 30d
  procaas token new --name shop --role submitter --path new-order-created --source orders --quota 100/s
  procaas token new --name shop-ci --role deployer --owner shop
  procaas token new --name shop-ci --role deployer --owner shop --certificate DNS:ci.shop.internal
  procaas token new --name resizer --role worker --path thumbnails`,
		Args: cobra.NoArgs,
	}
	var t wire.NewToken
	flags := c.Flags()
	flags.StringVar(&t.Name, "name", "", "name of the bearer in the audit (required)")
	flags.StringVar(&t.Role, "role", "", "viewer, submitter, worker, operator, deployer or admin (required)")
	flags.StringSliceVar(&t.Paths, "path", nil,
		"path or type that a viewer, operator, submitter or worker is bound to (repeatable; default: everything)")
	flags.StringSliceVar(&t.Owners, "owner", nil, "owner whose files a deployer may change (repeatable; default: all files)")
	flags.StringSliceVar(&t.Sources, "source", nil,
		"source of events that only this token may submit, with what is below it (repeatable; default: all that no token is bound to)")
	flags.StringVar(&t.Certificate, "certificate", "", "name in the client certificate of the bearer, instead of a secret: DNS:shop.internal, "+
		"URI:…, EMAIL:… or CN:… (the server needs --tls-client-ca)")
	flags.StringVar(&t.Quota, "quota", "", "how many events and tasks a submitter may submit, such as 100/s (default: any number)")
	flags.StringVar(&t.Reason, "reason", "", "reason, for the audit")
	expires := flags.String("expires", "90d", "when it expires: a duration such as 30d, a time such as 2006-01-02T15:04:05Z, or never")
	return cli.Shows(c, func(q *cli.Call) (made wire.MadeToken, err error) {
		if t.Name == "" || t.Role == "" {
			return made, cli.Usagef("token new needs --name and --role")
		}
		if t.Expires, t.Forever, err = expiry(*expires, time.Now()); err != nil {
			return made, err
		}
		return q.NewToken(q.Ctx, t)
	}, func(q *cli.Call, made wire.MadeToken) error {
		if made.Certificate != "" {
			return q.Printf("%s, %s, %s. Its bearer shows a certificate with %s.\n", made.Name, holdsFor(made.TokenView), endText(made.TokenView),
				made.Certificate)
		}
		fmt.Fprintln(q.Out, made.Secret)
		fmt.Fprintf(q.Err, "%s, %s, %s. Keep the token: it is shown this "+
			"once.\n", made.Name, holdsFor(made.TokenView), endText(made.TokenView))
		return nil
	})
}

// expiry parses the end of a token. A duration starts now, by the clock of this machine. The server refuses a
// time in the past.
func expiry(text string, now time.Time) (at time.Time, forever bool, err error) {
	if text == "never" {
		return at, true, nil
	}
	if d, err := datum.ParseDuration(text); err == nil {
		if d <= 0 {
			return at, false, cli.Usagef("--expires: want a duration over 0, such as 30d, have %q", text)
		}
		return now.Add(d).UTC().Truncate(time.Second), false, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, false, cli.Usagef("--expires %q: want a duration such as 30d, a time such as 2006-01-02T15:04:05Z, or never", text)
	}
	return at, false, nil
}

// tokenList also shows expired tokens, since the audit still names them.
func tokenList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List tokens, including expired and revoked ones", Args: cobra.NoArgs}
	return cli.Lists(c, func(q *cli.Call) ([]credentials.TokenView, error) { return q.Tokens(q.Ctx) },
		"NAME\tROLE\tSTATE\tBY\tREASON", func(t credentials.TokenView) cli.Row {
			return cli.Row{t.Name, holdsFor(t), endText(t), t.By, t.Reason}
		})
}

// tokenRevoke takes a name, since only the bearer knows the token.
func tokenRevoke() *cobra.Command {
	c := &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a token, on all nodes within a second", Args: cobra.ExactArgs(1),
		Example: `  procaas token revoke on-call --reason "the phone is lost"`,
	}
	reason := cli.Reason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		t, err := q.RevokeToken(q.Ctx, q.Args[0], *reason)
		if err != nil {
			return err
		}
		return q.Printf("%s: %s\n", t.Name, endText(t))
	})
}

// holdsFor describes what a token allows.
func holdsFor(t credentials.TokenView) string {
	text := string(t.Role)
	if len(t.Paths) > 0 {
		text += " of " + strings.Join(t.Paths, ", ")
	}
	if len(t.Owners) > 0 {
		text += " for " + strings.Join(t.Owners, ", ")
	}
	if len(t.Sources) > 0 {
		text += " from " + strings.Join(t.Sources, ", ")
	}
	if t.Certificate != "" {
		text += " by " + t.Certificate
	}
	if t.Quota != "" {
		text += ", " + t.Quota
	}
	return text
}

// endText describes when a token expires.
func endText(t credentials.TokenView) string {
	switch {
	case t.State == credentials.TokenRevoked:
		return "revoked"
	case t.State == credentials.TokenExpired:
		return "expired " + cli.Time(*t.Expires)
	case t.Expires == nil:
		return "good for ever"
	}
	return "good until " + cli.Time(*t.Expires)
}
