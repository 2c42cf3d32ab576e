package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/fallback"
	"procaas/engine/stats"
)

// liveLine prints the current state: on a terminal always on the same line, elsewhere a line every ten seconds.
// Events get lines of their own.
func (d *taxiDemo) liveLine(ctx context.Context) error {
	if d.format != "text" {
		return nil
	}
	every, begin, end := 1, "\r\x1b[K", ""
	if !cli.Terminal(d.Err) {
		every, begin, end = 10, "", "\n"
	}
	started := time.Now()
	var known news
	for second := 1; clock.Pause(ctx, time.Second); second++ {
		up := time.Since(started).Round(time.Second)
		all := append(known.hear(d.look(ctx)), known.try(d.node.Engine().Canary().View())...)
		for _, text := range append(all, d.traffic.takeNews()...) {
			_ = cli.Control(d.Err, begin)
			fmt.Fprintf(d.Err, "%s  %s\n", up, text)
		}
		if second%every != 0 {
			continue
		}
		line, err := d.traffic.line(d.node.Metrics(), up)
		if err != nil {
			return err
		}
		_ = cli.Control(d.Err, begin)
		fmt.Fprint(d.Err, line, known.line(time.Now()), end)
	}
	_ = cli.Control(d.Err, strings.TrimSuffix(begin, "\x1b[K"))
	fmt.Fprint(d.Err, end, "\n")
	return nil
}

// look returns the current incident, and what fallbacks have taken out. While the server does not answer, it
// returns nothing.
func (d *taxiDemo) look(ctx context.Context) (incident string, out map[string]fallback.View) {
	d.traffic.mu.Lock()
	incident = d.traffic.incident
	d.traffic.mu.Unlock()
	handlers, err := d.traffic.client.Handlers(ctx)
	if err != nil {
		return incident, nil
	}
	return incident, outagesIn(handlers)
}

// outagesIn returns what fallbacks have taken out, by path or service.
func outagesIn(handlers []stats.HandlerInfo) map[string]fallback.View {
	out := map[string]fallback.View{}
	for _, h := range handlers {
		if !h.Fallback.IsOut() {
			continue
		}
		name := h.Path
		if h.Fallback.Service != "" {
			name = "service " + h.Fallback.Service
		}
		out[name] = *h.Fallback
	}
	return out
}

// news is what was already printed.
type news struct {
	incident string
	out      map[string]fallback.View
	canary   canary.View
}

// hear returns what has changed.
func (n *news) hear(incident string, out map[string]fallback.View) (told []string) {
	switch {
	case incident != "" && n.incident == "":
		told = append(told, "incident "+incident+" begins")
	case incident == "" && n.incident != "":
		told = append(told, "incident "+n.incident+" is over")
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		was, is := n.out[name], out[name]
		switch {
		case is.State == was.State && timeOr(is.Until).Equal(timeOr(was.Until)):
		case is.State == fallback.Out && was.State == fallback.Probing:
			told = append(told, fmt.Sprintf("fallback goes on until %s: %s still fails", clockTime(is.Until), name))
		case is.State == fallback.Out:
			told = append(told, fmt.Sprintf("fallback on: %s is out of the flow until %s: %s", name, clockTime(is.Until), is.Reason))
		case is.State == fallback.Probing:
			told = append(told, fmt.Sprintf("fallback: one call a second tries whether %s works again", name))
		case is.State == fallback.Ramping:
			told = append(told, fmt.Sprintf("fallback: %s works again, until %s more and more of its calls are "+
				"made", name, clockTime(is.Until)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.out)) {
		if _, still := out[name]; !still && out != nil {
			told = append(told, fmt.Sprintf("fallback off: %s is back in the flow after %s", name,
				time.Since(*n.out[name].Since).Round(time.Second)))
		}
	}
	n.incident = incident
	if out != nil {
		n.out = out
	}
	return told
}

// line summarizes what fallbacks have taken out.
func (n *news) line(now time.Time) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(n.out)) {
		o := n.out[name]
		text += "  fallback: " + name[strings.LastIndexByte(name, '/')+1:] + " " + o.State
		if left := timeOr(o.Until).Sub(now); left > 0 {
			text += " for " + cmp.Or(left.Round(time.Second), time.Second).String()
		}
	}
	return text
}

func timeOr(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func clockTime(t *time.Time) string { return timeOr(t).Local().Format(time.TimeOnly) }
