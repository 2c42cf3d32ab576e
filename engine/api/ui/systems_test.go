package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/ui"
	"procaas/engine/canary"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/enginetest/pages"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

func options() ui.Options { return pages.Options(credentials.Grant{}) }

func TestStyleGuideIsForThoseWhoDevelop(t *testing.T) {
	t.Parallel()
	o := options()
	pages.Open(t, o, ui.StyleGuide, http.StatusNotFound, "procaas dev has it")
	o.Dev = true
	pages.Open(t, o, ui.StyleGuide, http.StatusOK, `class="chip bad"`, `aria-current="page">Style guide`)
}

// held is an engine whose handler an operator holds: no call fails, and no run ends.
type held struct{ troubled }

func (held) Handlers() []stats.HandlerInfo {
	ratio := 1.0
	return []stats.HandlerInfo{{
		Path: "p/s/h", Switch: "hold", SuccessRatio: &ratio, Owner: "team-p",
		Effective: []string{"held until 2126-11-21T12:03:00Z"},
	}}
}

func (held) Active() []stats.HandlerInfo { return held{}.Handlers() }

func (held) Services() []guard.ServiceInfo {
	since := time.Date(2026, 11, 21, 12, 3, 0, 0, time.UTC)
	return []guard.ServiceInfo{{ID: "bonus", FailingSince: &since}}
}

func (held) Durations() []stats.DurationView { return nil }

func (held) Backlog() stats.BacklogView {
	return stats.BacklogView{Parked: []stats.ParkedRuns{
		{Pipeline: "p", Reason: stats.ParkedHold, For: "p/s/h", Runs: 683, AgeS: 240},
		{Pipeline: "p", Reason: stats.ParkedBlocking, Runs: 1, AgeS: 5},
		{Pipeline: "p", Reason: stats.ParkedTime, Runs: 9999, AgeS: 9},
	}}
}

// A hold never looks like health, on any page; what waits for its time is no problem.
func TestEveryPageTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := options()
	o.Engine = ui.Engine{Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{}, History: pages.Plain{}}
	o.Caller = func(*http.Request) credentials.Grant {
		return credentials.Grant{Name: "ann", Role: credentials.RoleViewer}
	}
	for _, path := range []string{"/", "/console/docs", "/console/queue"} {
		pages.Open(t, o, path, http.StatusOK, `>p</a> has failed runs that block their keys`, `>p/<wbr>s/<wbr>h</a> is held`,
			"683 runs wait, the oldest for 4 min 0 s. Nothing is lost",
			`>bonus</a> is down since <time class="clock" datetime="2026-11-21T12:03:00Z">2026-11-21 12:03 UTC`,
			"Runs continue without it.", `title="runs that stand still: 683"`, `title="problems: 3"`, "683</b> held", "1</b> blocked")
	}
}

func (held) Audit(context.Context, store.AuditFilter) ([]records.AuditView, error) { return nil, nil }

func (held) Controls(context.Context) ([]guard.ControlView, error) {
	return []guard.ControlView{{Path: "p/s/h", Control: guard.Control{Mode: guard.ModeHold}, By: "ann", Reason: "they asked"}}, nil
}

