package runs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"procaas/cmd/procaas/internal/runview"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/records"
	"procaas/engine/store"
)

const redriveHelp = `

Conditions instead of ids choose all runs that match: the oldest first, or the newest
first to cancel, so that no run begins because an earlier one of its key has ended.
--dry-run shows them, and also runs that you name. --rate sets the pace. The command
handles each run once, even if the run fails again meanwhile. If it ends early, it says
how many runs it changed, and which command continues with --cursor. Runs that already
continue are skipped.`

// redriveFlags choose many runs and set the pace.
type redriveFlags struct {
	choiceFlags

	dryRun  bool
	rate    string
	limit   int
	cursor  string
	abandon bool           // cancel without compensation
	command *cobra.Command // to say how to go on
}

func (f *redriveFlags) add(c *cobra.Command) {
	f.choiceFlags.add(c, "waiting, running, parked, failed")
	f.addPace(c)
}

// addPace adds the flags of all commands that change many runs.
func (f *redriveFlags) addPace(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, and list the chosen runs with their present status")
	flags.StringVar(&f.rate, "rate", "50/s", "pace, as runs per time")
	flags.IntVar(&f.limit, "limit", 0, "stop after this many runs; 0 for all")
	flags.StringVar(&f.cursor, "cursor", "", "continue where a command with the same conditions ended early; it printed the cursor")
	f.command = c
}

// named changes or shows the runs that the arguments name. It refuses conditions beside names, since their
// combination is ambiguous.
func (f *redriveFlags) named(q *cli.Call, verb client.Verb, fits func(checkpoint.RunView) bool,
	do func(id string) (checkpoint.RunView, error),
) error {
	if err := f.read(q); err != nil {
		return err
	}
	if f.filter != (store.RunFilter{}) || f.limit != 0 || f.cursor != "" {
		return cli.Usagef("have names of runs and conditions; want either: without names, the conditions choose the runs")
	}
	if f.dryRun {
		do = func(id string) (checkpoint.RunView, error) { return q.Run(q.Ctx, id) }
	}
	var later []string
	return eachRun(q, fits, func(id string) (checkpoint.RunView, error) {
		before, err := q.Run(q.Ctx, id) // after the retry, later runs may begin at once
		if err == nil && verb == client.RetryRuns && before.Blocks {
			if text := runview.Followers(q, before); text != "" {
				later = append(later, text)
			}
		}
		return do(id)
	}, func(id string) cli.Outlook {
		next := outcome(verb, id)
		if f.dryRun {
			next = cli.Outlook{}
		}
		next.More = strings.Join(later, "; ")
		return next
	})
}

// choose returns the filter and how many runs per second to change.
func (f *redriveFlags) choose(q *cli.Call, verb client.Verb) (body wire.Redrive, perSecond float64, err error) {
	if f.limit < 0 {
		return body, 0, cli.Usagef("--limit %d: want a number of runs, or 0 for all", f.limit)
	}
	if err := f.read(q); err != nil {
		return body, 0, err
	}
	if f.filter == (store.RunFilter{}) {
		return body, 0, cli.Usagef("%s needs ids of runs, or a condition such as --pipeline", verb)
	}
	pace, err := datum.ParseRate(f.rate)
	if err != nil {
		return body, 0, cli.Usagef("--rate %q: %w", f.rate, err)
	}
	return wire.NewRedrive(f.filter), pace.PerSecond(), nil
}

