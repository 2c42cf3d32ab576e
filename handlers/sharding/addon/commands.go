package addon

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/template"
	"procaas/handlers/sharding/transfers"
)

func shardCommand() *cobra.Command {
	c := cli.Group(&cobra.Command{
		Use:   "shard",
		Short: "Find the shards of keys, move keys, and manage shards",
		Long: `shard asks a server about its shard maps: which shard has a key, how the shards and
their hosts are, and what keeps a shard from being used. It also closes shards for new
keys, drains shards, and moves keys.`,
	},
		shardList(), shardShow(), shardResolve(), shardCheck(), shardAdd(), shardEnroll(), shardMove(),
		shardSet("close MAP SHARD", "Stop a shard from taking new keys",
			func(why string) remote.ShardChangeRequest { return remote.ShardChangeRequest{Closed: &why} }),
		shardSet("drain MAP SHARD", "Move all keys off a shard",
			func(why string) remote.ShardChangeRequest { return remote.ShardChangeRequest{Draining: &why} }),
		shardOpen(), shardRemove(),
		shardRegroup("split MAP KEY", "Split a placement in two, on the same shard",
			`split divides a placement in two on the same shard. You can then move the new part
with shard move. In a map by range, it divides the range of keys at KEY. In other
maps, KEY gets a placement of its own. Writers wait for some milliseconds.`, "5000"),
		shardRegroup("merge MAP KEY", "Merge a placement back into the one it was split from",
			`merge ends the placement of KEY. Its rows belong again to the placement that it was
split from. In a map by range, merge ends the range that begins at KEY, and its keys
join the range before it. Both placements must be on the same shard, and neither may
have a transfer that runs or is observed. Writers wait for some milliseconds.`, "42/inbox"),
	)
	c.AddCommand(shardTransferCommands()...)
	return c
}

// shardList lists maps, or with an argument the shards of a map.
func shardList() *cobra.Command {
	c := &cobra.Command{
		Use: "list [MAP]", Short: "List the shard maps, or the shards of one", Args: cobra.MaximumNArgs(1),
		Example: "  procaas shard list\n  procaas shard list mail --format json",
	}
	return cli.Formatted(c, func(q *cli.Call) error {
		if len(q.Args) == 0 {
			return listShardMaps(q)
		}
		shards, err := remote.Shards(q.Ctx, q.Client, q.Args[0])
		if err != nil {
			return err
		}
		return cli.ShowTable(q, "SHARD\tCLASS\tMASTER\tKEYS\tUSAGE\tREGISTRATION\tTRANSFER\tNOTE", shards, func(x transfers.ShardView) cli.Row {
			return cli.Row{
				x.ID, x.Class, cli.Dash(x.Master), x.Placements, cli.Percent(x.Usage), openOr(x.Registration), openOr(x.Transfer),
				cli.Dash(shardNote(x)),
			}
		})
	})
}

func listShardMaps(q *cli.Call) error {
	maps, err := remote.ShardMaps(q.Ctx, q.Client)
	if err != nil {
		return err
	}
	return cli.ShowTable(q, "MAP\tKEY\tSTRATEGY\tSHARDS\tKNOWN\tOWNER", maps, func(m transfers.ShardMapView) cli.Row {
		return cli.Row{m.ID, strings.Join(m.Key, "/"), m.Strategy, m.Shards, m.Loaded, cli.Dash(m.Owner)}
	})
}

// openOr formats a flag.
func openOr(open bool) string {
	if open {
		return "open"
	}
	return "closed"
}

// shardNote describes the condition of a shard.
func shardNote(x transfers.ShardView) string {
	var notes []string
	for _, n := range []struct{ prefix, text string }{{"", x.Problem}, {"closed: ", x.Closed}, {"draining: ", x.Draining}} {
		if n.text != "" {
			notes = append(notes, n.prefix+n.text)
		}
	}
	if x.Draining != "" && x.Placements > 0 {
		notes = append(notes, fmt.Sprintf("empty in about %v", max(time.Minute, (time.Duration(x.DrainSeconds)*time.Second).Round(time.Minute))))
	}
	return strings.Join(notes, "; ")
}