// Users who may not switch see no switches. For the others they come first, with what is set and how to lift it.
func TestSwitchesAreForThoseWhoMay(t *testing.T) {
	t.Parallel()
	o := options()
	o.Engine = ui.Engine{Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{}, History: pages.Plain{}}
	body := func(role credentials.Role) string {
		o.Caller = func(*http.Request) credentials.Grant { return credentials.Grant{Name: "ann", Role: role} }
		w := httptest.NewRecorder()
		ui.New(o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/handlers/p/s/h", nil))
		return w.Body.String()
	}
	if page := body(credentials.RoleViewer); strings.Contains(page, "Switch off") || !strings.Contains(page, "Your token allows you to read") {
		t.Errorf("a viewer wants no switches, have\n%s", page)
	}
	page := body(credentials.RoleOperator)
	for _, want := range []string{
		`held until <time class="clock" datetime="2126-11-21T12:03:00Z">2126-11-21 12:03 UTC</time>`,
		"is held for ever, set by ann: they asked", "why lift it", "Switch off", `<h2>Calls</h2>`,
	} {
		i := strings.Index(page, want)
		if i < 0 {
			t.Fatalf("want %q after what came before, have\n%s", want, page)
		}
		page = page[i:]
	}
}

func TestSystemsThatAreNotThereAreSaidToBeAbsent(t *testing.T) {
	t.Parallel()
	c := options()
	pages.Open(t, c, "/console/queue", http.StatusOK, "wait for their turn")
	pages.Open(t, c, "/console/queue/a", http.StatusNotFound, "There is no such page")
	pages.Open(t, c, "/console/clusters", http.StatusNotFound, "There is no such page")
	pages.Open(t, c, "/console/inbox", http.StatusNotFound, "There is no such page")
}

// troubled is an engine all of whose handlers fail; the last of them are critical.
type troubled struct{ pages.Plain }

func (troubled) Durations() []stats.DurationView { return nil }

func (troubled) Handlers() []stats.HandlerInfo {
	var all []stats.HandlerInfo
	ratio := 0.25
	for i := range 20 {
		all = append(all, stats.HandlerInfo{Path: fmt.Sprintf("p/s/h-%d", i), Switch: "on", Critical: i > 17, SuccessRatio: &ratio})
	}
	return all
}
func (troubled) Active() []stats.HandlerInfo                           { return troubled{}.Handlers() }
func (troubled) Pipelines() []stats.PipelineInfo                       { return nil }
func (troubled) Services() []guard.ServiceInfo                         { return nil }
func (troubled) Backlog() stats.BacklogView                            { return stats.BacklogView{} }
func (troubled) Plans() []*planner.Plan                                { return nil }
func (troubled) Nodes(context.Context) ([]records.NodeView, error)     { return nil, nil }
func (troubled) Controls(context.Context) ([]guard.ControlView, error) { return nil, nil }

func TestOverviewNamesWhatStopsRunsFirst(t *testing.T) {
	t.Parallel()
	o := options()
	o.Engine = ui.Engine{
		Definition: troubled{}, Node: troubled{}, Runs: troubled{}, Steering: troubled{}, Switches: troubled{},
		Changes: troubled{}, History: pages.Plain{},
	}
	w := httptest.NewRecorder()
	ui.New(o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	body := w.Body.String()
	first, second, third := strings.Index(body, "h-18</code>"), strings.Index(body, "h-19</code>"), strings.Index(body, "h-0</code>")
	if first < 0 || second < first || third < second || strings.Contains(body, "h-17</code>") || !strings.Contains(body, "And 5 more") {
		t.Errorf("want the two critical ones, thirteen others and how many more, have\n%s", body)
	}
}

// frozen is an engine whose fallbacks are frozen.
type frozen struct{ held }

func (frozen) Handlers() []stats.HandlerInfo {
	since := time.Now()
	return []stats.HandlerInfo{{Path: "p/s/h", Switch: "on", Fallback: &fallback.View{
		State: fallback.Frozen, Since: &since, Reason: "2 of 3 services fail at once",
	}}}
}

func (frozen) Active() []stats.HandlerInfo { return frozen{}.Handlers() }

// tried is an engine with a trial of a new version.
type tried struct {
	pages.Plain
	trial *canary.State
}

func (e tried) Canary() *canary.State { return e.trial }

func (tried) Versions(context.Context, int) ([]definitions.Version, error) {
	return []definitions.Version{
		{Version: "0123456789abcdef", State: definitions.StateCurrent, By: "ann", Changes: "~ handler p/s/h"},
		{Version: "fedcba9876543210", State: "canary 5%", By: "<b>", Runs: 7},
	}, nil
}

func TestDifferencesInTheShadowAreShown(t *testing.T) {
	t.Parallel()
	at := time.Now()
	s := canary.Begin("0123456789abcdef", "fedcba9876543210", canary.Order{Percent: 5, Shadow: true}, 4, nil, "ann", "be polite", at)
	one := canary.ShadowDifference{Pipeline: "p", Kind: "request", Path: "p/s/h", What: "p/s/h sends another body", Was: `"<a>"`, Now: `"b"`, Examples: []string{"r1"}}
	for range 2 {
		s.Decide(at, []model.Tally{s.Tally(canary.Replay{Pipeline: "p", Differs: []canary.ShadowDifference{one}}, at), s.Tally(canary.Replay{Pipeline: "p"}, at)}, s.Old, nil)
	}
	s.Decide(at, []model.Tally{s.Tally(canary.Replay{Pipeline: "p", Skip: "it is too large"}, at), s.Tally(canary.Replay{Call: true}, at)}, s.Old, nil)
	o := options()
	o.Engine.History = tried{trial: s}
	pages.Open(t, o, "/console/versions", http.StatusOK, "<h2>Shadow</h2>", "<b>5 %</b> of the ended runs", "2 as before, 2 different, 1 skipped",
		"p/s/h sends another body", `<code>&#34;&lt;a&gt;&#34;</code>`, `href="/console/runs/r1"`, "1 skipped: it is too large.", "made 1 real calls")
	o.Engine = ui.Engine{Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{}, History: tried{trial: s}}
	pages.Open(t, o, "/", http.StatusOK, `<a href="/console/versions">Shadow</a>`, "2 as before, 2 different, 1 skipped")
	s.End(canary.RolledBack, "ann rolled it back", at)
	pages.Open(t, o, "/console/versions", http.StatusOK, "The last shadow", "in the shadow of <b>5 %</b> of the ended runs", "p/s/h sends another body")
}

func TestCanariesAndFrozenFallbacksAreShown(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Minute)
	s := canary.Begin("0123456789abcdef", "fedcba9876543210", canary.Order{Percent: 5}, 4, nil, "ann", "be <polite>", began)
	s.Seen = map[string]*canary.Pair{"errors p/s/h": {Old: canary.Side{Good: 99, Bad: 1}, New: canary.Side{Good: 3, Bad: 7}}}
	o := options()
	o.Engine.History = tried{trial: s}
	pages.Open(t, o, "/console/versions", http.StatusOK, `<span class="chip">running</span>`, "<b>5 %</b> of the keys",
		`title="fedcba9876543210">fedcba987654<`, "25 % follow at", "after 0 of 100 runs", "be &lt;polite&gt;", "1 of 100", "7 of 10",
		"~ handler p/s/h", "canary 5%")

	s.Auto = true
	s.End(canary.RolledBack, "errors of p/s/h: 7 of 10", time.Now())
	o.Caller = func(*http.Request) credentials.Grant {
		return credentials.Grant{Name: "ann", Role: credentials.RoleViewer}
	}
	o.Engine = ui.Engine{
		Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{},
		History: tried{trial: s},
	}
	pages.Open(t, o, "/", http.StatusOK, `href="/console/versions">fedcba987654</a> was rolled back by itself at`,
		"errors of p/s/h: 7 of 10.")
	pages.Open(t, o, "/console/versions", http.StatusOK, "The last canary", `<span class="chip fair">rolled back</span>`,
		"errors of p/s/h: 7 of 10.")

	o.Engine.Node = frozen{}
	pages.Open(t, o, "/", http.StatusOK, ">fallbacks</a> are frozen since",
		"No handler goes out of the flow by itself: 2 of 3 services fail at once.")
	o.Engine.History = tried{}
	pages.Open(t, o, "/console/versions", http.StatusOK, "No canary has run")
}
