package demo

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"procaas/engine/fallback"
	"procaas/engine/stats"
)

func TestDemoTellsWhatHappensByItself(t *testing.T) {
	t.Parallel()
	now := time.Now()
	until := now.Add(90 * time.Second)
	view := func(state string, service string) *fallback.View {
		since := now.Add(-30 * time.Second)
		v := &fallback.View{State: state, Service: service, Since: &since, Until: &until, Reason: "it fails"}
		if state == fallback.Probing {
			v.Until = nil
		}
		return v
	}
	handlers := func(views ...*fallback.View) (list []stats.HandlerInfo) {
		for i, path := range []string{"p/s/one", "p/s/two", "p/s/three"} {
			h := stats.HandlerInfo{Path: path}
			if i < len(views) {
				h.Fallback = views[i]
			}
			list = append(list, h)
		}
		return list
	}
	var n news
	var told []string
	for _, at := range []struct {
		incident string
		handlers []stats.HandlerInfo
	}{
		{"", handlers(view(fallback.In, ""))},
		{"push-down", handlers()},
		{"push-down", handlers(view(fallback.Out, ""))},
		{"push-down", handlers(view(fallback.Out, ""))},
		{"push-down", handlers(nil, view(fallback.Out, "push"), view(fallback.Out, "push"))},
		{"push-down", handlers(nil, view(fallback.Probing, "push"), view(fallback.Probing, "push"))},
		{"push-down", handlers(nil, view(fallback.Out, "push"), view(fallback.Out, "push"))},
		{"", handlers(nil, view(fallback.Probing, "push"), view(fallback.Probing, "push"))},
		{"", handlers(nil, view(fallback.Ramping, "push"), view(fallback.Ramping, "push"))},
		{"", handlers()},
	} {
		told = append(told, n.hear(at.incident, outagesIn(at.handlers))...)
		if line := n.line(now); line != "" {
			told = append(told, "   "+line)
		}
	}
	n.hear("", nil) // the server does not answer
	have := regexp.MustCompile(`\d\d:\d\d:\d\d`).ReplaceAllString(strings.Join(told, "\n"), "TIME")
	const want = `incident push-down begins
fallback on: p/s/one is out of the flow until TIME: it fails
     fallback: one out for 1m30s
     fallback: one out for 1m30s
fallback on: service push is out of the flow until TIME: it fails
fallback off: p/s/one is back in the flow after 30s
     fallback: service push out for 1m30s
fallback: one call a second tries whether service push works again
     fallback: service push probing
fallback goes on until TIME: service push still fails
     fallback: service push out for 1m30s
incident push-down is over
fallback: one call a second tries whether service push works again
     fallback: service push probing
fallback: service push works again, until TIME more and more of its calls are made
     fallback: service push ramping for 1m30s
fallback off: service push is back in the flow after 30s`
	if have != want {
		t.Errorf("want\n%s\nhave\n%s", want, have)
	}
}
