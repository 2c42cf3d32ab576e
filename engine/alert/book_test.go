package alert

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine/canary"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
)

// A stage is a world for a book, with a clock of its own.
type stage struct {
	t        *testing.T
	book     *book
	now      time.Time
	handlers map[string]stats.HandlerInfo
	services []guard.ServiceInfo
	parked   []stats.ParkedRuns
	trial    *canary.State
	late     []stats.LateRuns
	firing   map[string]bool
}

func newStage(t *testing.T) *stage {
	return &stage{
		t: t, book: newBook(), now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), firing: map[string]bool{},
		handlers: map[string]stats.HandlerInfo{
			"work/a/pay":   {Path: "work/a/pay", Owner: "team-pay", Critical: true},
			"work/a/bonus": {Path: "work/a/bonus", Owner: "team-bonus"},
			"work/a/mail":  {Path: "work/a/mail"},
		},
	}
}

func (s *stage) Handler(path string) (stats.HandlerInfo, bool) {
	h, ok := s.handlers[path]
	return h, ok
}

func (s *stage) Handlers() []stats.HandlerInfo {
	var out []stats.HandlerInfo
	for _, h := range s.handlers {
		out = append(out, h)
	}
	return out
}

func (s *stage) Services() []guard.ServiceInfo { return s.services }
func (s *stage) Backlog() stats.BacklogView    { return stats.BacklogView{Parked: s.parked} }
func (s *stage) Late() []stats.LateRuns        { return s.late }
func (s *stage) Canary() *canary.State         { return s.trial }

// set changes a handler.
func (s *stage) set(path string, change func(*stats.HandlerInfo)) {
	h := s.handlers[path]
	change(&h)
	s.handlers[path] = h
}

func (s *stage) pass(d time.Duration) { s.now = s.now.Add(d) }

func (s *stage) tell(kind model.NoticeKind, path string, change ...func(*model.Notice)) {
	n := model.Notice{Kind: kind, Path: path, Run: "r-1", Flow: "order", Key: "o-1", Error: "no luck"}
	for _, f := range change {
		f(&n)
	}
	s.book.heed(n, s.now)
}

// want sweeps and compares what begins to fire (+) and ends (-). Whatever fires,
// no path has two alerts.
func (s *stage) want(want ...string) {
	s.t.Helper()
	var have []string
	paths := map[string]bool{}
	for _, a := range s.book.sweep("n1", s, s.now) {
		name := fmt.Sprintf("%s %s", a.Kind, a.Path+a.Service+a.Node)
		switch {
		case !a.Ended.IsZero():
			have = append(have, "- "+name)
			delete(s.firing, name)
			continue
		case !s.firing[name]:
			have = append(have, "+ "+name)
			s.firing[name] = true
		}
		if a.Path != "" && paths[a.Path] {
			s.t.Errorf("%s has two alerts", a.Path)
		}
		paths[a.Path] = true
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		s.t.Errorf("at %s: want %q, have %q", s.now.Format(time.TimeOnly), want, have)
	}
}

func TestHandlerThatKeepsFailing(t *testing.T) {
	t.Parallel()
	s, bad, good := newStage(t), 0.0, 0.99
	s.set("work/a/bonus", func(h *stats.HandlerInfo) { h.SuccessRatio = &good })
	for range 50 {
		s.tell(model.NoticeGivenUp, "work/a/bonus")
		s.want() // one in a hundred fails
		s.pass(time.Second)
	}
	s.set("work/a/bonus", func(h *stats.HandlerInfo) { h.SuccessRatio = &bad })
	s.want("+ HandlerFailing work/a/bonus")
	for range 1000 { // no storm
		s.tell(model.NoticeGivenUp, "work/a/bonus")
		s.pass(time.Second)
		s.want()
	}
	s.pass(6 * time.Minute)
	s.want() // nobody knows yet whether it works again
	later := s.now
	s.set("work/a/bonus", func(h *stats.HandlerInfo) { h.LastSuccess = &later })
	s.want("- HandlerFailing work/a/bonus")
	if len(s.book.paths) != 0 {
		t.Errorf("want nothing remembered, have %v", s.book.paths)
	}
}

