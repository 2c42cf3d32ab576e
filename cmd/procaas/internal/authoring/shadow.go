package authoring

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/dsl/datum"
	"procaas/engine/clock"
	"procaas/engine/flowtest"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/replay"
)

const shadowHelp = `shadow runs these files beside the pipelines of a server. It takes each recorded run as soon
as it has ended, runs it again by these files, and reports what is different. The server
records runs with procaas serve --record 5%.

Nothing reaches the runs or the state of the server. Services answer what they answered the
real run. shadow itself makes a call only if the real run did not make the same one, and if
the call is safe: it is a GET, or its service says shadow: true. Such a call has the header
X-Procaas-Shadow and an idempotency key of its own. A call with a secret is never made.

Differences are printed as they come. The report at the end is that of procaas replay. shadow
leaves out runs that take longer than 2 minutes.

Exit codes: 0 when nothing differs, 1 when something does, 3 when no run can be compared.`

func shadowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shadow [PATH…]",
		Short: "Run new pipelines beside those of a server, and show what differs",
		Long:  shadowHelp,
		Example: `  procaas shadow next/ --for 1h
  procaas shadow next/ --pipeline order-placed --share 20% --runs 1000`,
		Args: cobra.ArbitraryArgs,
	}
	s := shadow{told: map[string]bool{}}
	f := &s.replayFlags
	c.Flags().StringVar(&f.filter.Pipeline, "pipeline", "", "only runs of this pipeline")
	c.Flags().StringVar(&f.slower, "slower", "50%", "report runs that take longer by more than this, and by 10ms or more")
	c.Flags().StringVar(&s.share, "share", "100%", "share of the recorded runs")
	c.Flags().StringVar(&s.lasts, "for", "10m", "for how long")
	c.Flags().IntVar(&s.runs, "runs", 0, "end after so many runs (default: any number)")
	c.Flags().StringVar(&s.since, "since", "", "begin with runs accepted at this time or later: a time, or a duration before now such as 1h (default: now)")
	cli.ServerFlags(c)
	format := cli.Format(c, string(flowtest.Text), string(flowtest.JSON), string(flowtest.JUnit), string(flowtest.GitHub))
	return cli.Calls(c, func(q *cli.Call) error { return s.follow(q, flowtest.Format(*format)) })
}

// A shadow is what procaas shadow does.
type shadow struct {
	replayFlags
	share, lasts, since string
	runs                int

	mu   sync.Mutex // guards told
	told map[string]bool
}

const (
	shadowPause = time.Second
	// shadowWindow is for how long runs are waited for after they were accepted.
	shadowWindow = 2 * time.Minute
)

func (s *shadow) follow(q *cli.Call, format flowtest.Format) error {
	share, err := cli.Share(s.share)
	if err != nil {
		return cli.Usagef("--share %w", err)
	}
	lasts, err := datum.ParseDuration(s.lasts)
	if err != nil {
		return cli.Usagef("--for: %w", err)
	}
	now := time.Now()
	if s.filter.Since, err = cli.Instant("--since", s.since, now); err != nil {
		return err
	}
	if s.filter.Since.IsZero() {
		s.filter.Since = now
	}
	until, stop := context.WithTimeout(q.Ctx, lasts)
	defer stop()
	fresh := *q
	fresh.Ctx = context.WithoutCancel(q.Ctx) // what has begun when it is stopped comes to its end
	next := func() func() (*records.Recorded, error) { return s.next(until, &fresh, share/100) }
	return s.compare(&fresh, format, replay.Env{Live: true, Found: func(of *records.Recorded, d replay.Difference) { s.tell(q, of, d) }}, next)
}

// next returns recorded runs as they end, each once; nil when the time is over, or there were enough.
func (s *shadow) next(until context.Context, q *cli.Call, share float64) func() (*records.Recorded, error) {
	f, seen, page := s.filter, map[string]bool{}, func() (*records.Recorded, error) { return nil, nil }
	return func() (*records.Recorded, error) {
		for {
			run, err := page()
			switch {
			case err != nil:
				return nil, err
			case run == nil:
				if s.runs > 0 && len(seen) >= s.runs {
					return nil, nil
				}
				if !clock.Pause(until, shadowPause) {
					return nil, nil
				}
				if window := time.Now().Add(-shadowWindow); window.After(f.Since) && s.since == "" {
					f.Since = window
				}
				page = q.Recordings(f)
				continue
			}
			if seen[run.ID] || model.Chance(run.ID, "shadow") >= share || s.runs > 0 && len(seen) >= s.runs {
				continue
			}
			seen[run.ID] = true
			return run, nil
		}
	}
}

// tell prints a difference the first time that it is found.
func (s *shadow) tell(q *cli.Call, of *records.Recorded, d replay.Difference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what := d.String(); !s.told[what] {
		s.told[what] = true
		fmt.Fprintf(q.Err, "%s run %s: %s: was %s, now %s\n", cli.Time(of.Accepted), of.ID, what, d.Was, d.Now)
	}
}
