package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/engine/api/cli"
	"procaas/engine/pgkit"
	"procaas/engine/postgres"
	"procaas/engine/sealed"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// A keyring is a store as the commands for its keys see it.
type keyring struct {
	*sealed.Vault
	close   func() error
	holders func(ctx context.Context, text string) (tables []string, err error)
}

// openKeys opens a store without its keys.
func openKeys(ctx context.Context, dsn, file string) (*keyring, error) {
	if err := checkDSN(dsn); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	if pgkit.IsDSN(dsn) {
		db, err := postgres.Open(ctx, dsn, postgres.Options{Addons: addons.Tables(), Cell: true, Log: log})
		if err != nil {
			return nil, fmt.Errorf("open store %s: %w", pgkit.Redact(dsn), err)
		}
		return &keyring{sealed.NewVault(db, file, log), db.Close, db.Holders}, nil
	}
	if !Exists(dsn) {
		return nil, cli.Usagef("there is no store %s", dsn)
	}
	_, path, _ := kindOf(dsn)
	db, err := sqlite.Open(ctx, path, sqlite.Options{Addons: addons.Tables()})
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dsn, err)
	}
	return &keyring{sealed.NewVault(db, file, log), db.Close, db.Holders}, nil
}

// keysCommand has the commands for the keys of an encrypted store.
func keysCommand() *cobra.Command {
	group := &cobra.Command{Use: "keys", Short: "Make and replace the keys of an encrypted store"}
	group.AddCommand(newKeyCommand(), listKeysCommand(), rotateKeysCommand(), stopKeysCommand(), removeKeyCommand())
	return group
}

func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new FILE",
		Short: "Add a key-encryption key to a file",
		Long: `new makes a file with a key-encryption key, for --encryption-keys. To a file that is there it adds
another key, which procaas store keys rotate uses from then on. Without this file, nobody can
read the store: keep a copy of it in another place than the backups of the store.`,
		Example: "  procaas store keys new keys.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := sealed.NewKey(args[0])
			if err != nil {
				return asUsage(err)
			}
			return cli.Of(c).Printf("%s has the key-encryption key %d. Keep a copy of the file apart from backups of the store.\n", args[0], f.Primary)
		},
	}
}

// keysFlag adds the flag that names a file of key-encryption keys.
func keysFlag(c *cobra.Command) *string {
	return c.Flags().String("encryption-keys", "", "file with the key-encryption keys (required)")
}

// withKeys makes a command that does something with the keys of a store. Unless it is bare, the store must have some.
func withKeys(
	c *cobra.Command, file *string, bare bool, do func(ctx context.Context, s cli.Streams, k *keyring, args []string) error,
) *cobra.Command {
	dsn := storeFlag(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		name := ""
		if file != nil {
			name = *file
			if name == "" {
				return cli.Usagef("want --encryption-keys FILE; procaas store keys new FILE makes one")
			}
		}
		k, err := openKeys(c.Context(), *dsn, name)
		if err != nil {
			return err
		}
		all, _, err := k.List(c.Context())
		if err == nil && len(all) == 0 && !bare {
			err = cli.Usagef("the store is not encrypted: a node with --encryption-keys begins that")
		}
		if err == nil {
			err = do(c.Context(), cli.Of(c), k, args)
		}
		return asUsage(errors.Join(err, k.close()))
	}
	return c
}

func listKeysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the data keys of a store",
		Long: "list shows the data keys, oldest first, each with the key-encryption key that it needs.\nNew data is sealed with the active one. " +
			"It needs no keys itself.",
		Example: "  procaas store keys list --store postgres://procaas@db/procaas",
		Args:    cobra.NoArgs,
	}
	format := cli.Format(c, "text", "json")
	type row struct {
		ID      string    `json:"id"`
		Use     string    `json:"use"`
		State   string    `json:"state"`
		KEK     uint32    `json:"key_encryption_key"`
		Created time.Time `json:"created"`
	}
	return withKeys(c, nil, true, func(ctx context.Context, s cli.Streams, k *keyring, _ []string) error {
		all, active, err := k.List(ctx)
		if err != nil {
			return err
		}
		rows := []row{}
		for _, one := range all {
			state := "for old data"
			if one.ID == active || one.Use == sealed.UseHashes {
				state = "active"
			}
			rows = append(rows, row{one.ID, one.Use, state, one.KEK, one.Created})
		}
		switch {
		case *format == "json":
			return s.PrintJSON(rows)
		case len(rows) == 0:
			return s.Printf("The store is not encrypted.\n")
		}
		return cli.Table(s.Out, "DATA KEY\tUSE\tSTATE\tKEY-ENCRYPTION KEY\tCREATED", rows, func(r row) cli.Row {
			return cli.Row{r.ID, r.Use, r.State, strconv.FormatUint(uint64(r.KEK), 10), r.Created.Format(time.RFC3339)}
		})
	})
}

func rotateKeysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Seal new data with a new data key",
		Long: `rotate makes a new data key for new data, and encrypts all data keys with the newest
key-encryption key of the file. What was stored before stays readable. First give the file to all
nodes. They take the new keys within 10 s. A node of a SQLite file must be stopped.`,
		Example: "  procaas store keys rotate --store postgres://procaas@db/procaas --encryption-keys keys.json",
		Args:    cobra.NoArgs,
	}
	file, reason := keysFlag(c), cli.Reason(c)
	return withKeys(c, file, false, func(ctx context.Context, s cli.Streams, k *keyring, _ []string) error {
		if _, err := k.Rotate(ctx, store.Actor{Name: operator(), Reason: *reason}); err != nil {
			return err
		}
		all, active, err := k.List(ctx)
		if err != nil {
			return err
		}
		return s.Printf("new data is sealed with the data key %s; all data keys need the key-encryption key %d now\n", active, all[len(all)-1].KEK)
	})
}

func stopKeysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stop",
		Short: "Store new data as it is again",
		Long: `stop lets nodes store new data without encryption. They need their keys further on, for what is
sealed. When retention has removed that, procaas store keys remove removes the data keys.`,
		Example: "  procaas store keys stop --store postgres://procaas@db/procaas",
		Args:    cobra.NoArgs,
	}
	reason := cli.Reason(c)
	return withKeys(c, nil, false, func(ctx context.Context, s cli.Streams, k *keyring, _ []string) error {
		if err := k.Stop(ctx, store.Actor{Name: operator(), Reason: *reason}); err != nil {
			return err
		}
		return s.Printf("new data is not encrypted\n")
	})
}

// removeAfter is for how long the active data key must have been active, or encryption stopped, before one is removed. By then, no node seals
// with another one.
const removeAfter = time.Minute

func removeKeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a data key that nothing needs any more",
		Long: `remove removes a data key, if nothing in the store is sealed with it. It reads the whole store to
find out. Then a key-encryption key that no data key needs can leave the file, too:
--from FILE takes ID for one of its keys.`,
		Example: "  procaas store keys remove 3f8728172217a8c3 --store postgres://procaas@db/procaas\n" +
			"  procaas store keys remove 286656333 --from keys.json --store postgres://procaas@db/procaas",
		Args: cobra.ExactArgs(1),
	}
	from, reason := c.Flags().String("from", "", "file of key-encryption keys, to remove one from it"), cli.Reason(c)
	return withKeys(c, nil, false, func(ctx context.Context, s cli.Streams, k *keyring, args []string) error {
		all, active, err := k.List(ctx)
		if err != nil {
			return err
		}
		if *from != "" {
			return removeFromFile(s, *from, args[0], all)
		}
		settled, err := k.Settled(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(one sealed.DataKey) bool { return one.ID == args[0] })
		switch {
		case at < 0:
			return cli.Usagef("the store has no data key %s; procaas store keys list shows those that it has", args[0])
		case args[0] == active:
			return cli.Usagef("new data is sealed with %s: first procaas store keys rotate, or stop", args[0])
		case time.Since(settled) < removeAfter:
			return cli.Usagef("a node may still seal with %s: wait a minute", args[0])
		}
		tables, err := k.holders(ctx, "sealed:"+args[0])
		if err != nil {
			return err
		}
		if len(tables) > 0 {
			return cli.Usagef("data key %s is needed by rows of %s: wait until retention has removed them, or erase their keys", args[0],
				strings.Join(tables, ", "))
		}
		if err := k.Remove(ctx, args[0], store.Actor{Name: operator(), Reason: *reason}); err != nil {
			return err
		}
		return s.Printf("the data key %s is gone\n", args[0])
	})
}

// removeFromFile removes a key-encryption key from a file.
func removeFromFile(s cli.Streams, file, id string, all []sealed.DataKey) error {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return cli.Usagef("want the number of a key-encryption key, have %q", id)
	}
	for _, one := range all {
		if one.KEK == uint32(n) {
			return cli.Usagef("data key %s needs the key-encryption key %d: first procaas store keys rotate", one.ID, n)
		}
	}
	if _, err := sealed.RemoveKey(file, uint32(n)); err != nil {
		return err
	}
	return s.Printf("%s no longer has the key-encryption key %d; other stores may still need it\n", file, n)
}

// asUsage makes what is wrong with keys a mistake of the caller, which no other try mends.
func asUsage(err error) error {
	if _, ok := errors.AsType[*sealed.KeyError](err); ok {
		return cli.Usagef("%w", err)
	}
	return err
}
