package ui

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/api/rest"
	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/words"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/model"
)

//go:embed templates static
var files embed.FS

// pages are the templates, by name. Each has the layout around it. Those of add-ons have their patterns as names.
type pages map[string]*template.Template

func newPages(added []Page) pages {
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
	for _, a := range added {
		p[a.Pattern] = template.Must(template.Must(layout.Clone()).Parse(a.Template))
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
	f.Live = r.Method == http.MethodGet && status == http.StatusOK &&
		!slices.Contains([]string{"docs", "event", "playground", "signin", "styleguide"}, name)
	var wrong []problem
	g := c.o.Caller(r)
	if g.Role != "" {
		f.Caller, f.SignedIn = g.Name, g.Name != "anonymous"
	}
	if g.Has(credentials.RoleViewer) {
		wrong, f.Still = c.problems(), newStanding(c.o.Engine.Backlog())
		c.evidence.Note(time.Now(), incidents(wrong, time.Now()))
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
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w, done := rest.Compress(w, r)
	defer done()
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client may have left
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
		return NotFound("There is no such file.")
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
		"percent": words.Percent, "millis": words.Millis, "when": words.When, "ago": words.Ago, "left": words.Left,
		"number": words.Number, "json": words.JSON, "pathOf": words.PipelineURL,
		"pipelineOf": func(p string) string { id, _, _ := strings.Cut(p, "/"); return id },
		"handlerURL": words.HandlerURL, "keyURL": words.KeyURL, "mood": drawing.Mood, "moodText": drawing.MoodText,
		"spark": drawing.Spark, "took": words.Took, "span": words.Span,
		"share": words.Share, "bytes": words.Bytes, "hundred": words.Hundred, "ratio": func(a, b float64) float64 { return a / b },
		"add":  func(a, b int) int { return a + b },
		"last": words.Last, "compare": words.Compare, "clock": words.Clock, "breakable": words.Breakable, "cause": causeOf,
		"trace": words.Trace, "told": words.Told,
		"short": words.ShortHash, "seconds": seconds,
		"outcome": words.Outcome, "tree": words.Tree, "since": words.Since, "named": words.Named, "waitsFor": waitsFor,
	}
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
