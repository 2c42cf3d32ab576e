package control

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/triggers"
)

// Triggers returns the commands for the triggers of a server.
func Triggers() []*cobra.Command {
	return []*cobra.Command{listTriggers(), pauseTrigger(), resumeTrigger(), runTrigger(), backfillTrigger()}
}

// triggerPath returns the path of the trigger that an argument names.
func triggerPath(_ *cli.Call, id string) (string, error) {
	if strings.Contains(id, "/") || id == "" {
		return "", cli.Usagef("want the id of a trigger, have %q; procaas triggers list shows those of the server", id)
	}
	return triggers.Path(id), nil
}

func pauseTrigger() *cobra.Command {
	c := &cobra.Command{
		Use: "pause TRIGGER", Short: "Keep a trigger from firing, for an hour by default", Args: cobra.ExactArgs(1),
		Long: `pause keeps a trigger from firing on all nodes, within a second and over restarts. It is
procaas switch hold triggers/TRIGGER, and the audit shows it so. The trigger passes over
what is due meanwhile, also with catch-up. procaas triggers backfill makes up for it.`,
		Example: `  procaas triggers pause close-ledger --for 2h --reason "the ledger is being moved"`,
	}
	cli.ServerFlags(c)
	end := addEnd(c, "fire again after this time, such as 30m or 2h", "stay paused until somebody resumes it")
	return changesAt(c, triggerPath, func(*controlChange) (edit, error) {
		until, err := end()
		return func(now *guard.Control) {
			now.Enabled = false
			now.Mode = guard.ModeHold
			now.Until = until
		}, err
	})
}

func resumeTrigger() *cobra.Command {
	c := &cobra.Command{
		Use: "resume TRIGGER", Short: "Let a paused trigger fire again", Args: cobra.ExactArgs(1),
		Example: "  procaas triggers resume close-ledger",
	}
	cli.ServerFlags(c)
	return changesAt(c, triggerPath, func(*controlChange) (edit, error) {
		return func(now *guard.Control) {
			now.Enabled = true
			now.Mode = ""
			now.Until = nil
		}, nil
	})
}

func listTriggers() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the triggers of a server", Args: cobra.NoArgs,
		Long: `list shows the triggers of a server, each in its time zone. LAST is when it fired last, and
OUTCOME what became of that: the status of the run, or why it did not fire at a later due
time. Below a trigger stands who has paused it, and how often it did not fire.`,
		Example: "  procaas triggers list\n  procaas triggers list --next 10",
	}
	cli.ServerFlags(c)
	next := c.Flags().Int("next", 1, "how many of the next due times to list for each trigger, up to 100")
	return cli.Formatted(c, func(q *cli.Call) error {
		if *next < 0 || *next > 100 {
			return cli.Usagef("--next: want a number from 0 to 100, have %d", *next)
		}
		all, err := q.Client.Triggers(q.Ctx, *next)
		if err != nil {
			return err
		}
		return q.Show(cli.Items(all), func() error {
			err := cli.Table(q.Out, "TRIGGER\tWHEN\tEVENT\tOVERLAP\tSTATE\tLAST\tOUTCOME\tNEXT", all, func(v triggers.TriggerView) cli.Row {
				return cli.Row{v.ID, whenText(&v), v.Event, v.Overlap, v.State, lastText(&v), outcomeText(&v), nextText(&v)}
			})
			for i := range all {
				for _, line := range notes(&all[i]) {
					fmt.Fprintf(q.Out, "%s: %s\n", all[i].ID, line)
				}
			}
			return err
		})
	})
}

func whenText(v *triggers.TriggerView) string {
	switch {
	case v.Every != "":
		return "every " + v.Every
	case v.TimeZone == "UTC":
		return v.Cron
	}
	return v.Cron + " " + v.TimeZone
}

// zoned formats a time in the time zone of a trigger.
func zoned(v *triggers.TriggerView, t time.Time) string {
	if zone, err := time.LoadLocation(v.TimeZone); err == nil {
		t = t.In(zone)
	}
	if t.Nanosecond() != 0 {
		return t.Format("2006-01-02 15:04:05.000 MST")
	}
	return t.Format("2006-01-02 15:04:05 MST")
}

func lastText(v *triggers.TriggerView) string {
	switch {
	case v.Last == nil:
		return "-"
	case v.Last.ByHand:
		return zoned(v, v.Last.Time) + ", by hand"
	}
	return zoned(v, v.Last.Time)
}

