package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/wire"
)

// queueCommand makes the three modes and the three changes from one function each: they
// differ in their words only.
func queueCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "Look at the queue of tasks, and steer it",
		Long: `queue works with the tasks of a server: those of pipelines with a queue section, and
those of workers that are other programs. A type is a pipeline's id, or any other
name that tasks were put under.`,
	}
	c.AddCommand(queueStatsCommand(s), queuePeekCommand(s))
	for _, m := range []struct{ use, mode, short string }{
		{"pause", "paused", "Let no task of a type be taken; those under way go on"},
		{"resume", "open", "Open a type again that was paused or drained"},
		{"drain", "draining", "Take no new tasks of a type in; those that are there are worked off"},
	} {
		c.AddCommand(queueModeCommand(s, m.use, m.mode, m.short))
	}
	c.AddCommand(
		queueChangeCommand(s, "cancel", "Cancel tasks of a type that no worker holds"),
		queueChangeCommand(s, "retry", "Put dead letters of a type into the queue again"),
		queueChangeCommand(s, "move", "Give tasks of a type another one"),
	)
	return c
}

// queueStatsCommand has one column for tasks that are starting and those that run: workers
// hold both.
func queueStatsCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "stats", Short: "Count the tasks of each type", Args: cobra.NoArgs,
		Long: `stats counts the tasks of each type. LAG is by how much the most urgent one waits
beyond what it tolerates. WAITING are those that wait for others of their key.
A number with a ~ is an estimate, of a large table. RAISED is how many waited for
longer than max-wait and were let go before others. ASKED is when a worker asked for
such tasks last: never in a month means that the type may be mistyped.`,
	}
	var f clientFlags
	f.add(c)
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		all, err := f.client().Queues(c.Context())
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": all, "next": nil})
		}
		w := newTable(s.out, "TYPE\tMODE\tLAG\tREADY\tWAITING\tTAKEN\tSCHEDULED\tFAILED\tRAISED\tASKED")
		for i := range all {
			q := &all[i]
			lag := time.Duration(q.Lag * float64(time.Second)).Round(time.Second)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", q.Type, q.Mode, lag, counted(q, "ready", q.Ready),
				counted(q, "waiting", q.Waiting), q.Starting+q.Running, counted(q, "scheduled", q.Scheduled), counted(q, "failed", q.Failed),
				q.Raised, askedAgo(q.Asked, time.Now()))
		}
		return w.Flush()
	})
	return c
}

// unheardType says that there are no tasks of a type, and which one was likely meant.
func unheardType(name string, all []wire.QueueStats) string {
	var known []string
	for i := range all {
		known = append(known, all[i].Type)
	}
	text := fmt.Sprintf("there is no task of type %q", name)
	if near := diag.Suggest(name, known); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// counted shows a number of tasks; one that is an estimate has a ~.
func counted(q *wire.QueueStats, state string, n int64) string {
	if slices.Contains(q.Estimated, state) {
		return fmt.Sprint("~", n)
	}
	return fmt.Sprint(n)
}

// askedAgo tells how long ago somebody asked for tasks of a type, to the minute as it is
// noted.
func askedAgo(at *time.Time, now time.Time) string {
	if at == nil {
		return "never"
	}
	ago := now.Sub(*at)
	switch {
	case ago < 2*time.Minute: // an idle worker asks all the time
		return "now"
	case ago < 2*time.Hour:
		return fmt.Sprintf("%dm ago", int(ago.Minutes()))
	case ago < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(ago.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(ago.Hours()/24))
}

// queuePeekCommand warns when nobody has heard of a type that has no tasks: it may be a
// typing mistake. It is no error, for the first task may be on its way.
func queuePeekCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "peek TYPE", Short: "List tasks in the order in which they would be taken", Args: cobra.ExactArgs(1),
		Example: "  procaas queue peek thumbnails --state failed",
	}
	var f clientFlags
	f.add(c)
	state := c.Flags().String("state", "",
		"only tasks in this state: scheduled, ready, waiting, starting, running, completed, failed or cancelled")
	key := c.Flags().String("key", "", "only tasks of this key")
	unique := c.Flags().String("unique", "", "only the task with this unique name")
	limit := c.Flags().Int("limit", 20, "the most tasks")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		query := url.Values{"state": {*state}, "key": {*key}, "unique": {*unique}, "limit": {strconv.Itoa(*limit)}}
		tasks, err := f.client().PeekTasks(c.Context(), args[0], query)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": tasks, "next": nil})
		}
		w := newTable(s.out, "TASK\tSTATE\tPRIORITY\tDUE\tDEADLINE\tATTEMPT\tKEY\tWORKER\tERROR")
		for _, t := range tasks {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\n", t.ID, t.State, t.Priority, t.Due.Local().Format(time.DateTime),
				t.Deadline.Local().Format(time.DateTime), t.Attempt, dash(t.Key), dash(t.Worker), dash(t.Error))
		}
		if err := w.Flush(); err != nil || len(tasks) > 0 {
			return err
		}
		all, err := f.client().Queues(c.Context())
		if err == nil && !slices.ContainsFunc(all, func(q wire.QueueStats) bool { return q.Type == args[0] }) {
			warn(s, unheardType(args[0], all))
		}
		return err
	})
	return c
}

