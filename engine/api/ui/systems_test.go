package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/api/ui"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	engineclusters "procaas/engine/clusters"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	engineinbox "procaas/engine/inbox"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
	enginetransfers "procaas/engine/transfers"
	"procaas/handlers/balancer/language"
)

// plain is an engine of which only what all pages need is there.
type plain struct{ ui.Engine }

func (plain) Bundle() *tree.Bundle {
	b := &tree.Bundle{}
	b.KeepField("clusters", []*language.Cluster{{ID: "fanout"}})
	return b
}
func (plain) Backlog() stats.BacklogView    { return stats.BacklogView{} }
func (plain) Healthy(context.Context) error { return nil }
func (plain) Degraded() error               { return nil }
func (plain) Canary() *canary.State         { return nil }
func (plain) List(context.Context, store.RunFilter) ([]checkpoint.RunView, string, error) {
	return nil, "", nil
}

type tasks struct{}

func (tasks) TaskStats(context.Context) ([]store.TaskTypeStats, error) {
	return []store.TaskTypeStats{
		{
			Type: "mail/send", Mode: store.TasksPaused, Reason: "<b>", Ready: 7, Failed: 2, Lag: 90 * time.Second,
			Oldest: time.Now().Add(-time.Minute),
		},
		{
			Type: "resize", Mode: store.TasksOpen, Ready: 4096, Estimated: []store.TaskState{store.TaskReady}, Asked: time.Now(), Raised: 3,
			RaisedLast: time.Now(),
		},
	}, nil
}

func (tasks) TaskTables(context.Context) ([]store.TaskTable, error) {
	return []store.TaskTable{{Name: "tasks", Bytes: 1 << 30, Live: 5, Dead: 4_000_000}, {Name: "task_keys", Live: 1, Dead: 900}}, nil
}

func (tasks) PeekTasks(_ context.Context, f store.TaskFilter) ([]store.QueuedTask, error) {
	return []store.QueuedTask{{
		ID: 41, Type: f.Type, State: f.State, Key: "<b>", Payload: json.RawMessage(`{"to":"<b>"}`),
		Error: string(f.State) + ": 503",
	}}, nil
}

type shards struct{}

func (shards) MapViews(context.Context) ([]enginetransfers.ShardMapView, error) {
	return []enginetransfers.ShardMapView{{ID: "accounts", Key: []string{"uid"}, Strategy: "directory", Shards: 1}}, nil
}

func (shards) Shards(_ context.Context, m string) ([]enginetransfers.ShardView, error) {
	return []enginetransfers.ShardView{{
		Map: m, ID: "s-1", Draining: "<b>", Capacity: 10 << 30, Used: 9 << 30, Usage: 0.9, Problem: "no master",
		Hosts: []enginetransfers.ShardHostView{
			{Address: "h:5432", Role: "replica", Alive: true, LagMS: 17},
			{Address: "g:5432", Error: "refused"},
		},
	}}, nil
}

type transfers struct{}

func (transfers) ShardTransfers(_ context.Context, m string) ([]enginetransfers.ShardTransfer, error) {
	return []enginetransfers.ShardTransfer{{
		Map: m, Key: "u-7", Source: "s-1", Target: "s-2", State: enginetransfers.TransferRunning, Step: "copy", Rows: 42,
		Total: 84, Percent: 50, Lag: 2048, Rollback: "possible",
	}}, nil
}

type clusters struct{}

func (clusters) ClusterStatus(_ context.Context, id string) (engineclusters.ClusterStatus, error) {
	return engineclusters.ClusterStatus{
		Cluster: &language.Cluster{ID: id}, Assignment: engineclusters.Assignment{Version: 9},
		Levers: engineclusters.Levers{
			Frozen: &engineclusters.Lever{By: "ann", Reason: "<b>"},
			Pins:   map[int]engineclusters.Lever{3: {Worker: "w-1", By: "ann"}},
		},
		State: engineclusters.ClusterState{
			Time: time.Now(), Gini: 0.25, Alerts: []string{"worker w-2 is down"},
			Workers: []engineclusters.Seen{{ID: "w-1", Up: true, Weight: 30}, {ID: "w-2", Problem: "<b>", Weight: 10}},
		},
	}, nil
}