func TestHandlerThatFailsNowAndThen(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 10 {
		s.tell(model.NoticeGivenUp, "work/a/bonus")
		s.want()
		s.pass(40 * time.Minute) // two in an hour
	}
	s.pass(time.Hour)
	s.want()
	if len(s.book.paths) != 0 {
		t.Errorf("want nothing remembered, have %v", s.book.paths)
	}
	for range 3 {
		s.tell(model.NoticeGivenUp, "work/a/bonus")
		s.pass(15 * time.Minute)
	}
	s.want("+ HandlerFailing work/a/bonus") // however seldom it is called
}

func TestRunsFailUntilTheySucceedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tell(model.NoticeRunFailed, "work/a/pay")
	s.tell(model.NoticeRunFailed, "loose") // of which there is no handler
	s.want("+ RunFailed loose", "+ RunFailed work/a/pay")
	s.pass(4 * time.Minute)
	s.tell(model.NoticeRunFailed, "work/a/pay")
	s.pass(2 * time.Minute)
	s.want("- RunFailed loose")
	s.pass(10 * time.Minute)
	s.want()
	s.pass(time.Hour)
	s.want("- RunFailed work/a/pay")
}

func TestBlockedKeyIsGraverThanItsFailedRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tell(model.NoticeRunFailed, "work/a/pay")
	s.want("+ RunFailed work/a/pay")
	for i := range 12 {
		s.tell(model.NoticeRunFailed, "work/a/pay", func(n *model.Notice) { n.Run, n.Key = fmt.Sprint("r", i), fmt.Sprint("o", i) })
		s.tell(model.NoticeKeyBlocked, "work/a/pay", func(n *model.Notice) { n.Run, n.Key = fmt.Sprint("r", i), fmt.Sprint("o", i) })
	}
	s.want("+ KeyBlocked work/a/pay", "- RunFailed work/a/pay")
	a := s.book.firing[(&Alert{Kind: KeyBlocked, Path: "work/a/pay"}).ID()]
	if a.KeyCount != 12 || len(a.Keys) != maxKeys || a.Keys[maxKeys-1] != "order/o11" || a.Owner != "team-pay" || !a.Critical {
		t.Errorf("want the last keys of twelve and the owner, have %+v", a)
	}
	s.pass(2 * time.Hour)
	s.want() // however long it takes
	due := s.book.due(s.now, 5)
	if want := []string{"r0", "r1", "r10", "r11", "r2"}; !slices.Equal(due, want) {
		t.Errorf("want %q looked at, have %q", want, due)
	}
	for i := range 12 {
		s.book.found(fmt.Sprint("r", i), i == 0, s.now)
	}
	s.want()
	if due := s.book.due(s.now, 5); len(due) != 0 {
		t.Errorf("want nothing looked at again so soon, have %q", due)
	}
	s.book.found("r0", false, s.now)
	s.want("- KeyBlocked work/a/pay") // and the failures before are forgotten
}

// A compensation that has failed for good is the gravest trouble of its path, and stays until somebody has dealt with the run.
func TestWhatIsNotUndoneIsToldUntilItIs(t *testing.T) {
	t.Parallel()
	s, path := newStage(t), "work/a/pay/compensate"
	s.tell(model.NoticeRunFailed, path)
	s.want("+ RunNotUndone " + path)
	s.tell(model.NoticeKeyBlocked, path)
	s.want()
	a := s.book.firing[(&Alert{Kind: RunNotUndone, Path: path}).ID()]
	if a == nil || !a.Critical || a.Runs != 1 || a.Keys[0] != "order/o-1" || a.Retry("") != "procaas runs retry --handler "+path ||
		a.SwitchOff("") != "procaas switch hold "+path+" --reason 'alert RunNotUndone'" {
		t.Errorf("have %+v", a)
	}
	s.pass(2 * staleAfter)
	s.want()
	s.book.found("r-1", false, s.now)
	s.want("- RunNotUndone " + path)
}

func TestRunThatWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tell(model.NoticeRunParked, "work/a/pay")
	s.want("+ RunParked work/a/pay")
	s.tell(model.NoticeKeyBlocked, "work/a/pay")
	s.want("+ KeyBlocked work/a/pay", "- RunParked work/a/pay")
	a := s.book.firing[(&Alert{Kind: KeyBlocked, Path: "work/a/pay"}).ID()]
	if have := a.Retry("http://s"); have != "procaas runs retry r-1 --server http://s" {
		t.Errorf("want the run itself retried, have %s", have)
	}
	s.book.found("r-1", false, s.now)
	s.want("- KeyBlocked work/a/pay")
}

