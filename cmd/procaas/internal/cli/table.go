package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Table shows a row for each of some things below a header, whose columns are separated by tabs.
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

// Time shows a time to people.
func Time(at time.Time) string { return at.Local().Format(time.DateTime) }

// Dash shows that there is nothing.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// A Row has a cell for each column.
type Row = []any