func (clusters) ClusterMoves(context.Context, string) ([]engineclusters.MoveLog, error) {
	return []engineclusters.MoveLog{{Partition: 5, To: "w-1", Reason: "first"}, {Partition: 6, From: "w-1", To: "w-2", Reason: "last"}}, nil
}

type inbox struct{}

func (inbox) Inbox(context.Context) (engineinbox.View, error) {
	now := time.Now()
	return engineinbox.View{
		Slots: 4096,
		Cells: []engineinbox.Cell{
			{Name: "home", Slots: 3072, Spans: "0-3071", Waiting: 12, Outbox: 1000}, {
				Name: "b", Slots: 1024, Spans: "3072-4095",
				Away: "dial <b>: refused",
			}, {Name: "new"},
		},
		Moves: []engineinbox.Move{
			{ID: "m-2", From: "home", To: "new", Slots: 512, Step: "copying", By: "ann", Reason: "<b>", Begun: now, Rows: 41},
			{
				ID: "m-1", From: "b", To: "home", Slots: 256, Step: "undone", Begun: now.Add(-3 * time.Second), Ended: &now, FrozenS: 0.017,
				Error: "b is <b>",
			},
		},
	}, nil
}

func options() ui.Options {
	return ui.Options{
		Engine: ui.Engine{Definition: plain{}, Node: plain{}, Runs: plain{}, History: plain{}}, Log: slog.New(slog.DiscardHandler),
		Numbers: func() ui.Numbers { return ui.Numbers{} },
		Caller:  func(*http.Request) credentials.Grant { return credentials.Grant{} },
	}
}

func page(t *testing.T, c *ui.Console, path string, status int, want ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != status {
		t.Errorf("%s: want %d, have %d", path, status, w.Code)
	}
	for _, text := range want {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: want %q, have\n%s", path, text, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "<b><") || strings.Contains(w.Body.String(), "%!") {
		t.Errorf("%s: what comes from elsewhere is text, have\n%s", path, w.Body)
	}
}

func TestSystemsHaveTheirPages(t *testing.T) {
	t.Parallel()
	o := options()
	o.Tasks, o.Shards, o.Clusters, o.Transfers, o.Inbox = tasks{}, shards{}, clusters{}, transfers{}, inbox{}
	c := ui.New(o)
	page(t, c, "/console/queue", http.StatusOK, "mail/send", "paused", "1 min 30 s", `class="chip bad">2<`,
		`class="chip bad">4000000<`, "<code>vacuum (analyze, verbose) tasks;</code>", `<td class="number">900<td>–`)
	page(t, c, "/console/queue/mail/send", http.StatusOK, "ready: 503", "failed: 503", "beyond the tolerance")
	page(t, c, "/console/queue/mail/sent", http.StatusNotFound, "Did you mean mail/send?")
	page(t, c, "/console/shards", http.StatusOK, "accounts", "90 % of 10 GiB", "17 ms behind", "refused", "no master", "draining",
		"u-7", "42 of about 84 rows", `width="50"`, "2 KiB", "can be rolled back")
	page(t, c, "/console/inbox", http.StatusOK, `aria-current="page">Inbox`, "4096 slots", `width="75"`, "75 %", "1000 or more",
		"The database b cannot be reached: dial &lt;b&gt;: refused",
		"unknown", "copying", "so far", "undone", "17 ms", "<td class=\"number\">3.0 s")
	page(t, c, "/console/queue", http.StatusOK, "By databases of the inbox")
	page(t, c, "/console/clusters", http.StatusOK, "fanout", "nothing moves", "partition 3 stays on w-1", "worker w-2 is down",
		`width="100"`, `width="33.3`, "last")
}

