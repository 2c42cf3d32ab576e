// Package addon plugs statements in databases into procaas.
package addon

import (
	"context"

	"github.com/spf13/cobra"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/diff"
	"procaas/handlers/sql"
	"procaas/handlers/sql/language"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "sql", Sections: []tree.Section{language.Section()}, Compare: compare, New: newProcess,
		Types:    func() []engine.HandlerType { return sql.Types(nil) },
		Commands: func(addon.Tools) []addon.Command { return []addon.Command{{Command: sqlCommand()}} },
	}
}

// newProcess returns the databases of one process.
func newProcess() *addon.Process {
	var pool *sql.Pool // nil before Open
	return &addon.Process{
		Open: func(_ context.Context, h *addon.Host) (*addon.Part, error) {
			pool = sql.NewPool(sql.Options{Secrets: h.Secrets, Dial: h.Targets.Dial, Metrics: h.Metrics, Log: h.Log})
			return &addon.Part{
				Types: sql.Types(pool),
				Adopt: func(_ context.Context, b *tree.Bundle) error {
					pool.Keep(b)
					return nil
				},
				Degraded: pool.Degraded,
				Run: func(ctx context.Context, _ addon.Running) error {
					pool.Run(ctx)
					return nil
				},
			}, nil
		},
		Close: func() error {
			if pool != nil {
				pool.Close()
			}
			return nil
		},
	}
}

// compare compares databases. It warns of changes after which a repeat finds no key.
func compare(c *diff.Comparison, a, b *tree.Bundle) {
	diff.List(c, "database", language.All(a), language.All(b), diff.Edits[*language.Database]{
		Name: func(d *language.Database) string { return d.ID },
		Both: func(old, now *language.Database) {
			c.Warned("database", now.ID, diff.Fields(old, now), func(f diff.FieldChange) string {
				switch f.Field {
				case "address":
					return "a call that was applied in the old place, and is repeated, is applied in the new one again"
				case "keep-keys":
					return "a call that is repeated after this time is applied again"
				}
				return ""
			})
		},
	})
}

func sqlCommand() *cobra.Command {
	c := &cobra.Command{Use: "sql", Short: "Prepare databases for statements of flows"}
	c.AddCommand(ddlCommand())
	return c
}

func ddlCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ddl", Short: "Print the table that databases of flows need", Args: cobra.NoArgs,
		Long: `ddl prints the table procaas_applied, by which a statement of a flow is applied once. Make it
in each database that handlers of the type sql write, in the first schema of its search path.
The user of the node needs the rights to select, insert, update and delete there.`,
		Example: "  procaas sql ddl | psql postgres://db.internal/billing",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := cli.Of(c).Out.Write([]byte(sql.DDL))
			return err
		},
	}
}
