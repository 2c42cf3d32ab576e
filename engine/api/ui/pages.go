package ui

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/stats"
)

//go:embed templates static
var files embed.FS

// pages are the templates, by name. Each has the layout around it.
type pages map[string]*template.Template

func newPages() pages {
	layout := template.Must(template.New("layout.html").Funcs(funcs()).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	entries, err := files.ReadDir("templates")
	if err != nil {
		panic(err)
	}
	p := pages{}
	for _, e := range entries {
		if e.Name() == "layout.html" || e.Name() == "parts.html" {
			continue
		}
		t := template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+e.Name()))
		p[strings.TrimSuffix(e.Name(), ".html")] = t
	}
	return p
}

// A frame is what the layout shows around a page.
type frame struct {
	Title    string
	Version  string
	Caller   string // empty when nobody has signed in
	SignedIn bool
	NotReady string
	Degraded string
	Side     []sideGroup
	Wrong    []problem // what the banner tells
	More     int       // problems that it leaves out
	Still    standing  // how much stands still
	Live     bool      // the browser asks for the page again and again while it is open
	Page     any
}

// show renders a page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name, title string, data any) {
	f := frame{Title: title, Version: c.o.Version, Page: data}
	f.Live = r.Method == http.MethodGet && status == http.StatusOK && !slices.Contains([]string{"docs", "event", "playground", "signin", "styleguide"}, name)
	var wrong []problem
	g := c.o.Caller(r)
	if g.Role != "" {
		f.Caller, f.SignedIn = g.Name, g.Name != "anonymous"
	}
	if g.Has(credentials.RoleViewer) {
		wrong, f.Still = c.problems(), newStanding(c.o.Engine.Backlog())
		c.evidence.note(time.Now(), wrong)
		f.Wrong = wrong[:min(len(wrong), shownProblems)]
		f.More = len(wrong) - len(f.Wrong)
	}
	f.Side = c.sidebar(r.URL.Path, wrong, f.Still, g)
	if err := c.o.Engine.Healthy(r.Context()); err != nil {
		f.NotReady = err.Error()
	} else if err := c.o.Engine.Degraded(); err != nil {
		f.Degraded = err.Error()
	}
	var body bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&body, "layout.html", f); err != nil {
		panic(fmt.Errorf("page %s: %w", name, err)) // a defect, which is logged
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(body.Bytes()) // the client may have left
		return
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	_, _ = z.Write(body.Bytes())
	_ = z.Close()
}

// An asset is a file that pages load.
type asset struct {
	contentType string
	data        []byte
	zipped      []byte
	tag         string
}

func newAssets() map[string]asset {
	entries, err := files.ReadDir("static")
	if err != nil {
		panic(err)
	}
	all := map[string]asset{}
	for _, e := range entries {
		data, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		var zipped bytes.Buffer
		z, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is valid
		_, _ = z.Write(data)                                       // memory takes it
		_ = z.Close()
		sum := sha256.Sum256(data)
		all[e.Name()] = asset{
			contentType: mime.TypeByExtension(path.Ext(e.Name())), data: data, zipped: zipped.Bytes(), tag: `"` + hex.EncodeToString(sum[:8]) + `"`,
		}
	}
	return all
}

