package stores

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/engine/api/cli"
	"procaas/engine/pgkit"
	"procaas/engine/postgres"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// checkCommand tries what a store needs.
func checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Try what a store needs of its server or file",
		Long: `check connects to a store, and tries each feature that nodes need there. It looks for settings
of the server and rights of the role that would stop nodes or slow them down, and says what to do.
It changes nothing: what it creates is rolled back. Of SQLite it reads the whole file, also beside
a running node, and names damaged pages.

Exit codes: 0 nodes can work, 1 they cannot, 3 the store cannot be reached.`,
		Example: "  procaas store check --store postgres://procaas@db/procaas\n  procaas store check --store sqlite:store.db --format json",
		Args:    cobra.NoArgs,
	}
	dsn := storeFlag(c)
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		all, err := Examine(c.Context(), *dsn)
		if err != nil {
			return fmt.Errorf("check %s: %w", pgkit.Redact(*dsn), err)
		}
		s := cli.Of(c)
		if *format == "json" {
			err = s.PrintJSON(all)
		} else {
			err = WriteChecks(s, all)
		}
		if err == nil && slices.ContainsFunc(all, func(c store.Check) bool { return c.Level == store.CheckRefused }) {
			err = cli.ErrFindings
		}
		return err
	}
	return c
}

// Examine returns what a store needs, and what came of trying it.
func Examine(ctx context.Context, dsn string) ([]store.Check, error) {
	if err := checkDSN(dsn); err != nil {
		return nil, err
	}
	if _, path, ok := kindOf(dsn); ok {
		return sqlite.Examine(ctx, path, addons.Tables()...)
	}
	return postgres.Examine(ctx, dsn, addons.Tables()...)
}

// WriteChecks prints what was tried, and below it what to do.
func WriteChecks(s cli.Streams, all []store.Check) error {
	err := cli.Table(s.Out, "CHECK\tRESULT\tFOUND", all, func(c store.Check) cli.Row { return cli.Row{c.Name, c.Level, c.Found} })
	for _, c := range all {
		if err == nil && c.Remedy != "" {
			err = s.Printf("%s: %s\n", c.Name, c.Remedy)
		}
	}
	return err
}

// backupCommand copies a store.
func backupCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backup COPY",
		Short: "Copy the file of a SQLite store, also while its node runs",
		Long: `backup writes a copy of a store's file, with all that was acknowledged before it began. The node
may run on: it refuses nothing meanwhile. The copy is checked page by page, and gets its name when
it is on the disk. Only its owner may read it, because it has payloads and hashes of tokens.

PostgreSQL has better tools: continuous archiving, or pg_dump.`,
		Example: "  procaas store backup --store sqlite:store.db store.bak",
		Args:    cobra.ExactArgs(1),
	}
	dsn := storeFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkDSN(*dsn); err != nil {
			return err
		}
		path, ok := strings.CutPrefix(*dsn, "sqlite:")
		if !ok {
			return cli.Usagef("backup copies files of SQLite; for PostgreSQL use continuous archiving, or pg_dump -Fc -f %s", args[0])
		}
		if err := sqlite.Backup(c.Context(), path, args[0]); err != nil {
			return fmt.Errorf("back up: %w", err)
		}
		return cli.Of(c).Printf("%s has a copy of %s, checked\n", args[0], path)
	}
	return c
}