// queueModeCommand sets how a type is served; use is the command, mode what the API calls it.
func queueModeCommand(s streams, use, mode, short string) *cobra.Command {
	c := &cobra.Command{
		Use: use + " TYPE", Short: short, Args: cobra.ExactArgs(1), Example: "  procaas queue " + use + ` thumbnails --reason "new disks"`,
	}
	var f clientFlags
	f.add(c)
	reason := c.Flags().String("reason", "", "why, for people")
	c.RunE = func(c *cobra.Command, args []string) error {
		done, err := f.client().SetQueue(c.Context(), args[0], wire.QueueChange{Mode: mode, Reason: *reason})
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s is %s\n", args[0], mode)
		warn(s, done.Warning)
		return nil
	}
	return c
}

// queueChangeCommand changes tasks of a type that have been chosen. Without --limit at most
// 1000 change: a choice that is too wide must not reach a million tasks at once.
func queueChangeCommand(s streams, verb, short string) *cobra.Command {
	c := &cobra.Command{Use: verb + " TYPE", Short: short, Args: cobra.ExactArgs(1), Example: "  procaas queue " + verb +
		" thumbnails --key user-1"}
	var f clientFlags
	f.add(c)
	var choice wire.TaskChoice
	flags := c.Flags()
	flags.StringSliceVar(&choice.IDs, "id", nil, "only this task (repeatable)")
	flags.StringVar(&choice.Key, "key", "", "only tasks of this key")
	flags.StringVar(&choice.Unique, "unique", "", "only the task with this unique name")
	flags.IntVar(&choice.Limit, "limit", 1000, "at most as many")
	flags.StringVar(&choice.Reason, "reason", "", "why, for people")
	// Only dead letters are retried, which are in one state.
	if verb != "retry" {
		flags.StringVar(&choice.State, "state", "", "only tasks in this state: ready, waiting or scheduled")
	}
	if verb == "move" {
		flags.StringVar(&choice.To, "to", "", "the other type (required)")
		c.Example += " --to thumbnails-later"
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if verb == "move" && choice.To == "" {
			return usagef("move needs --to")
		}
		done, err := f.client().ChangeTasks(c.Context(), verb, args[0], choice)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s: %d tasks\n", verb, done.Changed)
		warn(s, done.Warning)
		return nil
	}
	return c
}

// warn shows people what a server warns of.
func warn(s streams, text string) {
	if text != "" {
		fmt.Fprintln(s.err, "warning:", text)
	}
}
