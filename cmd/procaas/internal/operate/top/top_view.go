package top

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"procaas/cmd/procaas/internal/operate/versions"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/canary"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/stats"
)

// A topView is one view of top.
type topView struct {
	server  string    // the first one
	order   string    // one of topOrders
	at      time.Time // time of the view
	trouble string    // why there is no newer view

	nodes, runs int // number of live nodes, and their runs
	asked       int // number of nodes that were asked
	memory      []nodeMemory

	canary   canary.View
	backlog  stats.BacklogView
	services []guard.ServiceInfo
	controls []guard.ControlView // in their parts
	took     []stats.DurationView
	window   string // one of stats.Periods, of the columns
	handlers []stats.HandlerInfo
	piped    []stats.PipelineInfo
	known    []string // all paths on the server
}

// A screen is the output of a view.
type screen struct {
	out           io.Writer
	width, height int // 0 means no limit
	color         bool
}

// add adds the counts of another node.
func (v *topView) add(handlers []stats.HandlerInfo) {
	byPath := map[string]*stats.HandlerInfo{}
	for i := range v.handlers {
		byPath[v.handlers[i].Path] = &v.handlers[i]
	}
	for i := range handlers {
		if h := byPath[handlers[i].Path]; h != nil {
			merge(h, &handlers[i])
		}
	}
}

// merge adds another node's counts of a handler. It uses the higher latency, since quantiles cannot be added
// and this one is never too good. It weighs ratios by calls. Without calls there is no ratio, so it never
// divides by 0.
func merge(h, other *stats.HandlerInfo) {
	h.Parked = max(h.Parked, other.Parked) // already of all nodes
	for i := range min(len(h.Windows), len(other.Windows)) {
		h.Windows[i].Add(other.Windows[i])
	}
	if other.LastFailure != nil && (h.LastFailure == nil || other.LastFailure.After(*h.LastFailure)) {
		h.LastFailure, h.LastError = other.LastFailure, other.LastError
	}
	if other.LastSuccess != nil && (h.LastSuccess == nil || other.LastSuccess.After(*h.LastSuccess)) {
		h.LastSuccess = other.LastSuccess
	}
	h.TakeWindows(h.Windows)
	h.InFlight += other.InFlight
	h.Waiting += other.Waiting
}

// arrange sorts the handlers.
func (v *topView) arrange() {
	by := map[string]func(*stats.HandlerInfo) float64{
		// Rounded as shown, or rows would change places all the time.
		"rate":     func(h *stats.HandlerInfo) float64 { return math.Round(v.figures(h).PerS * 10) },
		"failures": failuresPerS,
		"latency": func(h *stats.HandlerInfo) float64 {
			if p99 := v.figures(h).LatencyP99; p99 != nil {
				return *p99
			}
			return -1
		},
		"path": func(*stats.HandlerInfo) float64 { return 0 },
	}[v.order]
	slices.SortStableFunc(v.handlers, func(a, b stats.HandlerInfo) int {
		return cmp.Or(cmp.Compare(by(&b), by(&a)), strings.Compare(a.Path, b.Path))
	})
}

// figures returns those of a handler that its row shows.
func (v *topView) figures(h *stats.HandlerInfo) stats.Window {
	for _, w := range h.Windows {
		if w.Period == v.window {
			return w
		}
	}
	return stats.Window{ // of an older node, which has only these
		Ended: h.Calls, PerS: h.CallsPerS, SuccessRatio: h.SuccessRatio, LatencyP50: h.LatencyP50, LatencyP99: h.LatencyP99,
	}
}

// failuresPerS returns 0 for a handler without calls.
func failuresPerS(h *stats.HandlerInfo) float64 {
	ratio := h.Ratio()
	if ratio == nil {
		return 0
	}
	return h.CallsPerS * (1 - *ratio)
}

// The widths of the columns after the path, which gets the rest.
const (
	topNumbers   = "%8s %6s %6s %6s %6s %4s %5s"
	topWidth     = 8 + 1 + 6 + 1 + 6 + 1 + 6 + 1 + 6 + 1 + 4 + 1 + 5
	topState     = 10  // minimum
	topShortPath = 16  // minimum
	topPath      = 40  // width for which optional columns make room
	topScreen    = 120 // default width
	topCritical  = 4
	topOwner     = 16 // maximum
)

