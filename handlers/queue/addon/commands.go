package addon

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/handlers/queue/remote"
)

// queueCommand makes the commands for three modes and three changes. They differ only in their words.
func queueCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "Look at the queue of tasks, and control it",
		Long: `queue works with the tasks of a server. Tasks belong to pipelines with a queue
section, or to workers that are other programs. A type is the id of a pipeline, or
any other name that tasks have.`,
	}
	c.AddCommand(queueStatsCommand(), queuePeekCommand())
	for _, m := range []struct{ use, mode, short string }{
		{"pause", "paused", "Stop workers from taking tasks of a type; tasks in flight continue"},
		{"resume", "open", "Resume a paused or drained type"},
		{"drain", "draining", "Refuse new tasks of a type, and finish the rest"},
	} {
		c.AddCommand(queueModeCommand(m.use, m.mode, m.short))
	}
	c.AddCommand(
		queueChangeCommand("cancel", "Cancel tasks of a type that no worker has taken"),
		queueChangeCommand("retry", "Put dead letters of a type back into the queue"),
		queueChangeCommand("move", "Move tasks to another type"),
	)
	return c
}

// queueStatsCommand has one column for starting and running tasks, since workers hold both.
func queueStatsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "stats", Short: "Count the tasks of each type", Args: cobra.NoArgs,
		Long: `stats counts the tasks of each type. Its columns include

  LAG      how much longer the most urgent task has waited than it tolerates
  WAITING  tasks that wait for other tasks of their key
  RAISED   tasks that waited longer than max-wait, and went before others
  ASKED    when a worker last asked for such tasks. If none has asked for a month,
           check the spelling of the type

A ~ marks an estimate in a large table. Below the counts stands which tables of the
queue need a vacuum: they have over 100,000 dead rows, and more than rows in use.`,
	}
	cli.ServerFlags(c)
	header := "TYPE\tMODE\tLAG\tREADY\tWAITING\tTAKEN\tSCHEDULED\tFAILED\tRAISED\tASKED"
	return cli.Formatted(c, func(q *cli.Call) error {
		all, err := remote.Queues(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		tables, err := remote.QueueTables(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		found := struct {
			wire.Page[remote.QueueStats]

			Tables []remote.QueueTable `json:"tables"`
		}{cli.Items(all), tables}
		return q.Show(found, func() error {
			err := cli.Table(q.Out, header, all, queueRow)
			for _, t := range tables {
				if t.Vacuum != "" {
					fmt.Fprintf(q.Out, "%s has %d dead rows and %d in use: run %s in the store\n", t.Table, t.Dead, t.Live, t.Vacuum)
				}
			}
			return err
		})
	})
}

func queueRow(x remote.QueueStats) cli.Row {
	return cli.Row{
		x.Type, x.Mode, time.Duration(x.Lag * float64(time.Second)).Round(time.Second), counted(&x, "ready", x.Ready),
		counted(&x, "waiting", x.Waiting), x.Starting + x.Running, counted(&x, "scheduled", x.Scheduled),
		counted(&x, "failed", x.Failed), x.Raised, askedAgo(x.Asked, time.Now()),
	}
}

// counted formats a number of tasks. An estimate has a ~.
func counted(q *remote.QueueStats, state string, n int64) string {
	if slices.Contains(q.Estimated, state) {
		return fmt.Sprint("~", n)
	}
	return fmt.Sprint(n)
}

// askedAgo formats how long ago a worker asked for tasks of a type. The time is recorded to the minute.
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

func queuePeekCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "peek TYPE", Short: "List tasks in the order in which workers will take them", Args: cobra.ExactArgs(1),
		Example: "  procaas queue peek thumbnails --state failed",
	}
	cli.ServerFlags(c)
	state := c.Flags().String("state", "",
		"only tasks in this state: scheduled, ready, waiting, starting, running, completed, failed or cancelled")
	key := c.Flags().String("key", "", "only tasks of this key")
	unique := c.Flags().String("unique", "", "only the task with this unique name")
	text := c.Flags().String("error", "", "only tasks whose last error contains this text")
	limit := c.Flags().Int("limit", 20, "the most tasks")
	return cli.Shows(c, func(q *cli.Call) (wire.Page[remote.QueuedTask], error) {
		query := url.Values{"state": {*state}, "key": {*key}, "unique": {*unique}, "error": {*text}, "limit": {strconv.Itoa(*limit)}}
		tasks, err := remote.PeekTasks(q.Ctx, q.Client, q.Args[0], query)
		return cli.Items(tasks), err
	}, func(q *cli.Call, tasks wire.Page[remote.QueuedTask]) error {
		return tasksTable(q, tasks.Items)
	})
}

