package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Table prints a table. Tabs separate the columns of the header.
func Table[T any](w io.Writer, header string, all []T, row func(T) Row) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if header != "" {
		fmt.Fprintln(t, header)
	}
	for _, x := range all {
		for i, cell := range row(x) {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			if at, ok := cell.(time.Time); ok {
				cell = Time(at)
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Time formats a time in the local zone.
func Time(at time.Time) string { return at.Local().Format(time.DateTime) }

// Dash returns - for an empty text.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Count formats a number, and 0 as -.
func Count(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// Rate formats calls per second. It shows at least 0.01 for a handler that is called.
func Rate(perS float64) string {
	switch {
	case perS == 0:
		return "-"
	case perS < 1:
		return fmt.Sprintf("%.2f", max(perS, 0.01))
	case perS < 100:
		return fmt.Sprintf("%.1f", perS)
	}
	return fmt.Sprintf("%.0f", perS)
}

// Percent formats a share.
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// Short returns enough of a hash to distinguish definitions.
func Short(hash string) string {
	const digits = 12
	return hash[:min(digits, len(hash))]
}

// Compact formats a value from a server as JSON.
func Compact(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(data)
}

// A Row has a cell for each column.
type Row = []any