// topColumns are the widths of columns that depend on the screen. A width of 0 omits the column.
type topColumns struct{ path, critical, owner int }

// columns divides a screen. It shows owners and criticality if there is room.
func (v *topView) columns(s *screen) topColumns {
	path, owner, state := len("PATH"), 0, topState
	for i := range v.handlers {
		h := &v.handlers[i]
		path, owner = max(path, len(h.Path)), max(owner, utf8.RuneCountInString(h.Owner))
		if s.width == 0 { // nothing is cut
			state = max(state, utf8.RuneCountInString(v.stateOf(h)))
		}
	}
	c := topColumns{path: path}
	room := topScreen - path
	if s.width > 0 {
		room = s.width - min(path, topPath)
	}
	room -= topWidth + 1 + state
	if room > topCritical {
		c.critical = topCritical
		room -= topCritical + 1
	}
	if owner > 0 && room > len("OWNER") {
		c.owner = min(max(owner, len("OWNER")), topOwner, room-1)
	}
	if s.width > 0 {
		c.path = max(topShortPath, min(path, s.width-topWidth-topState-2-len(c.text("", ""))))
	}
	return c
}

// text returns the columns for criticality and owner.
func (c topColumns) text(critical, owner string) string {
	text := ""
	if c.critical > 0 {
		text += fmt.Sprintf(" %-*s", c.critical, critical)
	}
	if c.owner > 0 {
		if utf8.RuneCountInString(owner) > c.owner {
			owner = string([]rune(owner)[:c.owner-1]) + "…"
		}
		text += fmt.Sprintf(" %-*s", c.owner, owner)
	}
	return text
}

// draw draws the view. Its last line counts the rows that do not fit.
func (v *topView) draw(s *screen) []byte {
	var b bytes.Buffer
	rate, failing, off := 0.0, 0, 0
	for i := range v.handlers {
		h := &v.handlers[i]
		rate += v.figures(h).PerS
		if h.Fails() {
			failing++
		}
		if h.Switch != "on" || h.Fallback.IsOut() {
			off++
		}
	}
	nodes := fmt.Sprintf("%d of %d nodes", v.asked, v.nodes)
	if v.nodes == 1 {
		nodes = "1 node"
	}
	s.line(&b, "", fmt.Sprintf("%s  %s  %s", v.at.Format(time.TimeOnly), v.server, nodes))
	s.line(&b, "", fmt.Sprintf("%s, %.1f calls/s, %d failing, %d off or out; %s in hand",
		diag.Plural(len(v.handlers), "handler"), rate, failing, off, diag.Plural(v.runs, "run")))
	if text := v.runsText(); text != "" {
		s.line(&b, "", text)
	}
	if text, waits := v.memoryText(); text != "" {
		color := ""
		if waits {
			color = red
		}
		s.line(&b, color, text)
	}
	if v.canary.Phase == canary.Running || v.canary.Phase == canary.InShadow {
		s.line(&b, "", versions.CanaryLine(v.canary))
	}
	for _, trouble := range []string{v.rolledBack(), v.failing(), v.down(), v.heldBack(), v.frozen(), v.refused(), v.backlogText(), v.trouble} {
		if trouble != "" {
			s.line(&b, red, trouble)
		}
	}
	v.durations(&b, s)
	c := v.columns(s)
	s.line(&b, bold, fmt.Sprintf("%-*s"+topNumbers+"%s %s", c.path, "PATH", "CALLS/S", "OK", "OK10S", "P50", "P99", "NOW", "WAIT",
		c.text("CRIT", "OWNER"), "STATE"))
	hidden := v.rows(&b, s, c)
	if hidden > 0 {
		s.line(&b, "", fmt.Sprintf("… and %d more", hidden))
	}
	return b.Bytes()
}

// rolledBack returns why a canary was rolled back within the last hour, or "".
func (v *topView) rolledBack() string {
	if c := v.canary; c.Phase == canary.RolledBack && c.Ended != nil && v.at.Sub(*c.Ended) < time.Hour {
		return versions.CanaryLine(c) + ": " + c.Why
	}
	return ""
}

