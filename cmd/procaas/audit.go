package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine"
	"procaas/engine/api/wire"
	"procaas/engine/store"
)

func auditCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what on a server, newest first",
		Example: `  procaas audit --name new-order-created/notify --since 2h
  procaas audit --kind token --format json`,
		Args: cobra.NoArgs,
	}
	var f clientFlags
	f.add(c)
	var filter store.AuditFilter
	flags := c.Flags()
	flags.StringVar(&filter.Kind, "kind", "", "only changes of this kind: "+strings.Join(store.AuditKinds(), ", "))
	flags.StringVar(&filter.Name, "name", "", "only changes of this setting, token, service or run, or at or below this path")
	flags.StringVar(&filter.By, "by", "", "only changes by this actor: the name of a token")
	flags.IntVar(&filter.Limit, "limit", 20, "how many, at most 1000")
	since := flags.String("since", "", "only changes made then or later: a time, or a duration before now such as 1h")
	until := flags.String("until", "", "only changes made before: a time, or a duration before now")
	cursor := flags.String("cursor", "", "go on where the page before ended")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		if err := pageSize(filter.Limit); err != nil {
			return err
		}
		now := time.Now()
		var err error
		if filter.Since, err = instant("--since", *since, now); err != nil {
			return err
		}
		if filter.Until, err = instant("--until", *until, now); err != nil {
			return err
		}
		page, err := f.client().Audit(c.Context(), filter, *cursor)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, page)
		}
		return showAudit(s, page)
	})
	c.AddCommand(auditVerify(s, &f))
	return c
}

func auditVerify(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "verify",
		Short: "Tell whether the audit is as it was written",
		Long: `verify reads the whole audit of a server. Each record has a hash of what it says
and of the hash of the record before it, so one that was changed, removed or put in
later does not fit: verify names the first of these, and exits with 1.

Who can write to the database can make all hashes anew. Keep the head that verify
prints where they cannot write, such as in a ticket or a log of another system, and
give it later with --expect: then the records up to it are as they were.`,
		Example: `  procaas audit verify
  procaas audit verify --expect "$(cat kept-elsewhere)"`,
		Args: cobra.NoArgs,
	}
	expect := c.Flags().StringSlice("expect", nil, "a head that verify printed before, which must still be there (repeatable)")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		report, err := f.client().VerifyAudit(c.Context(), *expect)
		if err != nil {
			return err
		}
		if out == "json" {
			err = printJSON(s.out, report)
		} else {
			showChains(s, report)
		}
		if err == nil && !report.Whole {
			return errFindings
		}
		return err
	})
	return c
}

func showChains(s streams, report engine.AuditReport) {
	for _, c := range report.Chains {
		cell := ""
		if c.Cell != "" {
			cell = c.Cell + ": "
		}
		fmt.Fprintf(s.out, "%s%d records fit", cell, c.Records)
		if c.Trimmed > 0 {
			fmt.Fprintf(s.out, ", those up to %d were removed for their age", c.Trimmed)
		}
		if c.Older > 0 {
			fmt.Fprintf(s.out, ", %d are from before records were chained", c.Older)
		}
		fmt.Fprintln(s.out)
		if c.Head != "" {
			fmt.Fprintf(s.out, "%shead %s (record %d)\n", cell, c.Head, c.Last)
		}
		if b := c.Break; b != nil {
			at := ""
			if !b.Changed.IsZero() {
				at = " of " + b.Changed.Format(time.RFC3339)
			}
			fmt.Fprintf(s.err, "procaas: %srecord %d%s does not fit: found %s; want %s\n", cell, b.Revision, at, b.Found, b.Want)
		}
	}
	for _, hash := range report.Missing {
		fmt.Fprintf(s.err, "procaas: %s is not in the audit: the records up to it were made anew, or removed for their age\n", hash)
	}
}

func showAudit(s streams, page wire.Page[engine.AuditView]) error {
	w := newTable(s.out, "REVISION\tCHANGED\tBY\tKIND\tNAME\tCHANGE\tREASON")
	for _, a := range page.Items {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Revision, a.Changed.Local().Format(time.DateTime),
			a.By, a.Kind, dash(a.Name), changeText(a.Before, a.After), a.Reason)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if page.Next != nil {
		fmt.Fprintf(s.err, "more: procaas audit --cursor %s\n", *page.Next)
	}
	return nil
}

// changeText tells on a part of a line what a change has changed; --format json
// tells all of it.
func changeText(before, after any) string {
	if after == nil {
		return "removed " + briefly(before)
	}
	old, isObject := before.(map[string]any)
	now, stillObject := after.(map[string]any)
	if !isObject || !stillObject {
		if before == nil {
			return briefly(after)
		}
		return briefly(before) + " -> " + briefly(after)
	}
	all := maps.Clone(old)
	maps.Copy(all, now)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was, is := briefly(old[name]), briefly(now[name]); was != is {
			parts = append(parts, name+": "+was+" -> "+is)
		}
	}
	return strings.Join(parts, ", ")
}

// briefly shows a value of the audit.
func briefly(v any) string {
	if v == nil {
		return "none"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	const most = 60
	if text := []rune(string(data)); len(text) > most {
		return string(text[:most-1]) + "…"
	}
	return string(data)
}
