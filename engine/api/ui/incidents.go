package ui

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/seen"
	"procaas/engine/api/ui/words"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

type incidentsData struct {
	Given       map[string]string // the time as it was asked for
	Query       string            // the same, for addresses
	Ranges      []string
	Since       time.Time
	Until       time.Time // zero is now
	Errors      []float64 // without scripts
	Incidents   []incidentRow
	Changes     []records.AuditView
	Failed      *records.RunsPreview // that nobody has retried
	FailedTotal int64                // with those that somebody has
	Wrong       []problem            // now
}

// An incidentRow is a problem with what happened while it lasted.
type incidentRow struct {
	seen.Incident
	Began   time.Time
	Lasted  string
	Now     bool  // it lasts
	Failed  int64 // runs
	LeftOut int64 // runs that went on without a handler
}

// period reads which time is asked for: the last hour unless something else is, until now when to is zero.
func period(r *http.Request) (from, to time.Time, err error) {
	f, given, err := filter(r)
	if err == nil && given["since"] == "" {
		f.Since = time.Now().Add(-time.Hour)
	}
	return f.Since, f.Until, err
}

// incidents shows what was wrong, what was changed and what it came to, on the page or as Markdown for a post-mortem.
func (c *Console) incidents(w http.ResponseWriter, r *http.Request) (err error) {
	d := incidentsData{
		Given:  map[string]string{"since": cmp.Or(r.FormValue("since"), "1h"), "until": r.FormValue("until")},
		Ranges: []string{"15m", "1h", "6h", "24h", "168h"}, Wrong: c.problems(),
	}
	d.Query = url.Values{"since": {d.Given["since"]}, "until": {d.Given["until"]}}.Encode()
	if d.Since, d.Until, err = period(r); err != nil {
		return err
	}
	c.evidence.Take(time.Now(), c.o.Engine.Numbers(), c.o.Engine.Active(), incidents(d.Wrong, time.Now()))
	all, err := c.evidence.Between(r.Context(), d.Since, d.Until)
	if err != nil {
		return err
	}
	d.tell(all, time.Now())
	if d.Changes, err = c.o.Engine.Audit(r.Context(), store.AuditFilter{Since: d.Since, Until: d.Until, Limit: 100}); err != nil {
		return err
	}
	preview, err := c.o.Engine.Preview(r.Context(), store.RunFilter{Status: model.Failed, Since: d.Since, Until: d.Until})
	if err != nil {
		return err
	}
	d.Failed, d.FailedTotal = &preview, max(d.FailedTotal, int64(preview.Total))
	if strings.HasSuffix(r.URL.Path, ".md") {
		w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="incident.md"`)
		_, _ = io.WriteString(w, d.markdown()) // the client may have left
		return nil
	}
	c.show(w, r, http.StatusOK, "incidents", "Incidents", d)
	return nil
}

// tell says what was wrong, the newest first, and what happened meanwhile.
func (d *incidentsData) tell(all seen.Chapter, now time.Time) {
	if d.Until.IsZero() {
		for _, p := range d.Wrong {
			all.Note(p.incident(now))
		}
	}
	for _, in := range all.Wrong {
		row := incidentRow{Incident: in, Began: time.Unix(in.From, 0), Lasted: words.Span(time.Duration(in.To-in.From) * time.Second)}
		row.Now = in.To >= now.Unix()-2*seen.EvidenceStep
		if row.Now {
			row.Lasted += " so far"
		}
		for _, s := range all.Samples {
			if s.At+seen.EvidenceStep > in.From && s.At <= in.To {
				row.Failed, row.LeftOut = row.Failed+s.Failed, row.LeftOut+s.LeftOut
			}
		}
		d.Incidents = append(d.Incidents, row)
	}
	slices.SortStableFunc(d.Incidents, func(a, b incidentRow) int { return cmp.Compare(b.From, a.From) })
	for _, s := range all.Samples {
		d.FailedTotal += s.Failed
	}
	d.Errors = drawing.Series(all.Samples, func(s seen.Sample) float64 { return s.Share() })
}

// markdown writes what a post-mortem begins with.
func (d *incidentsData) markdown() string {
	const minute = "2006-01-02 15:04:05"
	cell := strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace
	var b strings.Builder
	until := d.Until
	if until.IsZero() {
		until = time.Now()
	}
	fmt.Fprintf(&b, "# Incident, %s to %s UTC\n\n## What was wrong\n\n", d.Since.UTC().Format(minute), until.UTC().Format(minute))
	b.WriteString("| UTC | What | Lasted | Runs that waited, at most | Runs that failed meanwhile | Handlers left out |\n" +
		"| --- | --- | --- | ---: | ---: | ---: |\n")
	for _, in := range slices.Backward(d.Incidents) {
		fmt.Fprintf(&b, "| %s | **%s** %s | %s | %d | %d | %d |\n", in.Began.UTC().Format(minute), cell(in.Name), in.Is, in.Lasted, in.Runs,
			in.Failed, in.LeftOut)
	}
	b.WriteString("\n## Wrong now\n\n")
	for _, p := range d.Wrong {
		fmt.Fprintf(&b, "- **%s** %s: %s %s\n", cell(p.Name), p.Is, p.Text, cell(p.Owner))
	}
	if len(d.Wrong) == 0 {
		b.WriteString("Nothing.\n")
	}
	fmt.Fprintf(&b, "\n## Runs that failed\n\n%d runs. Nobody has retried %d of them:\n\n| Runs | Handler | Error |\n| ---: | --- | --- |\n",
		d.FailedTotal, d.Failed.Total)
	for _, g := range d.Failed.Groups {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", g.Runs, cell(g.FailedPath), cell(g.ErrorClass))
	}
	b.WriteString("\n## Changes\n\n| UTC | Who | What | Why |\n| --- | --- | --- | --- |\n")
	for _, a := range slices.Backward(d.Changes) {
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s |\n", a.Changed.UTC().Format(minute), cell(a.By), a.Kind, cell(a.Name), cell(a.Reason))
	}
	return b.String()
}