func TestFallbackTakesOverFromFailures(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 3 {
		s.tell(model.NoticeGivenUp, "work/a/bonus")
	}
	s.want("+ HandlerFailing work/a/bonus")
	s.tell(model.NoticeFallbackOn, "work/a/bonus", func(n *model.Notice) { n.Ratio, n.Until = 0.1, s.now.Add(time.Minute) })
	s.set("work/a/bonus", func(h *stats.HandlerInfo) { h.Fallback = &fallback.View{State: fallback.Out} })
	s.want("+ HandlerDegraded work/a/bonus", "- HandlerFailing work/a/bonus")
	for range 5 { // probes fail
		s.pass(time.Minute)
		s.tell(model.NoticeGivenUp, "work/a/bonus")
		s.want()
	}
	s.set("work/a/bonus", func(h *stats.HandlerInfo) { h.Fallback.State = fallback.In })
	s.tell(model.NoticeFallbackOff, "work/a/bonus")
	s.want("- HandlerDegraded work/a/bonus")

	s.tell(model.NoticeFallbackOn, "work/a/bonus")
	s.want("+ HandlerDegraded work/a/bonus")
	s.pass(outageGrace + time.Second)
	s.want("- HandlerDegraded work/a/bonus") // another node has told of its end
}

func TestServiceThatIsOutIsOneIncident(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 3 {
		s.tell(model.NoticeGivenUp, "work/a/bonus")
	}
	s.tell(model.NoticeFallbackOn, "work/a/mail")
	s.want("+ HandlerDegraded work/a/mail", "+ HandlerFailing work/a/bonus")
	both := []string{"work/a/bonus", "work/a/mail"}
	service := func(n *model.Notice) { n.Path, n.Service, n.Handlers = "", "push", both }
	s.tell(model.NoticeFallbackOn, "", service)
	for _, path := range both {
		s.set(path, func(h *stats.HandlerInfo) {
			h.Fallback = &fallback.View{State: fallback.Out, Service: "push"}
		})
	}
	s.want("+ ServiceDegraded push", "- HandlerDegraded work/a/mail", "- HandlerFailing work/a/bonus")
	s.pass(time.Minute)
	for range 10 {
		s.tell(model.NoticeGivenUp, "work/a/bonus")
	}
	s.want()
	for _, path := range both {
		s.set(path, func(h *stats.HandlerInfo) { h.Fallback.State = fallback.In })
	}
	s.tell(model.NoticeFallbackOff, "", service)
	s.want("- ServiceDegraded push")
}

func TestFrozenFallbacksAndNodesInTrouble(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tell(model.NoticeFrozen, "")
	s.want("+ FallbacksFrozen ")
	s.tell(model.NoticeThawed, "")
	s.want("- FallbacksFrozen ")
	s.tell(model.NoticeFrozen, "")
	s.want("+ FallbacksFrozen ")
	s.pass(outageGrace + time.Second)
	s.want("- FallbacksFrozen ")

	s.book.health(errors.New("store is away"), nil, nil, s.now)
	s.want()
	s.pass(sickAfter)
	s.book.health(errors.New("store is still away"), errors.New("too new"), nil, s.now)
	s.want("+ NodeUnhealthy n1")
	s.pass(sickAfter)
	s.book.health(nil, errors.New("too new"), nil, s.now)
	s.want("+ DefinitionOutdated n1", "- NodeUnhealthy n1")
	s.book.health(nil, nil, errors.New("page 7 cannot be read"), s.now)
	s.want("+ StoreDamaged n1", "- DefinitionOutdated n1")
	s.book.health(nil, nil, nil, s.now)
	s.want("- StoreDamaged n1")
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for i := range maxStuck + 10 {
		s.tell(model.NoticeKeyBlocked, "work/a/pay", func(n *model.Notice) {
			n.Run, n.Error = fmt.Sprint(i), strings.Repeat("ä", 1000)
		})
	}
	s.want("+ KeyBlocked work/a/pay")
	trouble := s.book.paths["work/a/pay"]
	if len(trouble.stuck) != maxStuck || len(trouble.stuck[0].err) > maxError+len("…") {
		t.Errorf("want %d runs with short errors, have %d with %d bytes", maxStuck, len(trouble.stuck), len(trouble.stuck[0].err))
	}
}