// outcomeText says what became of the latest due time that the store knows.
func outcomeText(v *triggers.TriggerView) string {
	switch {
	case v.Skip != nil && (v.Last == nil || v.Skip.Time.After(v.Last.Time)):
		return "skipped: " + skipText(v.Skip.Reason)
	case v.Last == nil:
		return "-"
	}
	return cmp.Or(string(v.Last.Status), "no longer known")
}

// skipText says why a trigger did not fire.
func skipText(reason string) string {
	return cmp.Or(map[string]string{triggers.Running: "still running", triggers.Missed: "no node ran"}[reason], reason)
}

func nextText(v *triggers.TriggerView) string {
	if len(v.Next) == 0 {
		return "-"
	}
	return zoned(v, v.Next[0])
}

// notes are the lines below the table about a trigger.
func notes(v *triggers.TriggerView) (lines []string) {
	if p := v.Pause; p != nil {
		lines = append(lines, "paused"+cli.Until(p.Until)+" by "+p.By+strings.TrimSuffix(": "+p.Reason, ": "))
	}
	if v.Last != nil && v.Last.Error != "" {
		lines = append(lines, "run "+v.Last.Run+": "+v.Last.Error)
	}
	if s := v.Skip; s != nil {
		text := fmt.Sprintf("did not fire %d times while paused, %d while an earlier run had not ended, %d while no node ran; last at %s (%s",
			v.Skipped.Paused, v.Skipped.Running, v.Skipped.Missed, zoned(v, s.Time), skipText(s.Reason))
		if s.Run != "" {
			text += ": run " + s.Run
		}
		lines = append(lines, text+")")
	}
	if len(v.Next) > 1 {
		var times []string
		for _, t := range v.Next {
			times = append(times, zoned(v, t))
		}
		lines = append(lines, "next at "+strings.Join(times, ", "))
	}
	return lines
}

func runTrigger() *cobra.Command {
	c := &cobra.Command{
		Use: "run-now TRIGGER", Short: "Fire a trigger now, also a paused one", Args: cobra.ExactArgs(1),
		Long: `run-now submits the event of a trigger now, also of a paused one. The overlap policy does
not hold for it. The event has the label fired-by=run-now. With --id of an earlier firing
it fires nothing, so a script may repeat the command.

With --wait, it ends with 1 if the run does not succeed.`,
		Example: "  procaas triggers run-now close-ledger --wait 1m",
	}
	cli.ServerFlags(c)
	var body wire.TriggerRun
	c.Flags().StringVar(&body.ID, "id", "", "makes the firing unique (default a new id)")
	c.Flags().StringVar(&body.Reason, "reason", "", "reason, for the audit")
	wait := c.Flags().Duration("wait", 0, "wait so long for the end of the run")
	return cli.Formatted(c, func(q *cli.Call) error {
		if _, err := triggerPath(q, q.Args[0]); err != nil {
			return err
		}
		body.ID = cmp.Or(body.ID, intake.NewID())
		fired, err := q.Client.RunTrigger(q.Ctx, q.Args[0], body)
		if err != nil {
			return err
		}
		status := model.Status("")
		for until := time.Now().Add(*wait); time.Until(until) > 0 && !status.Ended(); {
			v, err := q.AwaitRun(q.Ctx, fired.Run, min(time.Until(until), rest.MaxWait))
			if err != nil {
				return err
			}
			status = v.Status
		}
		out := struct {
			steering.FiredNow
			Status model.Status `json:"status,omitempty"`
		}{fired, status}
		err = q.Show(out, func() error {
			what := "fired"
			if fired.Duplicate {
				what = "had fired already with this id"
			}
			fmt.Fprintf(q.Out, "%s: %s, run %s %s\n", fired.Trigger, what, fired.Run, status)
			cli.Outlook{Check: "procaas runs show " + fired.Run}.Tell(q)
			return nil
		})
		if err != nil || *wait == 0 {
			return err
		}
		if !status.Ended() {
			return fmt.Errorf("run %s has not ended within %s, and goes on; procaas runs show %s tells how far it is", fired.Run, *wait, fired.Run)
		}
		return cli.FindingsIf(status != model.Succeeded)
	})
}

