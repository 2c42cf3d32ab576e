package alert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A postableAlert is one alert of Alertmanager's API, version 2.
type postableAlert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// forAlertmanager encodes alerts for Alertmanager. A firing alert gets an end in the future, and
// expires unless it is sent again. Otherwise nothing would end it if this node died.
func (o *Options) forAlertmanager(alerts []Alert, now time.Time) ([]byte, error) {
	out := make([]postableAlert, len(alerts))
	for i := range alerts {
		a := &alerts[i]
		p := postableAlert{
			Labels: o.labels(a), Annotations: o.annotations(a), StartsAt: a.Since.UTC(), EndsAt: now.Add(lapseAfter).UTC(),
			GeneratorURL: a.RunURL(o.Server),
		}
		if !a.Ended.IsZero() {
			p.EndsAt = a.Ended.UTC()
		}
		if !p.EndsAt.After(p.StartsAt) {
			p.EndsAt = p.StartsAt.Add(time.Millisecond)
		}
		out[i] = p
	}
	return json.Marshal(out)
}

// labels identify an alert: the same trouble has the same labels on all nodes at all times.
func (o *Options) labels(a *Alert) map[string]string {
	parts := strings.SplitN(a.Path+"//", "/", 3)
	labels := maps.Clone(o.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for name, value := range map[string]string{
		"alertname": "Procaas" + string(a.Kind), "severity": a.Kind.Severity(), "owner": a.Owner, "path": a.Path,
		"pipeline": parts[0], "stage": parts[1], "handler": strings.TrimRight(parts[2], "/"), "service": a.Service, "node": a.Node,
	} {
		if value != "" {
			labels[name] = value
		}
	}
	return labels
}

// annotations are the texts for people.
func (o *Options) annotations(a *Alert) map[string]string {
	out := map[string]string{}
	for name, value := range map[string]string{
		"summary": a.Summary(), "description": o.description(a), "since": a.Since.UTC().Format(time.RFC3339),
		"last_error": a.Error, "run": a.Run, "run_url": a.RunURL(o.Server), "keys": strings.Join(a.Keys, ", "),
		"handlers": strings.Join(a.Handlers, ", "), "switch_off": a.SwitchOff(o.Server), "switch_on": a.SwitchOn(o.Server),
		"bound": a.Bound(o.Server), "retry": a.Retry(o.Server), "look": a.Look(o.Server), "success_ratio": ratioText(a.Ratio),
	} {
		if value != "" {
			out[name] = value
		}
	}
	return out
}

// description describes the alert in a few lines.
func (o *Options) description(a *Alert) string {
	lines := []string{a.Summary() + "."}
	add := func(format, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf(format, value))
		}
	}
	add("Owner: %s.", a.Owner)
	add("Success ratio: %s.", ratioText(a.Ratio))
	add("Last error: %s", a.Error)
	add("Last run: %s", a.RunURL(o.Server))
	if len(a.Keys) > 0 {
		more := ""
		if a.KeyCount > len(a.Keys) {
			more = fmt.Sprintf(" and %d more", a.KeyCount-len(a.Keys))
		}
		add("Blocked: %s", strings.Join(a.Keys, ", ")+more)
	}
	add("Look: %s", a.Look(o.Server))
	add("Go on when it is mended: %s", a.Retry(o.Server))
	add("Bound the slow handler, after a look at what that would cut: %s", a.Bound(o.Server))
	add("Switch it off: %s", a.SwitchOff(o.Server))
	return strings.Join(lines, "\n")
}

func ratioText(r *float64) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%.3g", *r)
}

// A webhookBody is the body for webhooks.
type webhookBody struct {
	Version int            `json:"version"` // 1
	Sent    time.Time      `json:"sent"`
	Node    string         `json:"node"` // the sender
	Alerts  []webhookAlert `json:"alerts"`
}

// A webhookAlert is one alert for a webhook. The same id comes again at the end, and may come from
// several nodes.
type webhookAlert struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"` // firing or resolved
	Kind     Kind              `json:"kind"`
	Severity string            `json:"severity"`
	Summary  string            `json:"summary"`
	Labels   map[string]string `json:"labels"`
	Path     string            `json:"path,omitempty"`
	Service  string            `json:"service,omitempty"`
	Owner    string            `json:"owner,omitempty"`
	Since    time.Time         `json:"since"`
	Ended    *time.Time        `json:"ended"`
	Until    *time.Time        `json:"until,omitempty"`
	Ratio    *float64          `json:"success_ratio"`
	Error    string            `json:"last_error,omitempty"`
	Run      string            `json:"run,omitempty"`
	RunURL   string            `json:"run_url,omitempty"`
	Runs     int               `json:"runs,omitempty"`
	Keys     []string          `json:"keys,omitempty"`
	KeyCount int               `json:"key_count,omitempty"`
	Handlers []string          `json:"handlers,omitempty"`

	Look      string `json:"look,omitempty"`
	SwitchOff string `json:"switch_off,omitempty"`
	SwitchOn  string `json:"switch_on,omitempty"`
	Retry     string `json:"retry,omitempty"`
}

// forWebhook encodes alerts for a webhook.
func (o *Options) forWebhook(alerts []Alert, now time.Time) ([]byte, error) {
	body := webhookBody{Version: 1, Sent: now.UTC(), Node: o.Node, Alerts: make([]webhookAlert, len(alerts))}
	for i := range alerts {
		a := &alerts[i]
		w := webhookAlert{
			ID: a.ID(), Status: "firing", Kind: a.Kind, Severity: a.Kind.Severity(), Summary: a.Summary(), Labels: o.labels(a),
			Path: a.Path, Service: a.Service, Owner: a.Owner, Since: a.Since.UTC(), Ratio: a.Ratio, Error: a.Error,
			Run: a.Run, RunURL: a.RunURL(o.Server), Runs: a.Runs, Keys: slices.Clone(a.Keys), KeyCount: a.KeyCount, Handlers: a.Handlers,
			Look: a.Look(o.Server), SwitchOff: a.SwitchOff(o.Server), SwitchOn: a.SwitchOn(o.Server), Retry: a.Retry(o.Server),
		}
		if !a.Ended.IsZero() {
			at := a.Ended.UTC()
			w.Status, w.Ended, w.Summary = "resolved", &at, "over: "+w.Summary
		}
		if !a.Until.IsZero() {
			at := a.Until.UTC()
			w.Until = &at
		}
		body.Alerts[i] = w
	}
	return json.Marshal(body)
}
