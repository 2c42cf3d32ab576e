package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine"
	"procaas/engine/api"
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
	var filter engine.AuditFilter
	flags := c.Flags()
	flags.StringVar(&filter.Kind, "kind", "", "only changes of this kind: "+strings.Join(engine.AuditKinds(), ", "))
	flags.StringVar(&filter.Name, "name", "", "only changes of this setting, token, service or run, or at or below this path")
	flags.StringVar(&filter.By, "by", "", "only changes by this actor: the name of a token")
	flags.IntVar(&filter.Limit, "limit", 20, "how many, at most 1000")
	since := flags.String("since", "", "only changes made then or later: a time, or a duration before now such as 1h")
	until := flags.String("until", "", "only changes made before: a time, or a duration before now")
	cursor := flags.String("cursor", "", "go on where the page before ended")
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, err := format()
		if err != nil {
			return err
		}
		if err := pageSize(filter.Limit); err != nil {
			return err
		}
		now := time.Now()
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
	}
	return c
}

func showAudit(s streams, page api.Page[engine.AuditView]) error {
	w := tabwriter.NewWriter(s.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "REVISION\tCHANGED\tBY\tKIND\tNAME\tCHANGE\tREASON")
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
