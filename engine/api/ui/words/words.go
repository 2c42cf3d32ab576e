package words

import (
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
)

// Named is the name of what was changed. Versions are named by their hashes, of which the beginning is enough.
func Named(kind, name string) template.HTML {
	if kind == "canary" || kind == "definition" {
		name = ShortHash(name)
	}
	return Breakable(name)
}

// Outcome says what became of a handler.
func Outcome(outcome string) string {
	switch outcome {
	case "absent":
		return "not reached"
	case model.OutcomeUnknown:
		return "sent, answer unknown"
	}
	return outcome
}

// Last returns what follows the last slash of a path.
func Last(p string) string { return p[strings.LastIndex(p, "/")+1:] }

// Percent writes a part of one, or a dash for nil.
func Percent(ratio *float64) string {
	if ratio == nil {
		return "–"
	}
	return strconv.FormatFloat(*ratio*100, 'f', 1, 64) + " %"
}

// Millis writes milliseconds, or a dash for nil.
func Millis(ms *float64) string {
	switch {
	case ms == nil:
		return "–"
	case *ms >= 10_000:
		return strconv.FormatFloat(*ms/1000, 'f', 1, 64) + " s"
	case *ms >= 10:
		return strconv.FormatFloat(*ms, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(*ms, 'f', 1, 64) + " ms"
}

// Number writes a count, with as many digits as people need.
func Number(x float64) string {
	switch {
	case x >= 100 || x == float64(int64(x)):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// When writes a moment, and how long ago it was. Browsers show it in local time.
func When(t any) template.HTML { return timeTag(t, "2006-01-02 15:04:05 UTC", "full") }

// Clock writes a moment inside a sentence, with its date when that is not today's.
func Clock(t any) template.HTML {
	if at, _ := moment(t); at.UTC().Format(time.DateOnly) != time.Now().UTC().Format(time.DateOnly) {
		return timeTag(t, "2006-01-02 15:04 UTC", "clock")
	}
	return timeTag(t, "15:04 UTC", "clock")
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// Told writes a sentence of the engine, with its times as all times are here.
func Told(text string) template.HTML {
	return template.HTML(stamps.ReplaceAllStringFunc(template.HTMLEscapeString(text), func(stamp string) string {
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return stamp
		}
		return string(Clock(at))
	}))
}

func timeTag(t any, layout, class string) template.HTML {
	at, ok := moment(t)
	if !ok {
		return "–"
	}
	return template.HTML(`<time class="` + class + `" datetime="` + at.UTC().Format(time.RFC3339Nano) + `">` +
		at.UTC().Format(layout) + `</time>`)
}

// Breakable lets a path break behind its slashes, and not within a word.
func Breakable(path string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(path), "/", "/<wbr>"))
}

func moment(t any) (time.Time, bool) {
	switch t := t.(type) {
	case time.Time:
		return t, !t.IsZero()
	case *time.Time:
		if t != nil {
			return *t, true
		}
	}
	return time.Time{}, false
}

// Ago returns how long ago a moment was.
func Ago(t any) string {
	at, ok := moment(t)
	if !ok {
		return "never"
	}
	return Span(time.Since(at)) + " ago"
}

// Since returns how long something has lasted.
func Since(t any) string { return strings.TrimSuffix(Ago(t), " ago") }

// Left returns how long it is until a moment.
func Left(t any) string {
	at, ok := moment(t)
	if !ok {
		return ""
	}
	return Span(time.Until(at)) + " left"
}

// Took tells the time between two moments.
func Took(from, to *time.Time) string {
	if from == nil {
		return "–"
	}
	if to == nil {
		return Span(time.Since(*from)) + " so far"
	}
	return Span(to.Sub(*from))
}

// Span writes a duration with two digits that matter.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Round(time.Millisecond).Milliseconds()))
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// Share writes a part of one.
func Share(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + " %" }

// Hundred is a part of one in a hundred, for drawing.
func Hundred(x float64) float64 { return 100 * min(max(x, 0), 1) }

// Bytes writes a size.
func Bytes(n int64) string {
	x, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, next
	}
	return Number(x) + " " + unit
}

// JSON returns a value as indented JSON.
func JSON(v any) string {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// ShortHash is enough of a version to tell it from others.
func ShortHash(hash string) string {
	const digits = 12
	return hash[:min(digits, len(hash))]
}

// HandlerURL is the address of the page of a handler.
func HandlerURL(p string) string { return Root + "handlers/" + p }

// KeyURL is the address of the page of a key. Browsers take . and .. for steps in a path, even when they are encoded.
func KeyURL(flow, key string) string {
	if key == "." || key == ".." {
		return Root + "keys/" + flow + "?key=" + key
	}
	return Root + "keys/" + template.URLQueryEscaper(flow) + "/" + strings.ReplaceAll(template.URLQueryEscaper(key), "+", "%20")
}

// PipelineURL is the address of the pipeline that a path begins with.
func PipelineURL(p string) string {
	id, _, _ := strings.Cut(p, "/")
	return Root + "pipelines/" + id
}

// Root is where all pages but the overview are.
const Root = "/console/"