func TestCommandsAreExact(t *testing.T) {
	t.Parallel()
	const server = "https://procaas.example/eu?x=1&y"
	for _, c := range []struct{ alert, off, on, retry string }{
		{
			"RunFailed work/a/pay critical", "procaas switch hold work/a/pay --reason 'alert RunFailed' --server 'S'",
			"procaas switch on work/a/pay --server 'S'", "procaas runs retry --handler work/a/pay --server 'S'",
		},
		{
			"HandlerFailing work/a/bonus", "procaas switch off work/a/bonus --reason 'alert HandlerFailing' --server 'S'",
			"procaas switch on work/a/bonus --server 'S'", "",
		},
		{
			"RunFailed work", "procaas switch hold work --reason 'alert RunFailed' --server 'S'", "procaas switch on work --server 'S'",
			"procaas runs retry --handler work --server 'S'",
		},
		{"NodeUnhealthy", "", "", ""},
	} {
		words := strings.Fields(c.alert)
		a := Alert{Kind: Kind(words[0]), Critical: len(words) > 2}
		if len(words) > 1 {
			a.Path = words[1]
		}
		for _, pair := range [][2]string{{c.off, a.SwitchOff(server)}, {c.on, a.SwitchOn(server)}, {c.retry, a.Retry(server)}} {
			if want := strings.ReplaceAll(pair[0], "'S'", "'"+server+"'"); pair[1] != want {
				t.Errorf("%s: want %s, have %s", c.alert, want, pair[1])
			}
		}
	}
	a := Alert{Kind: ServiceDegraded, Service: "push", Handlers: []string{"a/b/c", "a/b/d"}}
	want := "procaas switch off a/b/c --reason 'alert ServiceDegraded' --server http://s; procaas switch off a/b/d --reason 'alert " +
		"ServiceDegraded' --server http://s"
	if have := a.SwitchOff("http://s"); have != want {
		t.Errorf("want %s, have %s", want, have)
	}
}

func TestServiceIsDownBeforeARunFails(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	since := s.now
	orders := guard.ServiceInfo{
		ID: "orders", Owner: "team-orders", Critical: true, Parked: 651, Waiting: 32,
		LastError: "503 from GET /v1/orders",
	}
	push := guard.ServiceInfo{ID: "push", FailingSince: &since} // whose handlers go out by themselves
	s.services = []guard.ServiceInfo{orders, push}
	s.want()
	orders.FailingSince = &since
	s.services[0] = orders
	s.want()
	s.pass(downAfter - time.Second)
	s.services[0].FailingSince = nil // a blip
	s.want()
	s.services[0] = orders
	s.want()
	s.pass(downAfter)
	s.want("+ ServiceDown orders")
	a := *s.book.firing[(&Alert{Kind: ServiceDown, Service: "orders"}).ID()]
	if want := "service orders is down: hardly any call of it succeeds, and 683 runs wait for it"; a.Summary() != want {
		t.Errorf("want %q, have %q", want, a.Summary())
	}
	if !a.Since.Equal(since) || a.Owner != "team-orders" || a.Kind.Severity() != "critical" || a.Error == "" {
		t.Errorf("want since when, whose and why, have %+v", a)
	}
	look := "procaas top --sort failures --server http://s; procaas runs list --status parked --server http://s"
	if a.Look("http://s") != look {
		t.Errorf("want the command to look, have %q", a.Look("http://s"))
	}
	s.services[0].FailingSince = nil
	s.want("- ServiceDown orders")
}

func TestPipelineThatMultipliesIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	since := s.now
	s.parked = []stats.ParkedRuns{{Pipeline: "work", Reason: stats.ParkedService, For: "orders", Runs: 3, Since: since}}
	s.want()
	s.parked = append(s.parked, stats.ParkedRuns{Pipeline: "work", Reason: stats.ParkedLoop, For: "work/a/fetch", Runs: 9123, Since: since})
	s.want("+ PipelineMultiplies work/a/fetch")
	a := *s.book.firing[(&Alert{Kind: PipelineMultiplies, Path: "work/a/fetch"}).ID()]
	want := "work/a/fetch: the runs of the pipeline start more and more of its runs; 9123 runs wait for the budget of that"
	if a.Summary() != want {
		t.Errorf("want %q, have %q", want, a.Summary())
	}
	if want := "procaas runs list --status parked --pipeline work --server http://s"; a.Look("http://s") != want {
		t.Errorf("want the command to look, have %q", a.Look("http://s"))
	}
	s.parked = s.parked[:1]
	s.want("- PipelineMultiplies work/a/fetch")
}

func TestVersionThatWasRolledBackByItself(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.trial = &canary.State{Phase: canary.RolledBack, Why: "ann rolled it back", Ended: s.now}
	s.want()
	s.trial = &canary.State{Phase: canary.RolledBack, Auto: true, Why: "failures of work", Ended: s.now}
	s.want("+ CanaryRolledBack ")
	s.pass(time.Hour)
	s.want("- CanaryRolledBack ")
}

// A missed target is told once, with the handler that costs the time and the command that bounds it.
func TestRunsAreLate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	late := stats.LateRuns{
		Path: "work", Owner: "team-work", Target: 2 * time.Second, Ten: stats.Span{Ended: 100, Late: 5}, Left: new(-4.0), Handler: "work/a/bonus",
	}
	s.late = []stats.LateRuns{late, {Path: "work/a", Target: time.Second, Ten: stats.Span{Ended: 100, Late: 5}}}
	s.want("+ RunsLate work", "+ RunsLate work/a")
	began := s.now
	s.pass(time.Minute)
	s.want()
	a := s.book.firing[(&Alert{Kind: RunsLate, Path: "work"}).ID()]
	if a == nil || !a.Since.Equal(began) || a.Kind.Severity() != "warning" || a.SwitchOff("") != "" ||
		a.Bound("") != "procaas deadline work/a/bonus 500ms --dry-run" ||
		a.Error != "5 of 100 took longer than the target of 2s in the last ten minutes; the slowest runs spent their time in work/a/bonus; "+
			"-400 % of the error budget of the week is left" {
		t.Errorf("have %+v", a)
	}
	s.late = nil
	s.want("- RunsLate work", "- RunsLate work/a")
}

func TestEventsThatNoRunTook(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tell(model.NoticeUntaken, "order")
	s.tell(model.NoticeUntaken, "order")
	s.want("+ EventsUntaken order")
	a := s.book.firing[(&Alert{Kind: EventsUntaken, Path: "order"}).ID()]
	commands := a.SwitchOff("") + a.SwitchOn("") + a.Retry("") + a.Look("")
	if want := "order: no run took 2 events that were kept for it in time"; a.Summary() != want || commands != "procaas runs show r-1" {
		t.Errorf("want %q, and only the event to look at, have %q, %+v", want, a.Summary(), a)
	}
	s.pass(59 * time.Minute)
	s.want()
	s.pass(time.Minute)
	s.want("- EventsUntaken order")
	if len(s.book.paths) != 0 {
		t.Errorf("want nothing remembered, have %v", s.book.paths)
	}
}

func TestCertificateThatEndsSoon(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	until := s.now.Add(10 * time.Hour)
	s.services = []guard.ServiceInfo{{ID: "bank", Certificate: guard.NewServiceCertificate("bank.crt", s.now, until)}}
	s.pass(8*time.Hour - time.Second) // four fifths of its time
	s.want()
	s.pass(time.Second)
	s.want("+ CertificateEnds bank")
	a := s.book.firing[(&Alert{Kind: CertificateEnds, Service: "bank"}).ID()]
	want := "the certificate that nodes show to service bank ends at 2026-01-02T13:00:00Z"
	if a.Summary() != want || a.Look("") != "procaas doctor" {
		t.Errorf("want %q, have %q, %q", want, a.Summary(), a.Look(""))
	}
	s.services[0].Certificate = guard.NewServiceCertificate("bank.crt", s.now, s.now.Add(365*24*time.Hour))
	s.want("- CertificateEnds bank")
	s.pass(351 * 24 * time.Hour) // 14 days before its end
	s.want("+ CertificateEnds bank")
}
