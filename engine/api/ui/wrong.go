package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/seen"
	"procaas/engine/api/ui/words"
	"procaas/engine/credentials"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/stats"
)

// A problem is something that is wrong now, in words, such as: orders is down since 12:03: 683 runs
// wait, the oldest for 4 min 10 s. Nothing is lost.
type problem struct {
	Class string // bad: somebody must act; fair: somebody should know; off: somebody has done it
	Name  string
	Href  string
	Is    string // what it does
	Since *time.Time
	Once  bool // it happened then, and does not last
	Text  string
	Owner string
	Runs  int // that stand still for it

	handlers bool // it is about a handler, and not about what waits
}

// shownProblems bounds the banner: with all services down the page itself should still be seen.
const shownProblems = 6

// problems tells what is wrong now, the worst first.
func (c *Console) problems() []problem {
	services, parked, handlers := c.o.Engine.Services(), c.o.Engine.Backlog().Parked, c.o.Engine.Active()
	var out []problem
	down := map[string]bool{}
	for _, s := range services {
		if s.FailingSince != nil {
			down[s.ID] = true
			out = append(out, serviceProblem(s))
		}
	}
	for _, p := range parked {
		if one, is := parkedProblem(p); is {
			out = append(out, one)
		}
	}
	calls := map[string]bool{} // handlers whose service is down: that says it all
	if len(down) > 0 {
		for _, p := range c.o.Engine.Plans() {
			for _, stage := range p.Stages {
				for _, s := range stage.Steps {
					calls[s.Path] = s.Service != nil && down[s.Service.ID]
				}
			}
		}
	}
	for _, h := range handlers {
		heldAbove := slices.ContainsFunc(parked, func(p stats.ParkedRuns) bool {
			return p.Reason == stats.ParkedHold && (h.Path == p.For || strings.HasPrefix(h.Path, p.For+"/"))
		})
		if one, is := handlerProblem(h, calls[h.Path]); is && (!heldAbove || h.Switch != "hold") {
			out = append(out, one)
		}
	}
	if i := slices.IndexFunc(handlers, func(h stats.HandlerInfo) bool {
		return h.Fallback != nil &&
			h.Fallback.State == fallback.Frozen
	}); i >= 0 {
		out = append(out, problem{
			Class: "fair", Name: "fallbacks", Href: DocsRoot + "/operating/failing-services", Is: "are frozen", Since: handlers[i].Fallback.Since,
			Text: "No handler goes out of the flow by itself: " + handlers[i].Fallback.Reason + ".",
		})
	}
	if one, is := canaryProblem(c.o.Engine.Canary(), time.Now()); is {
		out = append(out, one)
	}
	rank := []string{"bad", "fair", "off"}
	slices.SortStableFunc(out, func(a, b problem) int { return slices.Index(rank, a.Class) - slices.Index(rank, b.Class) })
	return out
}

// isDown is what a service does that does not answer.
const isDown = "is down"

// serviceProblem tells of a service that does not answer.
func serviceProblem(s guard.ServiceInfo) problem {
	p := problem{Class: "fair", Name: s.ID, Href: "/#services", Is: isDown, Since: s.FailingSince, Owner: s.Owner}
	if s.ClosedUntil != nil {
		p.Is = "is paused by its Retry-After"
	}
	waiting := s.Parked + s.Waiting
	p.Runs = int(waiting)
	switch since := s.ParkedSince; {
	case waiting > 0 && since != nil:
		p.Text = runsWait(waiting, time.Since(*since)) + " Nothing is lost."
	case waiting > 0:
		p.Text = runsWait(waiting, 0) + " Nothing is lost."
	case s.Critical:
		p.Text = "No run waits for it yet."
	default:
		p.Text = "Runs continue without it."
	}
	if s.Critical || waiting > 0 {
		p.Class = "bad"
	}
	return p
}

// runsWait counts runs that stand still.
func runsWait(runs int, longest time.Duration) string {
	text := fmt.Sprintf("%d runs wait", runs)
	if runs == 1 {
		text = "1 run waits"
	}
	if longest > 0 {
		text += ", the oldest for " + words.Span(longest)
	}
	return text + "."
}