func backfillTrigger() *cobra.Command {
	c := &cobra.Command{
		Use: "backfill TRIGGER --from TIME", Short: "Fire a trigger for due times in the past", Args: cobra.ExactArgs(1),
		Long: `backfill fires a trigger for each due time from --from on and before --to that has no event
yet, oldest first. The event has the due time as its time and as its id, and the label
fired-by=backfill. What has fired is a duplicate, so repeat the command if it was
interrupted. The runs wait for those of other events, and overlap does not hold for them.

backfill hands in 100 due times, and the next 100 when the runs of those have begun. A
window has at most 10,000 due times.

The server refuses due times that are so old that their runs may be deleted. With
--forgotten it fires them, and what has run runs again. It ends with 1 if events are refused.`,
		Example: "  procaas triggers backfill close-ledger --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z --dry-run\n" +
			"  procaas triggers backfill close-ledger --from 6h",
	}
	cli.ServerFlags(c)
	var body wire.TriggerBackfill
	from := c.Flags().String("from", "", "the first due time may be this one: a time, or a duration before now such as 6h")
	to := c.Flags().String("to", "", "the last due time is before this one: a time, or a duration before now (default now)")
	c.Flags().BoolVar(&body.DryRun, "dry-run", false, "fire nothing, and list the due times")
	c.Flags().BoolVar(&body.Forgotten, "forgotten", false, "also fire due times of which the server no longer knows whether they ran")
	c.Flags().StringVar(&body.Reason, "reason", "", "reason, for the audit")
	return cli.Formatted(c, func(q *cli.Call) error {
		_, err := triggerPath(q, q.Args[0])
		if err != nil {
			return err
		}
		if *from == "" {
			return cli.Usagef("backfill needs --from, such as --from 2026-11-21T00:00:00Z or --from 6h")
		}
		now := time.Now()
		if body.From, err = cli.Instant("--from", *from, now); err != nil {
			return err
		}
		if body.To, err = cli.Instant("--to", *to, now); err != nil {
			return err
		}
		b := filling{Call: q, body: body, all: steering.Backfilled{Trigger: q.Args[0], DryRun: body.DryRun, Times: []steering.PastTime{}}}
		return b.fill()
	})
}

// A filling is a backfill in several calls.
type filling struct {
	*cli.Call
	body wire.TriggerBackfill
	all  steering.Backfilled // of all calls
}

// backfillPause is how long a backfill waits for the runs of its last call to begin, before it looks again.
const backfillPause = time.Second

func (b *filling) fill() error {
	for told := false; ; {
		page, err := b.Client.BackfillTrigger(b.Ctx, b.Args[0], b.body)
		if err != nil {
			if len(b.all.Times) > 0 {
				return fmt.Errorf("%s, then: %w; repeat the command to go on, it passes over what has fired", b.sums(), err)
			}
			return err
		}
		b.add(&page)
		if page.Next == nil {
			return b.tell()
		}
		if page.Waits == "" && len(page.Times) == 0 {
			return fmt.Errorf("%s, then: the server handles no due time of the %d that are left, and does not say why", b.sums(), page.Left)
		}
		b.body.From, b.body.To = *page.Next, page.To // else a backfill up to now would never come to its end
		if page.Waits == "" {
			continue
		}
		if !told {
			fmt.Fprintf(b.Err, "waits until run %s begins, with %s left; procaas runs show %[1]s tells why it waits\n", page.Waits,
				diag.Plural(page.Left, "due time"))
			told = true
		}
		if !clock.Pause(b.Ctx, backfillPause) {
			return fmt.Errorf("%s, then: interrupted; repeat the command to go on, it passes over what has fired", b.sums())
		}
	}
}

func (b *filling) add(page *steering.Backfilled) {
	b.all.To = page.To
	b.all.Times = append(b.all.Times, page.Times...)
	b.all.Fired += page.Fired
	b.all.Ran += page.Ran
	b.all.Refused += page.Refused
}

func (b *filling) sums() string {
	text := fmt.Sprintf("%d fired, %d already ran", b.all.Fired, b.all.Ran)
	if b.body.DryRun {
		text = fmt.Sprintf("%d would fire, %d already ran", b.all.Fired, b.all.Ran)
	}
	if b.all.Refused > 0 {
		text += fmt.Sprintf(", %d refused", b.all.Refused)
	}
	return text
}

func (b *filling) tell() error {
	err := b.Show(b.all, func() error {
		for _, t := range b.all.Times {
			switch {
			case t.Why != "":
				fmt.Fprintf(b.Out, "%s  refused: %s\n", t.Time.Format(time.RFC3339), t.Why)
			case b.body.DryRun && t.Ran:
				fmt.Fprintf(b.Out, "%s  already ran %s\n", t.Time.Format(time.RFC3339), t.Run)
			case b.body.DryRun:
				fmt.Fprintf(b.Out, "%s\n", t.Time.Format(time.RFC3339))
			}
		}
		return b.Printf("%s: %s\n", b.Args[0], b.sums())
	})
	return cmp.Or(err, cli.FindingsIf(b.all.Refused > 0))
}