func tasksTable(q *cli.Call, tasks []remote.QueuedTask) error {
	header := "TASK\tSTATE\tPRIORITY\tDUE\tDEADLINE\tATTEMPT\tKEY\tUNIQUE\tWORKER\tERROR"
	return cli.Table(q.Out, header, tasks, func(t remote.QueuedTask) cli.Row {
		return cli.Row{
			t.ID, t.State, t.Priority, t.Due, t.Deadline, t.Attempt,
			cli.Dash(t.Key), cli.Dash(t.Unique), cli.Dash(t.Worker), cli.Dash(t.Error),
		}
	})
}

// queueModeCommand sets the mode of a type. use is the name of the command, mode that of the API.
func queueModeCommand(use, mode, short string) *cobra.Command {
	c := &cobra.Command{
		Use: use + " TYPE", Short: short, Args: cobra.ExactArgs(1), Example: "  procaas queue " + use + ` thumbnails --reason "new disks"`,
	}
	cli.ServerFlags(c)
	reason := c.Flags().String("reason", "", "reason, for the audit and for colleagues")
	return cli.Calls(c, func(q *cli.Call) error {
		done, err := remote.SetQueue(q.Ctx, q.Client, q.Args[0], remote.QueueChange{Mode: mode, Reason: *reason})
		if err != nil {
			return err
		}
		fmt.Fprintf(q.Out, "%s is %s\n", q.Args[0], mode)
		now := map[string]string{
			"paused": "workers take none of its tasks; those in flight continue", "open": "workers take its tasks again",
			"draining": "it refuses new tasks; workers finish the rest",
		}[mode]
		undo := "procaas queue resume " + q.Args[0]
		if mode == "open" {
			undo = ""
		}
		cli.Outlook{Now: now, Check: "procaas queue stats", Undo: undo}.Tell(q)
		warn(q, done.Warning)
		return nil
	})
}

// queueChangeCommand changes chosen tasks of a type. Without --limit it changes at most 1000, since a choice
// may be too wide by mistake.
func queueChangeCommand(verb, short string) *cobra.Command {
	c := &cobra.Command{Use: verb + " TYPE", Short: short, Args: cobra.ExactArgs(1), Example: "  procaas queue " + verb +
		" thumbnails --key user-1"}
	cli.ServerFlags(c)
	var choice remote.TaskChoice
	flags := c.Flags()
	flags.StringSliceVar(&choice.IDs, "id", nil, "only this task (repeatable)")
	flags.StringVar(&choice.Key, "key", "", "only tasks of this key")
	flags.StringVar(&choice.Unique, "unique", "", "only the task with this unique name")
	flags.StringVar(&choice.Error, "error", "", "only tasks whose last error contains this text")
	flags.BoolVar(&choice.Preview, "dry-run", false, "change nothing, and list the tasks")
	flags.IntVar(&choice.Limit, "limit", 1000, "the most tasks")
	flags.StringVar(&choice.Reason, "reason", "", "reason, for the audit and for colleagues")
	// retry is only for dead letters, so it needs no state.
	if verb != "retry" {
		flags.StringVar(&choice.State, "state", "", "only tasks in this state: ready, waiting or scheduled")
	}
	if verb == "move" {
		flags.StringVar(&choice.To, "to", "", "the other type (required)")
		c.Example += " --to thumbnails-later"
	}
	return cli.Formatted(c, func(q *cli.Call) error {
		if verb == "move" && choice.To == "" {
			return cli.Usagef("move needs --to")
		}
		done, err := remote.ChangeTasks(q.Ctx, q.Client, verb, q.Args[0], choice)
		if err != nil {
			return err
		}
		err = q.Show(done, func() error {
			warn(q, done.Warning)
			if choice.Preview {
				fmt.Fprintf(q.Out, "%s would change %s\n", verb, diag.Plural(done.Changed, "task"))
				return tasksTable(q, done.Preview)
			}
			fmt.Fprintf(q.Out, "%s: %s\n", verb, diag.Plural(done.Changed, "task"))
			for _, r := range done.Retried {
				fmt.Fprintf(q.Out, "  %s as %s\n", r.Task, r.As)
			}
			for _, b := range done.Blocked {
				fmt.Fprintf(q.Out, "  %s stays failed: task %s has its unique name; retry it when that one has ended\n", b.Task, b.By)
			}
			cli.Outlook{Check: "procaas queue peek " + cmp.Or(choice.To, q.Args[0])}.Tell(q)
			return nil
		})
		return cmp.Or(err, cli.FindingsIf(done.Changed == 0 && len(done.Blocked) > 0))
	})
}

// warn prints a warning of the server.
func warn(q *cli.Call, text string) {
	if text != "" {
		fmt.Fprintln(q.Err, "warning:", text)
	}
}