// pages processes the chosen runs page by page. do returns how many runs it met, and the next page. told prints
// progress.
func (f *redriveFlags) pages(q *cli.Call, body wire.Redrive, perSecond float64, told func() string,
	do func(wire.Redrive) (met int, next *string, err error),
) error {
	// A few pages per second keep the pace even.
	page := int(min(max(perSecond/5, 1), 100))
	if f.dryRun {
		page, perSecond = 1000, float64(rate.Inf)
	}
	limiter := rate.NewLimiter(rate.Limit(perSecond), page)
	body.Cursor = f.cursor
	for left := f.most(); left > 0; {
		body.Limit = min(page, left)
		var met int
		var next *string
		err := limiter.WaitN(q.Ctx, body.Limit)
		if err == nil {
			met, next, err = do(body)
		}
		switch {
		case err != nil && body.Cursor == f.cursor && (f.dryRun || errors.As(err, new(*problem.Problem))):
			return err // nothing has been done
		case err != nil:
			if cli.Terminal(q.Err) {
				_ = cli.Control(q.Err, "\r\x1b[K")
			}
			if q.Ctx.Err() != nil {
				err = errInterrupted
			}
			return fmt.Errorf("%s, then: %w; to continue: %s", told(), err, f.goOn(body.Cursor, left))
		}
		if next == nil {
			break
		}
		left -= met
		body.Cursor = *next
	}
	return nil
}

var errInterrupted = errors.New("interrupted; the server may have changed some runs more, which the next command skips")

// goOn returns the command that continues at a cursor with the rest of the limit. It leaves out tokens.
func (f *redriveFlags) goOn(cursor string, left int) string {
	words := []string{f.command.CommandPath()}
	f.command.Flags().Visit(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		switch flag.Name {
		case "token", "admin-token", "cursor", "dry-run":
			return
		case "limit":
			values[0] = strconv.Itoa(left)
		}
		if many, ok := flag.Value.(pflag.SliceValue); ok {
			values = many.GetSlice()
		}
		for _, value := range values {
			words = append(words, "--"+flag.Name+"="+shellWord(value))
		}
	})
	if cursor != "" {
		words = append(words, "--cursor="+cursor)
	}
	return strings.Join(words, " ")
}

// plainWord matches what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[\w%+,./:=@-]+$`)

// shellWord quotes a word for a POSIX shell if need be.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// most returns how many runs to process at most.
func (f *redriveFlags) most() int {
	if f.limit == 0 {
		return math.MaxInt
	}
	return f.limit
}

// redrive changes all runs that the flags choose.
func (f *redriveFlags) redrive(q *cli.Call, verb client.Verb, reason string) error {
	body, perSecond, err := f.choose(q, verb)
	if err != nil {
		return err
	}
	preview, err := q.Preview(q.Ctx, verb, body)
	if err != nil {
		return err
	}
	if preview.Total == 0 {
		if err := checkChoice(q, f.filter); err != nil {
			return err
		}
	}
	if f.dryRun {
		return q.Show(preview, func() error {
			if err := showPreview(q, preview, f.filter.LeftOut); err != nil || preview.Total > 0 {
				return err
			}
			return tellWhyNone(q, verb, f.filter)
		})
	}
	body.Reason = reason
	if f.abandon {
		body.Compensate = new(bool)
	}
	done := redriven{Runs: []string{}}
	told := func() string {
		what := map[client.Verb]string{client.RetryRuns: "retried", client.CancelRuns: "cancelled", client.MakeUpRuns: "queued"}[verb]
		text := what + " " + diag.Plural(done.Done, "run")
		if done.MovedOn > 0 {
			text += fmt.Sprintf(", %d had moved on", done.MovedOn)
		}
		if done.OfTasks > 0 {
			text += fmt.Sprintf(", %d are attempts of tasks: procaas queue retry PIPELINE retries dead letters", done.OfTasks)
		}
		return text
	}
	err = f.pages(q, body, perSecond, told, func(body wire.Redrive) (int, *string, error) {
		d, err := q.Redrive(q.Ctx, verb, body)
		if err != nil {
			return 0, nil, err
		}
		done = redriven{
			Done: done.Done + d.Done, MovedOn: done.MovedOn + d.MovedOn, OfTasks: done.OfTasks + d.OfTasks,
			Runs: append(done.Runs, d.Runs...),
		}
		if cli.Terminal(q.Err) {
			_ = cli.Control(q.Err, "\r") // as with the text after it, an error about progress ends nothing
			fmt.Fprintf(q.Err, "%s of %d", told(), min(preview.Total, f.most()))
		}
		return d.Done + d.MovedOn + d.OfTasks, d.Next, nil
	})
	if err != nil {
		return err
	}
	if cli.Terminal(q.Err) {
		_ = cli.Control(q.Err, "\r\x1b[K")
	}
	return q.Show(done, func() error {
		if err := done.show(q, verb, told()); err != nil || preview.Total > 0 {
			return err
		}
		return tellWhyNone(q, verb, f.filter)
	})
}

