package cli

import (
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
)

// A Span is the time range of --since and --until.
type Span struct{ since, until string }

// Add declares the flags.
func (s *Span) Add(c *cobra.Command, since, until string) {
	c.Flags().StringVar(&s.since, "since", "", since+": a time, or a duration before now such as 1h")
	c.Flags().StringVar(&s.until, "until", "", until+": a time, or a duration before now")
}

// Read parses the flags.
func (s *Span) Read(since, until *time.Time) (err error) {
	now := time.Now()
	if *since, err = Instant("--since", s.since, now); err != nil {
		return err
	}
	*until, err = Instant("--until", s.until, now)
	return err
}

// Instant parses a time, or a duration before now.
func Instant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := datum.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, Usagef("%s %q: want a time such as 2006-01-02T15:04:05Z, or a duration such as 1h", flag, text)
	}
	return t, nil
}