// shardOf returns a shard. The API lists only all shards of a map.
func shardOf(q *cli.Call, shardMap, id, otherwise string) (transfers.ShardView, error) {
	shards, err := remote.Shards(q.Ctx, q.Client, shardMap)
	if err != nil {
		return transfers.ShardView{}, err
	}
	at := slices.IndexFunc(shards, func(x transfers.ShardView) bool { return x.ID == id })
	if at < 0 {
		return transfers.ShardView{}, cli.Usagef("map %s has no shard %q%s", shardMap, id, otherwise)
	}
	return shards[at], nil
}

func shardShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show MAP SHARD", Short: "Show a shard and its hosts", Args: cobra.ExactArgs(2), Example: "  procaas shard show mail s1",
	}
	return cli.Shows(c, func(q *cli.Call) (transfers.ShardView, error) {
		return shardOf(q, q.Args[0], q.Args[1], "; procaas shard list "+q.Args[0]+" lists them")
	}, printShard)
}

// printShard prints a shard as it is or would be.
func printShard(q *cli.Call, x transfers.ShardView) error {
	fmt.Fprintf(q.Out, "shard %s of %s, class %s: %d keys, %.0f %% of %d MiB, load %.0f %%\nregistration %s, transfer %s\n", x.ID, x.Map,
		x.Class, x.Placements, 100*x.Usage, x.Capacity>>20, 100*x.Load, openOr(x.Registration), openOr(x.Transfer))
	if note := shardNote(x); note != "" {
		fmt.Fprintln(q.Out, note)
	}
	header := "HOST\tDC\tROLE\tALIVE\tTIMELINE\tLAG\tBUSY\tCONNECTIONS\tERROR"
	return cli.Table(q.Out, header, x.Hosts, func(h transfers.ShardHostView) cli.Row {
		return cli.Row{
			h.Address, cli.Dash(h.DC), h.Role, h.Alive, h.Timeline, time.Duration(h.LagMS) * time.Millisecond, h.Load, connectionsText(h),
			cli.Dash(h.Error),
		}
	})
}

// connectionsText formats how many connections of a host are in use.
func connectionsText(h transfers.ShardHostView) string {
	if h.MaxConnections == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", h.Connections, h.MaxConnections)
}

// shardResolve asks like a service, but never places a key, since it must change nothing.
func shardResolve() *cobra.Command {
	c := &cobra.Command{
		Use: "resolve MAP KEY", Short: "Show where a key lives", Args: cobra.ExactArgs(2),
		Long: "resolve shows where a key lives and which hosts to try, with the answer that services\nget. It does not " +
			"register the key.",
		Example: "  procaas shard resolve mail 42\n  procaas shard resolve mail 42/archive --mode replica --max-lag 2s --dc a",
	}
	var ask transfers.ShardQuestion
	flags := c.Flags()
	flags.StringVar(&ask.Mode, "mode", transfers.ShardMaster, "master, replica or any")
	flags.DurationVar(&ask.MaxLag, "max-lag", 0, "the largest lag of a replica; 0 for any")
	flags.StringVar(&ask.DC, "dc", "", "the data centre that asks")
	return cli.Shows(c, func(q *cli.Call) (transfers.ShardAnswer, error) {
		ask.Key, ask.Known = q.Args[1], true
		return remote.ResolveShard(q.Ctx, q.Client, q.Args[0], ask)
	}, func(q *cli.Call, a transfers.ShardAnswer) error {
		moving := ""
		if a.Moving {
			moving = ", which is being moved"
		}
		return q.Printf("%s lives on %s (%s), by the placement %s at epoch %d%s\n%s\n", a.Key, a.Shard, a.Class, a.Placement, a.Epoch,
			moving, a.DSN)
	})
}

// shardCheck exits with 1 if there is an error among the findings, for scripts.
func shardCheck() *cobra.Command {
	c := &cobra.Command{
		Use: "check MAP [SHARD]", Short: "Check the tables of the shards", Args: cobra.RangeArgs(1, 2),
		Long: `check reads the settings and the catalog of each shard, and changes nothing. Each
finding names the table, what would happen, and how to mend it. enroll does the same
check first, and changes nothing on a shard while an error is open. A warning holds
nothing up.

check exits with 1 if there is an error.`,
		Example: "  procaas shard check mail\n  procaas shard check mail s1 --format json",
	}
	return cli.Formatted(c, func(q *cli.Call) error {
		shard := ""
		if len(q.Args) > 1 {
			shard = q.Args[1]
		}
		found, err := remote.CheckShards(q.Ctx, q.Client, q.Args[0], shard)
		if err == nil {
			err = q.Show(found, func() error { printCheck(q, found); return nil })
		}
		return cmp.Or(err, cli.FindingsIf(slices.ContainsFunc(found.Findings, func(f transfers.ShardFinding) bool {
			return f.Level == transfers.FindingError
		})))
	})
}