// show prints which runs were changed, and how to follow them.
func (r redriven) show(q *cli.Call, verb client.Verb, told string) error {
	fmt.Fprintln(q.Out, told)
	const shown = 10
	for _, id := range r.Runs[:min(shown, len(r.Runs))] {
		fmt.Fprintf(q.Out, "  %s\n", id)
	}
	if more := len(r.Runs) - shown; more > 0 {
		fmt.Fprintf(q.Out, "  and %d more\n", more)
	}
	if len(r.Runs) > 0 {
		outcome(verb, r.Runs[0]).Tell(q)
	}
	return nil
}

// outcome says how to follow the runs. One of them is the example.
func outcome(verb client.Verb, run string) cli.Outlook {
	show := "procaas runs show " + run
	switch verb {
	case client.RetryRuns:
		return cli.Outlook{
			Now: "each resumes from the handler that failed, by its own version, and procaas runs migrate gives it the present one; " +
				"later events of its key that wait for it run after it",
			Check: show + "; retry --dry-run with the same conditions counts those that failed again",
		}
	case client.MakeUpRuns:
		return cli.Outlook{
			Now:   "each makes only this call; it may still fail or be left out",
			Check: show + "; a run whose call is left out again is back in runs list --left-out",
		}
	case client.CancelRuns:
		return cli.Outlook{Now: "they end; a later event of a key runs once no earlier one of it waits or has failed", Check: show}
	}
	return cli.Outlook{Check: show}
}

// redriven is the JSON result for many runs.
type redriven struct {
	Done    int      `json:"done"`
	MovedOn int      `json:"moved_on"` // their status had changed
	OfTasks int      `json:"of_tasks"` // only the queue retries these
	Runs    []string `json:"runs"`
}

// migrate moves the chosen runs to the current definition.
func (f *redriveFlags) migrate(q *cli.Call, reason string) error {
	body, perSecond, err := f.choose(q, "migrate")
	if err != nil {
		return err
	}
	body.Reason, body.Preview = reason, f.dryRun
	report := runview.Fits{Streams: q.Streams, Done: !f.dryRun, Lists: f.dryRun}
	err = f.pages(q, body, perSecond, report.Sum, func(body wire.Redrive) (int, *string, error) {
		m, err := q.MigrateRuns(q.Ctx, body)
		if err != nil {
			return 0, nil, err
		}
		for _, fit := range append(m.Fit, m.Pinned...) {
			report.Add(fit)
		}
		return len(m.Fit) + len(m.Pinned) + m.MovedOn, m.Next, nil
	})
	if err != nil {
		return err
	}
	if report.Fit+report.Pinned == 0 {
		if err := checkChoice(q, f.filter); err != nil {
			return err
		}
	}
	fmt.Fprintln(q.Out, report.Sum())
	return cli.FindingsIf(report.Pinned > 0)
}

// showPreview prints which runs are chosen, and why they left out a handler.
func showPreview(q *cli.Call, p records.RunsPreview, leftOut string) error {
	err := cli.Table(q.Out, "RUNS\tPIPELINE\tHANDLER\tCLASS", p.Groups, func(g store.RunCount) cli.Row {
		return cli.Row{g.Runs, g.Pipeline, cli.Dash(g.FailedPath), cli.Dash(g.ErrorClass)}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(q.Out, "%s in all\n", diag.Plural(p.Total, "run"))
	for _, v := range p.Runs {
		fmt.Fprintf(q.Out, "  %s %s %s\n", v.ID, v.Status, strings.TrimSpace(v.Key+" "+cmp.Or(v.Error, whyLeftOut(v, leftOut))))
	}
	if more := p.Total - len(p.Runs); more > 0 {
		fmt.Fprintf(q.Out, "  and %d more\n", more)
	}
	return nil
}