// rows draws the handlers with their notes. It returns how many do not fit.
func (v *topView) rows(b *bytes.Buffer, s *screen, c topColumns) (hidden int) {
	used := strings.Count(b.String(), "\n")
	for i := range v.handlers {
		h := &v.handlers[i]
		notes, w := v.notes(h), v.figures(h)
		used += 1 + len(notes)
		last := 1 // the line that counts the others
		if i == len(v.handlers)-1 {
			last = 0
		}
		if s.height > 0 && used+last >= s.height {
			return len(v.handlers) - i
		}
		s.line(b, colorOf(h), fmt.Sprintf("%-*s"+topNumbers+"%s %s", c.path, shorten(h.Path, c.path),
			cli.Rate(w.PerS), percentText(w.SuccessRatio), percentText(h.RecentRatio), millisText(w.LatencyP50), millisText(w.LatencyP99),
			cli.Count(h.InFlight), cli.Count(h.Waiting+int64(h.Parked)),
			c.text(criticalText(h.Critical), cmp.Or(h.Owner, "-")), v.stateOf(h)))
		for _, note := range notes {
			s.line(b, "", "  "+note)
		}
	}
	return 0
}

// Colours of lines.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
)

// line writes a line and cuts it to the width.
func (s *screen) line(b *bytes.Buffer, color, text string) {
	text = strings.TrimRight(text, " ")
	if s.width > 0 && utf8.RuneCountInString(text) > s.width {
		text = string([]rune(text)[:s.width-1]) + "…"
	}
	if s.color && color != "" {
		text = color + text + "\x1b[0m"
	}
	b.WriteString(text + "\n")
}

// colorOf returns the colour for a handler's condition.
func colorOf(h *stats.HandlerInfo) string {
	ratio := h.Ratio()
	switch {
	case h.Fails():
		return red
	case h.Switch != "on", h.Fallback.IsOut(), ratio != nil && *ratio < 0.99:
		return yellow
	case h.Calls == 0:
		return dim
	}
	return ""
}

// shorten shortens a path to a width. It keeps the handler first, then the pipeline. Ids are ASCII, so bytes
// are columns.
func shorten(path string, width int) string {
	if len(path) <= width {
		return path
	}
	pipeline, handler := path[:strings.Index(path, "/")], path[strings.LastIndex(path, "/")+1:]
	const between = "…/…/"
	room := width - utf8.RuneCountInString(between) - len(handler)
	if room < 1 {
		return "…" + path[len(path)-width+1:]
	}
	return pipeline[:min(room, len(pipeline))] + between + handler
}

func percentText(ratio *float64) string {
	switch {
	case ratio == nil:
		return "-"
	case *ratio == 1:
		return "100%"
	}
	return fmt.Sprintf("%.1f%%", min(*ratio*100, 99.9)) // failures must not be rounded away
}

func millisText(ms *float64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms < 10:
		return fmt.Sprintf("%.1fms", *ms)
	case *ms < 1000:
		return fmt.Sprintf("%.0fms", *ms)
	}
	return fmt.Sprintf("%.1fs", *ms/1000)
}

func criticalText(critical bool) string {
	if critical {
		return "yes"
	}
	return "-"
}

// stateOf describes what restricts a handler.
func (v *topView) stateOf(h *stats.HandlerInfo) string {
	var words []string
	if h.Switch != "on" {
		word := h.Switch
		if c := v.switchOf(h); c != nil && c.Until != nil {
			word += v.left(*c.Until)
		}
		words = append(words, word)
	}
	if f := h.Fallback; f != nil && f.State != fallback.In {
		word := f.State
		if f.Until != nil {
			word += v.left(*f.Until)
		}
		words = append(words, word)
	}
	if h.RateLimit != "" {
		words = append(words, h.RateLimit)
	}
	for _, effect := range h.Effective {
		if share, ok := strings.CutPrefix(effect, "rolled out to "); ok {
			words = append(words, share)
		}
		if bound, ok := strings.CutPrefix(effect, "deadline of "); ok {
			most, _, _ := strings.Cut(bound, ",")
			words = append(words, "at most "+most)
		}
	}
	if len(words) == 0 {
		return "on"
	}
	return strings.Join(words, ", ")
}

// left returns the remaining time, or "".
func (v *topView) left(until time.Time) string {
	if !until.After(v.at) {
		return ""
	}
	return " " + until.Sub(v.at).Round(time.Second).String()
}
