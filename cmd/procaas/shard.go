package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
)

func shardCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "shard",
		Short: "Ask shard maps where keys live, and look after shards",
		Long: `shard asks a server about its shard maps: which shard has a key, what the shards
and their hosts do, and what keeps a shard from being used. It closes shards for new
keys, drains them, and moves keys.`,
		Args: onlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f clientFlags
	f.add(c)
	c.AddCommand(
		shardList(s, &f), shardShow(s, &f), shardResolve(s, &f), shardEnroll(s, &f), shardMove(s, &f),
		shardSet(s, &f, "close MAP SHARD", "Take no new keys on a shard",
			func(why string) wire.ShardChangeRequest { return wire.ShardChangeRequest{Closed: &why} }),
		shardSet(s, &f, "drain MAP SHARD", "Let all keys leave a shard",
			func(why string) wire.ShardChangeRequest { return wire.ShardChangeRequest{Draining: &why} }),
		shardOpen(s, &f),
		shardRegroup(s, &f, "split MAP KEY", "Give a part of a placement one of its own",
			`split gives a part of a placement one of its own on the same shard, which shard move
moves then. In a map by range, the stretch of keys that KEY lies in is divided there;
in others the key gets a placement of its own. Writers are held back for some
milliseconds.`, "5000"),
		shardRegroup(s, &f, "merge MAP KEY", "Make a part that was split off part of the rest again",
			`merge ends the placement that KEY has of its own: its rows belong to the placement that
it was split off. In a map by range it ends the stretch of keys that begins at KEY: its
keys belong to the stretch before it. Both must be on the same shard, and no transfer of
either may be under way or observed. Writers are held back for some milliseconds.`, "42/inbox"),
	)
	c.AddCommand(shardTransferCommands(s, &f)...)
	return c
}

// shardList lists maps without an argument, and the shards of a map with one.
func shardList(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "list [MAP]", Short: "List the shard maps, or the shards of one", Args: cobra.MaximumNArgs(1),
		Example: "  procaas shard list\n  procaas shard list mail --format json",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		if len(args) == 0 {
			return listShardMaps(c, s, f, out)
		}
		shards, err := f.client().Shards(c.Context(), args[0])
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": shards, "next": nil})
		}
		w := newTable(s.out, "SHARD\tCLASS\tMASTER\tKEYS\tUSAGE\tREGISTRATION\tTRANSFER\tNOTE")
		for _, x := range shards {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.0f %%\t%s\t%s\t%s\n", x.ID, x.Class, dash(x.Master), x.Placements, 100*x.Usage,
				openOr(x.Registration), openOr(x.Transfer), dash(shardNote(x)))
		}
		return w.Flush()
	})
	return c
}

func listShardMaps(c *cobra.Command, s streams, f *clientFlags, out string) error {
	maps, err := f.client().ShardMaps(c.Context())
	if err != nil {
		return err
	}
	if out == "json" {
		return printJSON(s.out, map[string]any{"items": maps, "next": nil})
	}
	w := newTable(s.out, "MAP\tKEY\tSTRATEGY\tSHARDS\tKNOWN\tOWNER")
	for _, m := range maps {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", m.ID, strings.Join(m.Key, "/"), m.Strategy, m.Shards, m.Loaded, dash(m.Owner))
	}
	return w.Flush()
}

// openOr puts a flag into words.
func openOr(open bool) string {
	if open {
		return "open"
	}
	return "closed"
}

// shardNote says what people should know of a shard.
func shardNote(x engine.ShardView) string {
	var notes []string
	for _, n := range []struct{ prefix, text string }{{"", x.Problem}, {"closed: ", x.Closed}, {"draining: ", x.Draining}} {
		if n.text != "" {
			notes = append(notes, n.prefix+n.text)
		}
	}
	return strings.Join(notes, "; ")
}

// shardShow prints one shard. The API has the shards of a map only, so it is looked for among them.
func shardShow(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "show MAP SHARD", Short: "Show a shard and its hosts", Args: cobra.ExactArgs(2),
		Example: "  procaas shard show mail s1",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		shards, err := f.client().Shards(c.Context(), args[0])
		if err != nil {
			return err
		}
		for _, x := range shards {
			if x.ID == args[1] {
				return printShard(s, x, out)
			}
		}
		return usagef("map %s has no shard %q; procaas shard list %s lists them", args[0], args[1], args[0])
	})
	return c
}

// printShard shows a shard as it is now, or as it would be.
func printShard(s streams, x engine.ShardView, format string) error {
	if format == "json" {
		return printJSON(s.out, x)
	}
	fmt.Fprintf(s.out, "shard %s of %s, class %s: %d keys, %.0f %% of %d MiB, load %.0f %%\nregistration %s, transfer %s\n", x.ID, x.Map,
		x.Class,
		x.Placements, 100*x.Usage, x.Capacity>>20, 100*x.Load, openOr(x.Registration), openOr(x.Transfer))
	if note := shardNote(x); note != "" {
		fmt.Fprintln(s.out, note)
	}
	w := newTable(s.out, "HOST\tDC\tROLE\tALIVE\tTIMELINE\tLAG\tBUSY\tCONNECTIONS\tERROR")
	for _, h := range x.Hosts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%d\t%s\t%d\t%s\t%s\n", h.Address, dash(h.DC), h.Role, h.Alive, h.Timeline,
			time.Duration(h.LagMS)*time.Millisecond, h.Load, connectionsText(h), dash(h.Error))
	}
	return w.Flush()
}

