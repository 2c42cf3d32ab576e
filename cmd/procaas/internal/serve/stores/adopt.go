package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/engine/api/cli"
	"procaas/engine/pgkit"
	"procaas/engine/postgres"
	"procaas/engine/sqlite"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// adoptCommand accepts a restored store.
func adoptCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "adopt",
		Short: "Accept a store that was restored from a backup",
		Long: `adopt accepts a store as it was restored, so that nodes start with it. Nodes refuse a restored
store until then, because runs and tasks may repeat what they did after the backup.

It lists what will be repeated: runs resume from their checkpoints of then, and make their calls
again with the same Idempotency-Key. Tasks that workers had are given to workers again. Triggers
with catch-up fire again what they fired after the backup. --dry-run only lists.

Nodes that ran before the restore end with exit code 3 when they see the adopted store. Start them
again. The audit keeps who adopted the store, why, and what was to be repeated.

Exit codes: 0 adopted, or nothing to adopt; 3 the store cannot be reached.`,
		Example: "  procaas store adopt --store postgres://procaas@db/procaas --dry-run\n" +
			"  procaas store adopt --store postgres://procaas@db/procaas --reason 'table dropped by mistake at 09:12'",
		Args: cobra.NoArgs,
	}
	dsn := storeFlag(c)
	preview := c.Flags().Bool("dry-run", false, "change nothing, and list")
	reason := cli.Reason(c)
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := checkDSN(*dsn); err != nil {
			return err
		}
		r, err := adopt(c.Context(), *dsn, *preview, store.Actor{Name: operator(), Reason: *reason})
		if err != nil {
			return fmt.Errorf("adopt %s: %w", pgkit.Redact(*dsn), err)
		}
		s := cli.Of(c)
		if *format == "json" {
			return s.PrintJSON(r)
		}
		return showRestored(s, r, *preview)
	}
	return c
}

// adopt opens a store as it is.
func adopt(ctx context.Context, dsn string, preview bool, by store.Actor) (r store.Restored, err error) {
	if _, path, ok := kindOf(dsn); ok {
		if !Exists(dsn) {
			return r, fmt.Errorf("there is no file %s", path)
		}
		db, err := sqlite.Open(ctx, path, sqlite.Options{Addons: addons.Tables(), Restored: true})
		if err != nil {
			return r, err
		}
		r, err = db.Adopt(ctx, triggers.TriggerSource, preview, by)
		return r, errors.Join(err, db.Close())
	}
	db, err := postgres.Open(ctx, dsn, postgres.Options{Addons: addons.Tables(), Restored: true})
	if err != nil {
		return r, err
	}
	r, err = db.Adopt(ctx, triggers.TriggerSource, preview, by)
	return r, errors.Join(err, db.Close())
}

// operator names the person at this machine, for the audit.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

// shownInFlight bounds the runs that are listed one by one for people.
const shownInFlight = 20

// showRestored prints what will be repeated.
func showRestored(s cli.Streams, r store.Restored, preview bool) error {
	if r.Why == "" {
		return s.Printf("nodes accept this store: there is nothing to adopt\n")
	}
	verb := "adopted"
	if preview {
		verb = "would adopt"
	}
	err := s.Printf("%s the state of %s: %s\n", verb, r.Seen.Format(time.RFC3339), r.Why)
	if err == nil && len(r.Runs) > 0 {
		err = cli.Table(s.Out, "PIPELINE\tIN FLIGHT\tBEGUN\tNOT BEGUN", r.Runs, func(n store.RestoredRuns) cli.Row {
			return cli.Row{n.Pipeline, n.InFlight, n.Begun, n.Fresh}
		})
	}
	if err == nil && len(r.InFlight) > 0 {
		err = cli.Table(s.Out, "RUN IN FLIGHT\tPIPELINE\tKEY\tACCEPTED", r.InFlight[:min(len(r.InFlight), shownInFlight)],
			func(n store.RestoredRun) cli.Row {
				return cli.Row{n.Run, n.Pipeline, cli.Dash(n.Key), cli.Time(n.Accepted)}
			})
	}
	if err == nil && len(r.InFlight) > shownInFlight {
		err = s.Printf("... and more: --format json lists up to %d\n", store.RestoredInFlight)
	}
	if err == nil && len(r.Tasks) > 0 {
		err = cli.Table(s.Out, "TASKS WITH WORKERS\tTASKS", r.Tasks, func(n store.RestoredTasks) cli.Row { return cli.Row{n.Type, n.Tasks} })
	}
	if err == nil && len(r.Triggers) > 0 {
		err = cli.Table(s.Out, "TRIGGER\tLAST FIRED", r.Triggers, func(n store.RestoredTrigger) cli.Row { return cli.Row{n.Trigger, n.Last} })
	}
	next := "Start the nodes. Nodes that still run from before end with exit code 3: start them again.\n"
	if preview {
		next = "To accept it: procaas store adopt without --dry-run, with a --reason\n"
	}
	return cmp.Or(err, s.Printf("%s", next))
}
