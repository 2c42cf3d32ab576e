package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/stats"
)

// mostTroubles is how many things of a kind a line lists.
const mostTroubles = 4

// recently is how long a failure is shown after calls have succeeded again.
const recently = 10 * time.Minute

// down lists the services that do not answer or asked for a pause, each with its start and last error.
func (v *topView) down() string {
	var words []string
	for i := range v.services {
		s := &v.services[i]
		var text string
		switch {
		case s.FailingSince != nil:
			text = s.ID + " for " + v.since(*s.FailingSince)
		case s.ClosedUntil != nil && s.ClosedUntil.After(v.at):
			text = s.ID + " paused for another" + v.left(*s.ClosedUntil)
		case s.Down:
			text = s.ID
		default:
			continue
		}
		if s.LastError != "" {
			text += " (" + oneLine(s.LastError) + ")"
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return ""
	}
	return "services down: " + someOf(words)
}

// failing lists the pipelines whose runs fail.
func (v *topView) failing() string {
	var words []string
	for i := range v.piped {
		p := &v.piped[i]
		if p.Fails() {
			words = append(words, fmt.Sprintf("%s, %s of its runs succeed", p.Pipeline, percentText(p.Ratio())))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "pipelines failing: " + someOf(words)
}

// runsText says how many events come and runs end, and how many of those fail, in each period.
func (v *topView) runsText() string {
	var words []string
	all := stats.Sum(v.piped)
	for _, w := range all {
		text := fmt.Sprintf("%s %s", w.Period, cli.Rate(w.PerS))
		if w.Failed > 0 {
			text += fmt.Sprintf(" (%s failed)", percentText(new(float64(w.Failed)/float64(w.Ended))))
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("%s events/s in 10s; runs ended a second: %s", cli.Rate(all[0].AcceptedPerS), strings.Join(words, ", "))
}

// addPipelines adds what another node has counted.
func (v *topView) addPipelines(others []stats.PipelineInfo) {
	for _, o := range others {
		i := slices.IndexFunc(v.piped, func(p stats.PipelineInfo) bool { return p.Pipeline == o.Pipeline })
		if i < 0 {
			continue
		}
		for k := range min(len(v.piped[i].Windows), len(o.Windows)) {
			v.piped[i].Windows[k].Add(o.Windows[k])
		}
	}
}

// heldBack lists services that answer, but for which runs queue.
func (v *topView) heldBack() string {
	var words []string
	for i := range v.services {
		s := &v.services[i]
		if waits := s.Waiting + s.Parked; waits > 0 && s.State() == guard.ServiceUp {
			words = append(words, fmt.Sprintf("%s takes %s calls at once, %s in line", s.ID, serviceLimit(s), diag.Plural(waits, "run")))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "services at their limit: " + someOf(words)
}

// frozen returns why no fallback may start, or "".
func (v *topView) frozen() string {
	for i := range v.handlers {
		if f := v.handlers[i].Fallback; f != nil && f.State == fallback.Frozen && f.Since != nil {
			return "fallbacks are frozen for " + v.since(*f.Since) + ": " + f.Reason
		}
	}
	return ""
}

// refused lists tokens whose quota is used up.
func (v *topView) refused() string {
	var words []string
	for _, r := range v.backlog.Refused {
		words = append(words, fmt.Sprintf("%s, %d refused for %s", r.Token, r.Items, v.since(r.Since)))
	}
	if len(words) == 0 {
		return ""
	}
	return "tokens beyond their quota: " + someOf(words)
}

// addServices adds services that do not answer another node.
func (v *topView) addServices(others []guard.ServiceInfo) {
	for _, o := range others {
		i := slices.IndexFunc(v.services, func(s guard.ServiceInfo) bool { return s.ID == o.ID })
		if i >= 0 && o.FailingSince != nil && (v.services[i].FailingSince == nil || o.FailingSince.Before(*v.services[i].FailingSince)) {
			v.services[i].FailingSince, v.services[i].LastError = o.FailingSince, o.LastError
		}
	}
}

// backlogText describes the backlog and parked runs, or returns "".
func (v *topView) backlogText() string {
	var parts []string
	if n := v.backlog.Waiting; n > 0 {
		verb := "wait"
		if n == 1 {
			verb = "waits"
		}
		part := fmt.Sprintf("%s %s", diag.Plural(n, "run"), verb)
		if v.backlog.AgeS >= 1 {
			part += ", the oldest for " + seconds(v.backlog.AgeS)
		}
		parts = append(parts, part)
	}
	for _, b := range v.backlog.Behind {
		parts = append(parts, fmt.Sprintf("%s has more than its part: about %d of its runs let others pass", b.Pipeline, b.Runs))
	}
	if still := v.still(); still != "" {
		parts = append(parts, still)
	}
	planned := 0
	for _, p := range v.backlog.Parked {
		if isPlanned(p) {
			planned += p.Runs
		}
	}
	if planned > 0 {
		parts = append(parts, diag.Plural(planned, "run")+" parked for a time or an event")
	}
	if c := v.backlog.Counted; len(parts) > 0 && c != nil && v.at.Sub(*c) > 10*time.Second {
		parts = append(parts, "counted at "+c.Local().Format(time.TimeOnly))
	}
	return strings.Join(parts, "; ")
}

// isPlanned reports whether runs wait for a time or an event, which is normal.
func isPlanned(p stats.ParkedRuns) bool {
	return p.Reason == stats.ParkedTime || p.Reason == stats.ParkedEvent
}

// still lists parked runs by cause, the largest number first, or returns "".
func (v *topView) still() string {
	var words []string
	total, oldest := 0, 0.0
	for _, p := range v.backlog.Parked {
		if isPlanned(p) {
			continue
		}
		total, oldest = total+p.Runs, max(oldest, p.AgeS)
		words = append(words, fmt.Sprintf("%d %s %s for %s", p.Runs, p.Pipeline, strings.TrimSpace(p.Reason+" "+p.For), seconds(p.AgeS)))
	}
	if total == 0 {
		return ""
	}
	verb := "stand"
	if total == 1 {
		verb = "stands"
	}
	return fmt.Sprintf("%s %s still, the oldest for %s: %s", diag.Plural(total, "run"), verb, seconds(oldest), someOf(words))
}

// notes returns the lines below a handler: the operator who switched it off, the reason, and its last error.
func (v *topView) notes(h *stats.HandlerInfo) []string {
	var notes []string
	if c := v.switchOf(h); c != nil {
		note := h.Switch + cli.Until(c.Until)
		if c.By != "" {
			note += " by " + c.By
		}
		if c.Path != h.Path {
			note += " at " + c.Path
		}
		if c.Reason != "" {
			note += ": " + oneLine(c.Reason)
		}
		notes = append(notes, note)
	}
	if failed := h.LastFailure; failed != nil && h.LastError != "" &&
		(v.at.Sub(*failed) < recently || h.LastSuccess == nil || failed.After(*h.LastSuccess)) {
		notes = append(notes, "failed "+v.since(*failed)+" ago: "+oneLine(h.LastError))
	}
	return notes
}

// switchOf returns the control that switches a handler off, as named in [stats.HandlerInfo.Switch], or nil.
func (v *topView) switchOf(h *stats.HandlerInfo) *guard.ControlView {
	mode := map[string]string{"off": guard.ModeSkip, "hold": guard.ModeHold}[h.Switch]
	if mode == "" {
		return nil
	}
	for path := h.Path; path != ""; path = path[:max(0, strings.LastIndex(path, "/"))] {
		i := slices.IndexFunc(v.controls, func(c guard.ControlView) bool {
			return c.Path == path && !c.Enabled && c.Mode == mode && (c.Until == nil || c.Until.After(v.at))
		})
		if i >= 0 {
			return &v.controls[i]
		}
	}
	return nil
}

// since formats how long ago something was.
func (v *topView) since(at time.Time) string { return seconds(max(0, v.at.Sub(at).Seconds())) }

// seconds formats a time in seconds.
func seconds(s float64) string { return (time.Duration(s) * time.Second).String() }

// oneLine joins the lines of an error.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// someOf lists the first things and counts the others.
func someOf(words []string) string {
	if more := len(words) - mostTroubles; more > 0 {
		words = append(words[:mostTroubles:mostTroubles], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

// A topReport is a view in JSON.
type topReport struct {
	Time     *time.Time          `json:"time,omitempty"` // only if other views follow
	Items    []stats.HandlerInfo `json:"items"`
	Next     *string             `json:"next"`
	Services []guard.ServiceInfo `json:"services"`
	// of pipelines, or of a pipeline and its stages if a path is given
	Durations []stats.DurationView `json:"durations"`
	Backlog   stats.BacklogView    `json:"backlog"`
	Pipelines []stats.PipelineInfo `json:"pipelines"`
	Memory    []nodeMemory         `json:"memory,omitempty"` // of the nodes that were asked
}

func (v *topView) report() topReport {
	page := cli.Items(v.handlers)
	return topReport{Items: page.Items, Next: page.Next, Services: v.services, Durations: v.took, Backlog: v.backlog, Memory: v.memory, Pipelines: v.piped}
}