// connectionsText tells how many of a host's connections are taken.
func connectionsText(h engine.ShardHostView) string {
	if h.MaxConnections == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", h.Connections, h.MaxConnections)
}

// shardResolve asks as services do, but never places a key: to look must change nothing.
func shardResolve(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "resolve MAP KEY", Short: "Tell where a key lives", Args: cobra.ExactArgs(2),
		Long:    "resolve tells where a key lives and which hosts to try, as services are told. It\nregisters no key.",
		Example: "  procaas shard resolve mail 42\n  procaas shard resolve mail 42/archive --mode replica --max-lag 2s --dc a",
	}
	var q engine.ShardQuestion
	flags := c.Flags()
	flags.StringVar(&q.Mode, "mode", engine.ShardMaster, "master, replica or any")
	flags.DurationVar(&q.MaxLag, "max-lag", 0, "how far a replica may be behind; 0 is any")
	flags.StringVar(&q.DC, "dc", "", "the data centre of the asker")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		q.Key, q.Known = args[1], true
		a, err := f.client().ResolveShard(c.Context(), args[0], q)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, a)
		}
		moving := ""
		if a.Moving {
			moving = ", which is being moved"
		}
		fmt.Fprintf(s.out, "%s lives on %s (%s), by the placement %s at epoch %d%s\n%s\n", a.Key, a.Shard, a.Class, a.Placement, a.Epoch,
			moving, a.DSN)
		return nil
	})
	return c
}

// shardEnroll exits with 1 when the shard has refused, so that scripts see it without reading reasons.
func shardEnroll(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "enroll MAP SHARD", Short: "Install the fence and the publications on a shard", Args: cobra.ExactArgs(2),
		Long: `enroll prepares a shard: the schema procaas with the fence, which refuses writers who
are behind, fences for the keys that live there, and the publications by which keys
move. It may be repeated, and must be after a change of the map's tables.

A shard that cannot be used is left as it is, with all reasons; the exit code is 1.`,
		Example: "  procaas shard enroll mail s1",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		e, err := f.client().EnrollShard(c.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		if out == "json" {
			err = printJSON(s.out, e)
		} else {
			printEnrollment(s, e)
		}
		if err == nil && len(e.Reasons) > 0 {
			return errFindings
		}
		return err
	})
	return c
}

// printEnrollment shows all reasons at once, so that they can be mended in one go.
func printEnrollment(s streams, e engine.ShardEnrollment) {
	for _, w := range e.Warnings {
		fmt.Fprintln(s.out, "warning: "+w)
	}
	if len(e.Reasons) == 0 {
		fmt.Fprintf(s.out, "%s is ready: %d publications, %d new fences\n", e.Shard, len(e.Publications), e.Fences)
		return
	}
	fmt.Fprintf(s.out, "%s cannot be used for %s:\n", e.Shard, e.Map)
	for _, r := range e.Reasons {
		fmt.Fprintln(s.out, "  - "+r)
	}
}

// transferEvent is what the pipeline of transfers is activated by.
const transferEvent = "shard-transfer"

// shardMove submits an event and does not wait: a transfer may take hours, and its run can be followed
// as any other. The key that it names is the placement, which may be wider than the key that was asked for.
func shardMove(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "move MAP KEY SHARD", Aliases: []string{"transfer"}, Short: "Move a key to another shard", Args: cobra.ExactArgs(3),
		Long: "move submits the event " + transferEvent +
			", by which the pipeline of transfers moves a key\nwhile it is written to, and prints its run.",
		Example: "  procaas shard move mail 42 s2",
	}
	var method string
	var dryRun bool
	c.Flags().StringVar(&method, "method", "", "stream or lock-copy-switch; the better one that can be used when empty")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, tell what would be moved")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		a, err := f.client().ResolveShard(c.Context(), args[0], engine.ShardQuestion{Key: args[1], Mode: engine.ShardAny, Known: true})
		if err != nil {
			return err
		}
		// The server resolves the key first, so that a move of an unknown key is told here and not
		// in a run that fails later.
		plan := map[string]any{"map": a.Map, "key": a.Placement, "from": a.Shard, "to": args[2], "dry_run": dryRun}
		if a.Shard == args[2] {
			return usagef("%s lives on %s already", a.Placement, a.Shard)
		}
		if err := checkTarget(c.Context(), f.client(), a.Map, args[2]); err != nil {
			return err
		}
		if !dryRun {
			payload := map[string]any{"map": a.Map, "key": a.Placement, "target": args[2]}
			if method != "" {
				payload["method"] = method
			}
			receipt, err := f.client().SubmitEvent(c.Context(), wire.Event{Type: transferEvent, Payload: payload})
			if err != nil {
				return err
			}
			plan["run"] = receipt.Run
		}
		if out == "json" {
			return printJSON(s.out, plan)
		}
		if dryRun {
			fmt.Fprintf(s.out, "would move %s from %s to %s\n", a.Placement, a.Shard, args[2])
			return nil
		}
		fmt.Fprintf(s.out, "%s moves from %s to %s: run %s\n", a.Placement, a.Shard, args[2], plan["run"])
		return nil
	})
	return c
}