// parkedProblem tells of runs that stand still for something that somebody can end. What waits for
// a time, an event or another state is as it should be, and services speak for themselves.
func parkedProblem(p stats.ParkedRuns) (problem, bool) {
	wait := runsWait(p.Runs, time.Duration(p.AgeS*float64(time.Second)))
	one := problem{
		Class: "fair", Name: p.For, Href: "/console/runs?status=parked&pipeline=" + p.Pipeline, Since: &p.Since,
		Text: wait, Runs: p.Runs,
	}
	if one.Name == "" {
		one.Name = p.Pipeline
	}
	switch p.Reason {
	case stats.ParkedHold:
		one.Is, one.Text = "is held", wait+" Nothing is lost: Lift lets them continue."
	case stats.ParkedLimit:
		one.Is = "is at its limit"
	case stats.ParkedLoop:
		one.Is = "starts itself more often than its budget allows"
	case stats.ParkedUnserved:
		one.Is = "has events that no loaded definition serves"
	case stats.ParkedOperator:
		one.Class, one.Is, one.Text = "bad", "waits for a decision", wait
	case stats.ParkedBlocking:
		one.Class, one.Is, one.Text = "bad", "has failed runs that block their keys", fmt.Sprintf("%d failed. Retry or cancel them.", p.Runs)
		one.Href = "/console/runs?status=failed&pipeline=" + p.Pipeline
	default:
		return one, false
	}
	return one, true
}

// waitsFor says for people what runs stand still for.
func waitsFor(p stats.ParkedRuns) string {
	switch p.Reason {
	case stats.ParkedService:
		return "the service " + p.For
	case stats.ParkedHold:
		return "the end of the hold of " + p.For
	case stats.ParkedLifted:
		return "their turn after the hold of " + p.For
	case stats.ParkedLoop:
		return "the budget of a pipeline that starts itself"
	case stats.ParkedLimit:
		return "the limit of " + p.For
	case stats.ParkedRetry:
		return "their next attempt"
	case stats.ParkedUnserved:
		return "a definition that serves their events"
	case stats.ParkedTime:
		return "a time"
	case stats.ParkedEvent:
		return "an event"
	case stats.ParkedState:
		return "another state of their key"
	case stats.ParkedKept:
		return "a run that awaits their event"
	case stats.ParkedOperator:
		return "a decision of an operator"
	case stats.ParkedBlocking:
		return "a retry or a cancel: they failed, and block their keys"
	case stats.ParkedFailed:
		return "a retry or a cancel: they failed, and block nothing"
	}
	return p.Reason + " " + p.For
}

// handlerProblem tells of a handler that fails, or does not take part.
func handlerProblem(h stats.HandlerInfo, serviceDown bool) (problem, bool) {
	p := problem{Class: "fair", Name: h.Path, Href: words.HandlerURL(h.Path), Owner: h.Owner, handlers: true}
	switch m := drawing.Mood(h); {
	case m == "held":
		p.Is, p.Text = "is held", "Runs will wait before it."
	case m == "off":
		p.Class, p.Is, p.Text = "off", "is switched off", "Runs continue without it."
	case m == "out":
		p.Is, p.Since, p.Text = "is out of the flow", h.Fallback.Since, "Runs continue without it. It returns by itself."
	case m == "bad" && !serviceDown:
		p.Is, p.Text = "fails", words.Percent(h.Ratio())+" of its calls succeed."
		if h.Critical {
			p.Class = "bad"
		}
	default:
		return p, false
	}
	return p, true
}

// A place is an entry of the sidebar, with how much is wrong there.
type place struct {
	Name, Href string
	Here       string // for aria-current; empty for another page
	Count      int
	Class      string // of the count: the worst of what is counted
	Says       string // what is counted
}

// A sideGroup is what stands together in the sidebar.
type sideGroup struct {
	Name   string
	Places []place
}

// standing is how much stands still, and for how long the first of it does.
type standing struct {
	Waiting, Parked, Held, Blocked, Failed stood
	Awaiting                               stood // an event, which is as it should be
}

// stood is one kind of it. Parked, held and blocked runs wait in no queue: without their count, a
// long outage looks like calm.
type stood struct {
	Runs int
	For  time.Duration
}

func (s *stood) add(p stats.ParkedRuns) {
	s.Runs += p.Runs
	s.For = max(s.For, time.Duration(p.AgeS*float64(time.Second)))
}