// file serves an asset. Its address does not change with its content, so browsers
// ask whether theirs is the present one.
func (c *Console) file(w http.ResponseWriter, r *http.Request) error {
	a, ok := c.static[r.PathValue("file")]
	if !ok {
		return notFound("There is no such file.")
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	data := a.data
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		data = a.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // the client may have left
	return nil
}

func funcs() template.FuncMap {
	return template.FuncMap{
		"percent": percent, "millis": millis, "when": when, "ago": ago, "left": left, "number": number, "json": pretty, "pathOf": engineRoot,
		"pipelineOf": func(p string) string { id, _, _ := strings.Cut(p, "/"); return id },
		"handlerURL": handlerURL, "keyURL": keyURL, "mood": mood, "moodText": moodText, "spark": spark, "took": took, "span": span,
		"share": share, "bytes": byteCount, "hundred": hundred, "ratio": func(a, b float64) float64 { return a / b },
		"add":  func(a, b int) int { return a + b },
		"last": lastPart, "compare": compare, "clock": clockTime, "breakable": breakable, "cause": causeOf, "trace": traceText, "told": told,
		"short":   shortHash,
		"outcome": outcomeText, "tree": jsonTree, "since": since, "named": named, "waitsFor": waitsFor,
	}
}

// named is the name of what was changed. Versions are named by their hashes, of which the beginning is enough.
func named(kind, name string) template.HTML {
	if kind == "canary" || kind == "definition" {
		name = shortHash(name)
	}
	return breakable(name)
}

// engineRoot is the address of the pipeline that a path begins with.
func engineRoot(p string) string {
	id, _, _ := strings.Cut(p, "/")
	return Root + "pipelines/" + id
}

// outcomeText says what became of a handler.
func outcomeText(outcome string) string {
	switch outcome {
	case "absent":
		return "not reached"
	case model.OutcomeUnknown:
		return "sent, answer unknown"
	}
	return outcome
}

// A cause is why a run stands where it does.
type cause struct {
	Path string // of the handler; may be empty
	Text string
	Due  *time.Time
}

// causeOf tells why a run failed, or what it waits for.
func causeOf(r checkpoint.RunView) cause {
	if r.Error != "" || r.Reason != "" {
		return cause{r.FailedPath, strings.TrimSpace(strings.TrimPrefix(r.Error, r.FailedPath+": ") + " " + r.Reason), nil}
	}
	if r.Blocked {
		return cause{Text: "waits for an earlier run of its key"}
	}
	for _, h := range r.Handlers {
		if h.Outcome == model.OutcomeWaiting && r.Finished == nil && (h.Reason != "" || h.Due != nil) {
			return cause{h.Path, cmp.Or(h.Reason, h.Error, "waits for a time"), h.Due}
		}
	}
	return cause{Path: r.FailedPath}
}

func lastPart(p string) string { return p[strings.LastIndex(p, "/")+1:] }

func percent(ratio *float64) string {
	if ratio == nil {
		return "–"
	}
	return strconv.FormatFloat(*ratio*100, 'f', 1, 64) + " %"
}

func millis(ms *float64) string {
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

// number writes a count, with as many digits as people need.
func number(x float64) string {
	switch {
	case x >= 100 || x == float64(int64(x)):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// when writes a moment, and how long ago it was; browsers show it in local time.
func when(t any) template.HTML { return timeTag(t, "2006-01-02 15:04:05 UTC", "full") }

// clockTime writes a moment inside a sentence, with its date when that is not today's.
func clockTime(t any) template.HTML {
	if at, _ := moment(t); at.UTC().Format(time.DateOnly) != time.Now().UTC().Format(time.DateOnly) {
		return timeTag(t, "2006-01-02 15:04 UTC", "clock")
	}
	return timeTag(t, "15:04 UTC", "clock")
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// told writes a sentence of the engine, with its times as all times are here.
func told(text string) template.HTML {
	return template.HTML(stamps.ReplaceAllStringFunc(template.HTMLEscapeString(text), func(stamp string) string {
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return stamp
		}
		return string(clockTime(at))
	}))
}

func timeTag(t any, layout, class string) template.HTML {
	at, ok := moment(t)
	if !ok {
		return "–"
	}
	return template.HTML(`<time class="` + class + `" datetime="` + at.UTC().Format(time.RFC3339Nano) + `">` + at.UTC().Format(layout) + `</time>`)
}

// breakable lets a path break behind its slashes, and not within a word.
func breakable(path string) template.HTML {
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

// ago returns how long ago a moment was.
func ago(t any) string {
	at, ok := moment(t)
	if !ok {
		return "never"
	}
	return span(time.Since(at)) + " ago"
}

// since returns how long something has lasted.
func since(t any) string { return strings.TrimSuffix(ago(t), " ago") }

// left returns how long it is until a moment.
func left(t any) string {
	at, ok := moment(t)
	if !ok {
		return ""
	}
	return span(time.Until(at)) + " left"
}

// took tells the time between two moments.
func took(from, to *time.Time) string {
	if from == nil {
		return "–"
	}
	if to == nil {
		return span(time.Since(*from)) + " so far"
	}
	return span(to.Sub(*from))
}

// span writes a duration with two digits that matter.
func span(d time.Duration) string {
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

// share writes a part of one.
func share(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + " %" }

// hundred is a part of one in a hundred, for drawing.
func hundred(x float64) float64 { return 100 * min(max(x, 0), 1) }

// byteCount writes a size.
func byteCount(n int64) string {
	x, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, next
	}
	return number(x) + " " + unit
}

func pretty(v any) string {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func handlerURL(p string) string { return Root + "handlers/" + p }

func keyURL(flow, key string) string {
	return Root + "keys/" + template.URLQueryEscaper(flow) + "/" + strings.ReplaceAll(template.URLQueryEscaper(key), "+", "%20")
}

// mood is the class of a handler: how well it does.
func mood(h stats.HandlerInfo) string {
	ratio := h.Ratio()
	switch {
	case h.Switch == "hold":
		return "held"
	case h.Switch != "on":
		return "off"
	case h.Fallback.IsOut():
		return "out"
	case ratio == nil:
		return "idle"
	case *ratio >= 0.99:
		return "good"
	case *ratio >= 0.9:
		return "fair"
	}
	return "bad"
}

// moodText is the mood of a handler for people.
func moodText(h stats.HandlerInfo) string {
	switch mood(h) {
	case "off":
		return "switched off"
	case "held":
		return "held"
	case "out":
		return "fallback: " + h.Fallback.State
	case "idle":
		return "not called lately"
	case "good":
		return "works"
	case "fair":
		return "fails at times"
	}
	return "fails"
}