// printCheck prints each finding with its effect and its mend below it.
func printCheck(q *cli.Call, found transfers.ShardCheck) {
	if len(found.Findings) == 0 {
		fmt.Fprintln(q.Out, "no findings")
	}
	for _, f := range found.Findings {
		where := f.Shard
		if f.Table != "" {
			where += ", table " + f.Table
		}
		fmt.Fprintf(q.Out, "%s: %s: %s\n  effect: %s\n  mend:   %s\n", f.Level, where, f.Problem, f.Effect, f.Mend)
	}
}

// shardAdd connects to the databases itself: the server's role may not create roles, and the server takes no SQL.
func shardAdd() *cobra.Command {
	c := &cobra.Command{
		Use: "add MAP SHARD", Short: "Make a new shard from an empty database", Args: cobra.ExactArgs(2),
		Long: `add makes a new shard in one step. First declare it in the map and reload.
It takes no keys yet. Then add copies the roles and the schema of another shard into its
empty database, with the rights on the database and its settings. It gives sequences a
range of their own, and enrolls the shard. From then on it takes new keys. Rows are not
copied: add lists tables with rows that no map moves, since all shards may share them.

add connects to both masters itself, and runs pg_dump. The role of --to must be allowed
to create roles. Passwords are read from the addresses, from PGPASSWORD or ~/.pgpass.
If add is interrupted, repeat it. It exits with 1 if the shard cannot be enrolled.`,
		Example: "  procaas shard add mail s3 --from postgres://postgres@db1/mail --to postgres://postgres@db3/mail",
	}
	var o template.Options
	c.Flags().StringVar(&o.From, "from", "", "address of the database of another shard of the map (required)")
	c.Flags().StringVar(&o.To, "to", "", "address of the empty database of the new shard (required)")
	return cli.Formatted(c, func(q *cli.Call) error {
		if o.From == "" || o.To == "" {
			return cli.Usagef("shard add needs --from and --to")
		}
		x, err := shardOf(q, q.Args[0], q.Args[1], "; declare it in the map and reload first")
		if err != nil {
			return err
		}
		o.Place = x.Place
		made, err := template.Copy(q.Ctx, o)
		if err != nil {
			return fmt.Errorf("shard %s: %w", x.ID, err)
		}
		e, err := remote.EnrollShard(q.Ctx, q.Client, q.Args[0], q.Args[1])
		if err != nil {
			return fmt.Errorf("shard %s has its schema; enroll it: %w", x.ID, err)
		}
		added := addition{ShardEnrollment: e, Copied: made.Copied, Roles: made.Roles, NoPassword: made.Locked, Ranges: made.Ranges,
			Rights: made.Rights, Shared: made.Shared}
		added.Warnings = append(added.Warnings, made.Warnings...)
		err = q.Show(added, func() error { printAddition(q, added); return nil })
		return cmp.Or(err, cli.FindingsIf(len(e.Reasons) > 0))
	})
}

// An addition says what add has done.
type addition struct {
	transfers.ShardEnrollment

	Copied     bool     `json:"copied"`
	Roles      []string `json:"roles"`
	NoPassword []string `json:"no_password"`
	Ranges     []string `json:"ranges"`
	Rights     []string `json:"rights"`
	Shared     []string `json:"shared"`
}

func printAddition(q *cli.Call, x addition) {
	if !x.Copied {
		fmt.Fprintln(q.Out, "the schema is there already")
	} else {
		fmt.Fprintf(q.Out, "the schema is copied, with %d new roles\n", len(x.Roles))
	}
	for _, role := range x.NoPassword {
		fmt.Fprintf(q.Out, "role %s has no password there: set one if it logs in\n", role)
	}
	for _, sql := range x.Ranges {
		fmt.Fprintln(q.Out, "done: "+sql)
	}
	for _, sql := range x.Rights {
		fmt.Fprintln(q.Out, "done: "+sql)
	}
	if len(x.Shared) > 0 {
		fmt.Fprintf(q.Out, "no rows are copied. If all shards share rows of these tables, copy them:\n  pg_dump --data-only --table=%s FROM | psql TO\n",
			strings.Join(x.Shared, " --table="))
	}
	printEnrollment(q, x.ShardEnrollment)
}

