package cli

import (
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

// A Row has a cell for each column.
type Row = []any