// checkTarget refuses a shard that the map does not have, before a run of its own fails
// for that. Submitters may move keys and not list shards: theirs is left to the run.
func checkTarget(ctx context.Context, client *client.Client, shardMap, target string) error {
	shards, err := client.Shards(ctx, shardMap)
	var refused *problem.Problem
	if errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		return nil
	}
	if err != nil {
		return err
	}
	known := make([]string, 0, len(shards))
	for _, x := range shards {
		known = append(known, x.ID)
	}
	if slices.Contains(known, target) {
		return nil
	}
	hint := "procaas shard list " + shardMap + " lists them"
	if near := diag.Suggest(target, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return usagef("map %s has no shard %q; %s", shardMap, target, hint)
}

// shardSet wants a reason, for all who meet a closed shard read it.
func shardSet(s streams, f *clientFlags, use, short string, change func(why string) wire.ShardChangeRequest) *cobra.Command {
	word, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(2), Example: "  procaas shard " + word +
		` mail s1 --reason "new disks"`}
	reason := c.Flags().String("reason", "", "why, for all who look (required)")
	dryRun := c.Flags().Bool("dry-run", false, "change nothing, tell what would be affected")
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *reason == "" {
			return usagef("shard %s needs --reason", word)
		}
		return setShard(c, s, f, args, change(*reason), *dryRun, format)
	}
	return c
}

// shardOpen takes back both close and drain, as a shard that is open is neither.
func shardOpen(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "open MAP SHARD", Short: "Take back that a shard is closed or drained", Args: cobra.ExactArgs(2),
		Example: "  procaas shard open mail s1",
	}
	dryRun := c.Flags().Bool("dry-run", false, "change nothing, tell what would be affected")
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		none := ""
		return setShard(c, s, f, args, wire.ShardChangeRequest{Closed: &none, Draining: &none}, *dryRun, format)
	}
	return c
}

// shardRegroup is split and merge, which differ in their words and addresses only.
func shardRegroup(s streams, f *clientFlags, use, short, long, example string) *cobra.Command {
	verb, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ExactArgs(2), Example: "  procaas shard " + verb + " mail " +
		example + " --dry-run"}
	ask := wire.ShardRegroupRequest{}
	c.Flags().StringVar(&ask.Reason, "reason", "", "why, for all who look")
	c.Flags().BoolVar(&ask.DryRun, "dry-run", false, "change nothing, tell what would be")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		ask.At = args[1]
		done, err := f.client().RegroupShard(c.Context(), args[0], verb, ask)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, done)
		}
		fmt.Fprintln(s.out, regroupedText(verb, done))
		return nil
	})
	return c
}

// regroupedText says what a split or a merge has done.
func regroupedText(verb string, d engine.ShardRegroup) string {
	does := map[bool]string{true: "would be", false: "is"}[d.DryRun]
	switch {
	case !d.Changed && !d.DryRun || d.Wide == d.Narrow:
		return fmt.Sprintf("%s is a placement of its own already, on %s", d.Narrow, d.Shard)
	case verb == "merge":
		return fmt.Sprintf("%s %s a part of %s, on %s", d.Narrow, does, d.Wide, d.Shard)
	}
	return fmt.Sprintf("%s %s split off %s, on %s", d.Narrow, does, d.Wide, d.Shard)
}

// setShard changes a shard and prints it, or prints what it would be.
func setShard(c *cobra.Command, s streams, f *clientFlags, args []string, change wire.ShardChangeRequest, dryRun bool,
	format func() (string, error),
) error {
	out, err := format()
	if err != nil {
		return err
	}
	if !dryRun {
		view, err := f.client().SetShard(c.Context(), args[0], args[1], change)
		if err != nil {
			return err
		}
		return printShard(s, view, out)
	}
	shards, err := f.client().Shards(c.Context(), args[0])
	if err != nil {
		return err
	}
	for _, x := range shards {
		if x.ID != args[1] {
			continue
		}
		if change.Closed != nil {
			x.Closed = *change.Closed
		}
		if change.Draining != nil {
			x.Draining = *change.Draining
		}
		// As the server derives them. What a shard that is opened again takes depends on its
		// declaration, which is not known here: then they stay as they are.
		x.Registration = x.Registration && x.Closed == "" && x.Draining == ""
		x.Transfer = x.Transfer && x.Draining == ""
		return printShard(s, x, out)
	}
	return usagef("map %s has no shard %q", args[0], args[1])
}