// shardEnroll exits with 1 if the shard has refused, for scripts.
func shardEnroll() *cobra.Command {
	c := &cobra.Command{
		Use: "enroll MAP SHARD", Short: "Install the fence and the publications on a shard", Args: cobra.ExactArgs(2),
		Long: `enroll prepares a shard. It creates the schema procaas with the fence that refuses
writers with an old epoch, fences for the keys on the shard, and the publications for
moving keys. You can repeat it. Repeat it after each change of the map's tables.

enroll first checks the tables, like shard check. Then it tries to update, insert and
delete rows of each table, and rolls that back. It does not change a shard that cannot
be used. It lists all reasons and exits with 1.`,
		Example: "  procaas shard enroll mail s1",
	}
	return cli.Formatted(c, func(q *cli.Call) error {
		e, err := remote.EnrollShard(q.Ctx, q.Client, q.Args[0], q.Args[1])
		if err == nil {
			err = q.Show(e, func() error { printEnrollment(q, e); return nil })
		}
		return cmp.Or(err, cli.FindingsIf(len(e.Reasons) > 0))
	})
}

// printEnrollment prints all reasons at once, so that they can be fixed in one go.
func printEnrollment(q *cli.Call, e transfers.ShardEnrollment) {
	for _, w := range e.Warnings {
		fmt.Fprintln(q.Out, "warning: "+w)
	}
	if len(e.Reasons) == 0 {
		fmt.Fprintf(q.Out, "%s is ready: %d publications, %d new fences\n", e.Shard, len(e.Publications), e.Fences)
		return
	}
	fmt.Fprintf(q.Out, "%s cannot be used for %s:\n", e.Shard, e.Map)
	for _, r := range e.Reasons {
		fmt.Fprintln(q.Out, "  - "+r)
	}
}

// transferEvent is the event type that starts a transfer.
const transferEvent = "shard-transfer"

// shardMove submits an event and does not wait, since a transfer may take hours and its run can be followed. It
// names the placement, which may be wider than the given key.
// mostGrace is the longest grace that shard.plan takes.
const mostGrace = 48 * time.Hour

func shardMove() *cobra.Command {
	c := &cobra.Command{
		Use: "move MAP KEY SHARD", Aliases: []string{"transfer"}, Short: "Move a key to another shard", Args: cobra.ExactArgs(3),
		Long: "move submits the event " + transferEvent +
			", which starts a transfer, and prints its run.\nThe key moves while services write to it. While shard check " +
			"finds an error in the\ntables of its shards, move lists the findings, changes nothing and exits with 1.",
		Example: "  procaas shard move mail 42 s2\n  procaas shard move mail 42 s2 --grace 0s",
	}
	var method string
	var grace time.Duration
	var dryRun bool
	c.Flags().StringVar(&method, "method", "", "stream or lock-copy-switch (default: the best one that can be used)")
	c.Flags().DurationVar(&grace, "grace", 15*time.Minute, "how long the key can be rolled back with what was written since; "+
		"meanwhile the target keeps a replication slot. 0s gives it back at the switch")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, and show what would move")
	return cli.Formatted(c, func(q *cli.Call) error {
		target := q.Args[2]
		if grace < 0 || grace > mostGrace {
			return cli.Usagef("--grace %s: want 0s to %s", grace, mostGrace)
		}
		a, err := remote.ResolveShard(q.Ctx, q.Client, q.Args[0], transfers.ShardQuestion{Key: q.Args[1], Mode: transfers.ShardAny, Known: true})
		if err != nil {
			return err
		}
		// The server resolves the key first, so that an unknown key fails here and not in a run later.
		if a.Shard == target {
			return cli.Usagef("%s lives on %s already", a.Placement, a.Shard)
		}
		if err := checkTarget(q, a.Map, target); err != nil {
			return err
		}
		if err := checkTables(q, a.Map, a.Shard, target); err != nil {
			return err
		}
		plan := map[string]any{"map": a.Map, "key": a.Placement, "from": a.Shard, "to": target, "dry_run": dryRun}
		if dryRun {
			return q.Tell(plan, "would move %s from %s to %s\n", a.Placement, a.Shard, target)
		}
		payload := map[string]any{"map": a.Map, "key": a.Placement, "target": target}
		if method != "" {
			payload["method"] = method
		}
		if c.Flags().Changed("grace") {
			payload["grace"] = grace.String()
		}
		receipt, err := q.SubmitEvent(q.Ctx, wire.Event{Type: transferEvent, Payload: payload})
		if err != nil {
			return err
		}
		plan["run"] = receipt.Run
		return q.Tell(plan, "%s moves from %s to %s: run %s\n", a.Placement, a.Shard, target, receipt.Run)
	})
}