// newStanding adds up a backlog. What waits for a time, an event or another state is as it should be.
func newStanding(b stats.BacklogView) (s standing) {
	s.Waiting = stood{b.Waiting, time.Duration(b.AgeS * float64(time.Second))}
	for _, p := range b.Parked {
		switch p.Reason {
		case stats.ParkedTime, stats.ParkedState, stats.ParkedKept:
		case stats.ParkedEvent:
			s.Awaiting.add(p)
		case stats.ParkedHold:
			s.Held.add(p)
		case stats.ParkedBlocking:
			s.Blocked.add(p)
		case stats.ParkedFailed:
			s.Failed.add(p)
		default:
			s.Parked.add(p)
		}
	}
	return s
}

// Still counts the runs that wait and should not.
func (s standing) Still() stood {
	return stood{s.Parked.Runs + s.Held.Runs + s.Blocked.Runs, max(s.Parked.For, s.Held.For, s.Blocked.For)}
}

// sidebar lists all pages; pipelines are for readers who have signed in. Who may only submit has one page.
func (c *Console) sidebar(here string, wrong []problem, s standing, g credentials.Grant) []sideGroup {
	submit := place{Name: "Submit", Href: SubmitPage, Count: s.Awaiting.Runs, Says: "runs that wait for an event"}
	if g.Role == credentials.RoleSubmitter {
		return []sideGroup{{"", []place{submit}}}
	}
	runs := place{Name: "Runs", Href: Root + "runs", Count: s.Failed.Runs + s.Blocked.Runs, Says: "failed runs"}
	queue := place{Name: "Queue", Href: Root + "queue", Count: s.Parked.Runs + s.Held.Runs, Says: "runs that stand still"}
	if s.Blocked.Runs > 0 {
		runs.Class = "bad"
	}
	if queue.Count > 0 {
		queue.Class = "fair"
	}
	incidents := place{Name: "Incidents", Href: Root + "incidents", Count: len(wrong), Says: "problems"}
	if len(wrong) > 0 {
		incidents.Class = wrong[0].Class
	}
	systems := c.places()
	if len(c.o.Engine.Bundle().Triggers) > 0 {
		systems = append(systems, place{Name: "Triggers", Href: Root + "triggers"})
	}
	tools := []place{
		{Name: "Versions", Href: Root + "versions"},
		{Name: "Audit", Href: Root + "audit"},
		{Name: "Costs", Href: Root + "costs"},
		{Name: "Playground", Href: Root + "playground"},
		{Name: "Docs", Href: DocsRoot},
	}
	if c.o.Dev {
		tools = append(tools, place{Name: "Style guide", Href: StyleGuide})
	}
	groups := []sideGroup{{"", []place{{Name: "Overview", Href: "/"}, incidents, runs, queue, submit}}}
	if len(systems) > 0 {
		groups = append(groups, sideGroup{"Systems", systems})
	}
	groups = append(groups, sideGroup{"Tools", tools})
	if g.Role != "" {
		groups = append(groups, sideGroup{"Pipelines", c.pipelinePlaces(wrong)}) // the last: there may be many
	}
	for _, g := range groups {
		for i := range g.Places {
			switch p := &g.Places[i]; {
			case p.Href == here:
				p.Here = "page"
			case p.Href != "/" && strings.HasPrefix(here, p.Href+"/"):
				p.Here = "true"
			}
		}
	}
	return groups
}

// pipelinePlaces lists the pipelines, with how many of their handlers do not do well.
func (c *Console) pipelinePlaces(wrong []problem) (places []place) {
	for _, p := range c.o.Engine.Bundle().Pipelines {
		one := place{Name: p.ID, Href: Root + "pipelines/" + p.ID, Says: "handlers with problems"}
		for _, w := range wrong {
			if w.handlers && strings.HasPrefix(w.Name, p.ID+"/") {
				one.Count++
				if one.Class == "" {
					one.Class = w.Class // they are sorted
				}
			}
		}
		places = append(places, one)
	}
	return places
}

// incident is the problem as it is noted.
func (p *problem) incident(now time.Time) seen.Incident {
	in := seen.Incident{Name: p.Name, Is: p.Is, Class: p.Class, Href: p.Href, From: now.Unix(), To: now.Unix(), Runs: p.Runs}
	if p.Since != nil && !p.Since.IsZero() {
		in.From = min(in.From, p.Since.Unix())
	}
	return in
}

// incidents are problems as they are noted.
func incidents(wrong []problem, now time.Time) []seen.Incident {
	out := make([]seen.Incident, len(wrong))
	for i := range wrong {
		out[i] = wrong[i].incident(now)
	}
	return out
}
