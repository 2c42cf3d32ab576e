package operate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/records"
	"procaas/engine/store"
)

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what on a server, newest first",
		Example: `  procaas audit --name new-order-created/notify --since 2h
  procaas audit --kind token --format json`,
		Args: cobra.NoArgs,
	}
	cli.ServerFlags(c)
	var filter store.AuditFilter
	var when cli.Span
	flags := c.Flags()
	flags.StringVar(&filter.Kind, "kind", "", "only changes of this kind: "+strings.Join(store.AuditKinds(), ", "))
	flags.StringVar(&filter.Name, "name", "", "only changes of this setting, token, service or run, or of this path and below")
	flags.StringVar(&filter.By, "by", "", "only changes by this actor: the name of a token")
	flags.IntVar(&filter.Limit, "limit", 20, "the most entries, up to 1000")
	when.Add(c, "only changes made at this time or later", "only changes made before")
	cursor := flags.String("cursor", "", "continue after the previous page")
	c.AddCommand(auditVerify())
	return cli.Shows(c, func(q *cli.Call) (page wire.Page[records.AuditView], err error) {
		if err = cmp.Or(cli.PageSize(filter.Limit), when.Read(&filter.Since, &filter.Until)); err != nil {
			return page, err
		}
		if filter.Name, err = q.WholePath(filter.Name); err != nil {
			return page, err
		}
		return q.Audit(q.Ctx, filter, *cursor)
	}, showAudit)
}

func auditVerify() *cobra.Command {
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check that nobody changed the audit",
		Long: `verify reads the whole audit of a server. Each record has a hash of its contents and
of the hash of the record before it. A record that somebody changed, removed or added
later does not fit. verify names the first such record and exits with 1.

Somebody who can write to the database can recompute all hashes. Keep the head that
verify prints where they cannot write: in a ticket, or in a log of another system.
Pass it later with --expect to prove that the records up to it are unchanged.`,
		Example: `  procaas audit verify
  procaas audit verify --expect "$(cat kept-elsewhere)"`,
		Args: cobra.NoArgs,
	}
	expect := c.Flags().StringSlice("expect", nil, "a head that verify printed before and that must still exist (repeatable)")
	return cli.Formatted(c, func(q *cli.Call) error {
		report, err := q.VerifyAudit(q.Ctx, *expect)
		if err == nil {
			err = q.Show(report, func() error { showChains(q, report); return nil })
		}
		return cmp.Or(err, cli.FindingsIf(!report.Whole))
	})
}

func showChains(q *cli.Call, report records.AuditReport) {
	for _, c := range report.Chains {
		cell := ""
		if c.Cell != "" {
			cell = c.Cell + ": "
		}
		fmt.Fprintf(q.Out, "%s%d records fit", cell, c.Records)
		if c.Trimmed > 0 {
			fmt.Fprintf(q.Out, ", those up to %d were removed for their age", c.Trimmed)
		}
		if c.Retention != "" {
			fmt.Fprintf(q.Out, " (%s or older)", c.Retention)
		}
		if c.Older > 0 {
			fmt.Fprintf(q.Out, ", %d are from before records were chained", c.Older)
		}
		fmt.Fprintln(q.Out)
		if c.Head != "" {
			fmt.Fprintf(q.Out, "%shead %s (record %d)\n", cell, c.Head, c.Last)
		}
		if b := c.Break; b != nil {
			at := ""
			if !b.Changed.IsZero() {
				at = " of " + b.Changed.Format(time.RFC3339)
			}
			fmt.Fprintf(q.Err, "procaas: %srecord %d%s does not fit: found %s; want %s\n", cell, b.Revision, at, b.Found, b.Want)
		}
	}
	for _, hash := range report.Missing {
		fmt.Fprintf(q.Err, "procaas: %s is not in the audit: the records up to it were made anew, or removed for their age\n", hash)
	}
}

// showAudit prints a line per change, and below it a line per changed field.
func showAudit(q *cli.Call, page wire.Page[records.AuditView]) error {
	var table bytes.Buffer
	err := cli.Table(&table, "REVISION\tCHANGED\tBY\tKIND\tNAME\tREASON", page.Items, func(a records.AuditView) cli.Row {
		return cli.Row{a.Revision, a.Changed, a.By, a.Kind, cli.Dash(a.Name), a.Reason}
	})
	if err != nil {
		return err
	}
	for i, line := range strings.SplitAfter(table.String(), "\n") {
		fmt.Fprint(q.Out, strings.TrimRight(line, " \n"))
		if line != "" {
			fmt.Fprintln(q.Out)
		}
		if i > 0 && i <= len(page.Items) {
			for _, change := range changeLines(page.Items[i-1].Before, page.Items[i-1].After) {
				fmt.Fprintln(q.Out, "    "+change)
			}
		}
	}
	if page.Next != nil {
		fmt.Fprintf(q.Err, "more: procaas audit --cursor %s\n", *page.Next)
	}
	return nil
}

// changeLines returns the old and the new value of each changed field.
func changeLines(before, after any) []string {
	was, is := map[string]string{}, map[string]string{}
	flatten(was, "", before)
	flatten(is, "", after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		// The line of the record that set a part of a control shows who set it.
		if was[name] == is[name] || strings.HasPrefix(name, "setters.") {
			continue
		}
		text := cmp.Or(is[name], "removed")
		if was[name] != "" {
			text = was[name] + " → " + text
		}
		if name != "" {
			text = name + ": " + text
		}
		lines = append(lines, text)
	}
	return lines
}

// flatten adds the values of an object to a map. The names have dots between their parts. It omits empty
// values.
func flatten(to map[string]string, name string, v any) {
	if object, ok := v.(map[string]any); ok {
		for field, value := range object {
			if name != "" {
				field = name + "." + field
			}
			flatten(to, field, value)
		}
		return
	}
	if text := valueText(v); text != "" {
		to[name] = text
	}
}

// valueText formats a value, or returns "" for nothing. It quotes only texts with spaces.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if v == "" || strings.TrimSpace(v) != v || strings.ContainsAny(v, "\n\t") {
			return strconv.Quote(v)
		}
		return v
	}
	return cli.Compact(v)
}