// checkTables lists the findings because of which the transfer would be refused. Submitters may move keys but not
// check shards. For them the run reports the findings.
func checkTables(q *cli.Call, shardMap string, shards ...string) error {
	var all transfers.ShardCheck
	for _, shard := range shards {
		found, err := remote.CheckShards(q.Ctx, q.Client, shardMap, shard)
		if forbidden(err) {
			return nil
		}
		if err != nil {
			return err
		}
		all.Map, all.Findings = found.Map, append(all.Findings, found.Findings...)
	}
	all.Findings = slices.DeleteFunc(all.Findings, func(f transfers.ShardFinding) bool { return !f.StopsTransfers })
	if len(all.Findings) == 0 {
		return nil
	}
	err := q.Show(all, func() error { printCheck(q, all); return nil })
	return cmp.Or(err, cli.FindingsIf(true))
}

func forbidden(err error) bool {
	refused, ok := errors.AsType[*problem.Problem](err)
	return ok && refused.Status == http.StatusForbidden
}

// checkTarget refuses an unknown shard before a run fails. Submitters may move keys but not list shards. For
// them the run reports the error.
func checkTarget(q *cli.Call, shardMap, target string) error {
	shards, err := remote.Shards(q.Ctx, q.Client, shardMap)
	if forbidden(err) {
		return nil
	}
	known := cli.Names(shards, func(x transfers.ShardView) string { return x.ID })
	if err != nil || slices.Contains(known, target) {
		return err
	}
	return cli.Usagef("map %s has no shard %q; %s", shardMap, target,
		cli.Meant(target, known, "did you mean %s?", "procaas shard list "+shardMap+" lists them"))
}

// shardSet requires a reason, which everyone who meets a closed shard sees.
func shardSet(use, short string, change func(why string) remote.ShardChangeRequest) *cobra.Command {
	word, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(2), Example: "  procaas shard " + word +
		` mail s1 --reason "new disks"`}
	reason := c.Flags().String("reason", "", "reason, for colleagues (required)")
	return setsShard(c, func() (remote.ShardChangeRequest, error) {
		if *reason == "" {
			return remote.ShardChangeRequest{}, cli.Usagef("shard %s needs --reason", word)
		}
		return change(*reason), nil
	})
}

// shardOpen undoes close and drain.
func shardOpen() *cobra.Command {
	none := ""
	return setsShard(&cobra.Command{
		Use: "open MAP SHARD", Short: "Reopen a closed or drained shard", Args: cobra.ExactArgs(2),
		Example: "  procaas shard open mail s1",
	}, func() (remote.ShardChangeRequest, error) {
		return remote.ShardChangeRequest{Closed: &none, Draining: &none}, nil
	})
}

// setsShard makes c change a shard and print it, or print what it would be.
func setsShard(c *cobra.Command, prepare func() (remote.ShardChangeRequest, error)) *cobra.Command {
	dryRun := c.Flags().Bool("dry-run", false, "change nothing, and show what it would affect")
	return cli.Shows(c, func(q *cli.Call) (x transfers.ShardView, err error) {
		change, err := prepare()
		if err != nil {
			return x, err
		}
		if !*dryRun {
			return remote.SetShard(q.Ctx, q.Client, q.Args[0], q.Args[1], change)
		}
		if x, err = shardOf(q, q.Args[0], q.Args[1], ""); err != nil {
			return x, err
		}
		if change.Closed != nil {
			x.Closed = *change.Closed
		}
		if change.Draining != nil && *change.Draining != "" {
			if err := checkTables(q, x.Map, x.ID); err != nil {
				return x, err
			}
		}
		if change.Draining != nil {
			x.Draining = *change.Draining
		}
		// Derived as on the server. What a reopened shard accepts depends on its declaration, which is unknown
		// here, so these fields stay.
		x.Registration = x.Registration && x.Closed == "" && x.Draining == ""
		x.Transfer = x.Transfer && x.Draining == ""
		return x, nil
	}, printShard)
}