func TestStyleGuideIsForThoseWhoDevelop(t *testing.T) {
	t.Parallel()
	o := options()
	page(t, ui.New(o), ui.StyleGuide, http.StatusNotFound, "procaas dev has it")
	o.Dev = true
	page(t, ui.New(o), ui.StyleGuide, http.StatusOK, `class="chip bad"`, `aria-current="page">Style guide`)
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
	o.Engine = ui.Engine{Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{}, History: plain{}}
	o.Caller = func(*http.Request) credentials.Grant {
		return credentials.Grant{Name: "ann", Role: credentials.RoleViewer}
	}
	for _, path := range []string{"/", "/console/docs", "/console/queue"} {
		page(t, ui.New(o), path, http.StatusOK, `>p</a> has failed runs that block their keys`, `>p/<wbr>s/<wbr>h</a> is held`,
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
	o.Engine = ui.Engine{Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{}, History: plain{}}
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
	c := ui.New(options())
	page(t, c, "/console/queue", http.StatusOK, "This node has no task queue")
	page(t, c, "/console/queue/a", http.StatusNotFound, "This node has no task queue")
	page(t, c, "/console/shards", http.StatusOK, "has no shard maps")
	page(t, c, "/console/clusters", http.StatusOK, "There are no clusters")
	page(t, c, "/console/inbox", http.StatusOK, "The inbox has one database", "serve --cell")
}

// troubled is an engine all of whose handlers fail; the last of them are critical.
type troubled struct{ plain }

func (troubled) Durations() []stats.DurationView { return nil }

func (troubled) Handlers() []stats.HandlerInfo {
	var all []stats.HandlerInfo
	ratio := 0.25
	for i := range 20 {
		all = append(all, stats.HandlerInfo{Path: fmt.Sprintf("p/s/h-%d", i), Switch: "on", Critical: i > 17, SuccessRatio: &ratio})
	}
	return all
}
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
		Changes: troubled{}, History: plain{},
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

// tried is an engine with a trial of a new version.
type tried struct {
	plain
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
	page(t, ui.New(o), "/console/versions", http.StatusOK, "<h2>Shadow</h2>", "<b>5 %</b> of the ended runs", "2 as before, 2 different, 1 skipped",
		"p/s/h sends another body", `<code>&#34;&lt;a&gt;&#34;</code>`, `href="/console/runs/r1"`, "1 skipped: it is too large.", "made 1 real calls")
	o.Engine = ui.Engine{Definition: held{}, Node: held{}, Runs: held{}, Steering: held{}, Switches: held{}, Changes: held{}, History: tried{trial: s}}
	page(t, ui.New(o), "/", http.StatusOK, `<a href="/console/versions">Shadow</a>`, "2 as before, 2 different, 1 skipped")
	s.End(canary.RolledBack, "ann rolled it back", at)
	page(t, ui.New(o), "/console/versions", http.StatusOK, "The last shadow", "in the shadow of <b>5 %</b> of the ended runs", "p/s/h sends another body")
}

func TestCanariesAndFrozenFallbacksAreShown(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Minute)
	s := canary.Begin("0123456789abcdef", "fedcba9876543210", canary.Order{Percent: 5}, 4, nil, "ann", "be <polite>", began)
	s.Seen = map[string]*canary.Pair{"errors p/s/h": {Old: canary.Side{Good: 99, Bad: 1}, New: canary.Side{Good: 3, Bad: 7}}}
	o := options()
	o.Engine.History = tried{trial: s}
	page(t, ui.New(o), "/console/versions", http.StatusOK, `<span class="chip">running</span>`, "<b>5 %</b> of the keys",
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
	page(t, ui.New(o), "/", http.StatusOK, `href="/console/versions">fedcba987654</a> was rolled back by itself at`,
		"errors of p/s/h: 7 of 10.")
	page(t, ui.New(o), "/console/versions", http.StatusOK, "The last canary", `<span class="chip fair">rolled back</span>`,
		"errors of p/s/h: 7 of 10.")

	o.Engine.Node = frozen{}
	page(t, ui.New(o), "/", http.StatusOK, ">fallbacks</a> are frozen since",
		"No handler goes out of the flow by itself: 2 of 3 services fail at once.")
	o.Engine.History = tried{}
	page(t, ui.New(o), "/console/versions", http.StatusOK, "No canary has run")
}