// shardRemove exits with 1 if something may be left on a shard, for scripts.
func shardRemove() *cobra.Command {
	c := &cobra.Command{
		Use: "remove MAP", Short: "Remove what a former map has on its shards", Args: cobra.ExactArgs(1),
		Long: `remove deletes the fences, publications and replication slots of a map from its
shards. First take the map out of the files, and reload. Your tables keep their rows.
The store keeps the placements, which count again if the map comes back. Then enroll
its shards again.

With --forget, the store also deletes the map and its placements, even if a shard does
not answer. Without it, you can repeat the command until all shards have answered. It
exits with 1 if something may be left.`,
		Example: "  procaas shard remove oldmail --dry-run\n  procaas shard remove oldmail --reason 'merged into mail'",
	}
	ask := remote.ShardRemoveRequest{}
	c.Flags().StringVar(&ask.Reason, "reason", "", "reason, for colleagues")
	c.Flags().BoolVar(&ask.DryRun, "dry-run", false, "change nothing, and show what would be removed")
	c.Flags().BoolVar(&ask.Forget, "forget", false, "also delete the map and its placements from the store")
	return cli.Formatted(c, func(q *cli.Call) error {
		done, err := remote.RemoveShardMap(q.Ctx, q.Client, q.Args[0], ask)
		if err == nil {
			err = q.Show(done, func() error { return printRemoval(q, done) })
		}
		return cmp.Or(err, cli.FindingsIf(slices.ContainsFunc(done.Shards, func(x transfers.ShardRemains) bool { return x.Error != "" })))
	})
}

func printRemoval(q *cli.Call, done transfers.ShardRemoval) error {
	does := map[bool]string{true: "would remove", false: "removed"}[done.DryRun]
	for _, x := range done.Shards {
		if x.Error != "" {
			fmt.Fprintf(q.Out, "%s: not everything could be removed: %s\n", x.Shard, x.Error)
			continue
		}
		fmt.Fprintf(q.Out, "%s: %s %d fences, %d publications, %d slots\n", x.Shard, does, x.Fences, len(x.Publications), len(x.Slots))
	}
	if done.Forgotten {
		return q.Printf("the store has forgotten the map and its %d placements\n", done.Placements)
	}
	return q.Printf("the store keeps %d placements; --forget deletes them\n", done.Placements)
}

// shardRegroup makes split and merge, which differ only in words and addresses.
func shardRegroup(use, short, long, example string) *cobra.Command {
	verb, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ExactArgs(2), Example: "  procaas shard " + verb + " mail " +
		example + " --dry-run"}
	ask := remote.ShardRegroupRequest{}
	c.Flags().StringVar(&ask.Reason, "reason", "", "reason, for colleagues")
	c.Flags().BoolVar(&ask.DryRun, "dry-run", false, "change nothing, and show the result")
	return cli.Shows(c, func(q *cli.Call) (transfers.ShardRegroup, error) {
		ask.At = q.Args[1]
		return remote.RegroupShard(q.Ctx, q.Client, q.Args[0], verb, ask)
	}, func(q *cli.Call, done transfers.ShardRegroup) error {
		return q.Printf("%s\n", regroupedText(verb, done))
	})
}

// regroupedText describes the result of a split or merge.
func regroupedText(verb string, d transfers.ShardRegroup) string {
	does := map[bool]string{true: "would be", false: "is"}[d.DryRun]
	switch {
	case !d.Changed && !d.DryRun || d.Wide == d.Narrow:
		return fmt.Sprintf("%s is a placement of its own already, on %s", d.Narrow, d.Shard)
	case verb == "merge":
		return fmt.Sprintf("%s %s a part of %s, on %s", d.Narrow, does, d.Wide, d.Shard)
	}
	return fmt.Sprintf("%s %s split off %s, on %s", d.Narrow, does, d.Wide, d.Shard)
}
