package api

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"procaas/engine"
)

//go:embed ui/page.html ui/page.css
var pageFiles embed.FS

// A page is what people see at the root: rendered here, without scripts.
type page struct {
	template *template.Template
	style    template.CSS
	policy   string
}

func newPage() *page {
	style, err := pageFiles.ReadFile("ui/page.css")
	if err != nil {
		panic(err)
	}
	funcs := template.FuncMap{"percent": percent, "millis": millis, "when": when}
	t := template.Must(template.New("page.html").Funcs(funcs).ParseFS(pageFiles, "ui/page.html"))
	sum := sha256.Sum256(style)
	return &page{
		template: t, style: template.CSS(style),
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

// pageRuns is how many runs the page shows.
const pageRuns = 20

type pageData struct {
	Style     template.CSS
	Version   string
	NotReady  string // why; empty when the node is ready
	Closed    bool   // handlers are shown to those only who bear the token
	Pipelines []pagePipeline
	Runs      []engine.RunView
	RunsError bool
}

type pagePipeline struct {
	ID, Flow, Owner string
	On              []string
	Handlers        []engine.HandlerInfo
}

func (s *server) getPage(w http.ResponseWriter, r *http.Request) error {
	data := pageData{Style: s.page.style, Version: s.version, Closed: !granted(r).Has(engine.RoleViewer)}
	if err := s.engine.Healthy(r.Context()); err != nil {
		data.NotReady = err.Error()
	}
	runs, _, err := s.engine.List(r.Context(), engine.RunFilter{Limit: pageRuns})
	data.Runs, data.RunsError = runs, err != nil
	data.Pipelines = s.pagePipelines(data.Closed)

	var body bytes.Buffer
	if err := s.page.template.Execute(&body, data); err != nil {
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", s.page.policy)
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(body.Bytes())
	return nil
}

// pagePipelines groups the handlers by pipeline. To those who may only look at
// runs they are not shown.
func (s *server) pagePipelines(closed bool) []pagePipeline {
	byPipeline := map[string][]engine.HandlerInfo{}
	if !closed {
		for _, h := range s.engine.Handlers() {
			id, _, _ := strings.Cut(h.Path, "/")
			byPipeline[id] = append(byPipeline[id], h)
		}
	}
	var all []pagePipeline
	for _, p := range s.engine.Bundle().Pipelines {
		on := []string(p.On)
		if len(on) == 0 {
			on = []string{p.ID}
		}
		all = append(all, pagePipeline{ID: p.ID, Flow: p.Flow, Owner: p.Owner, On: on, Handlers: byPipeline[p.ID]})
	}
	return all
}

func percent(ratio *float64) string {
	if ratio == nil {
		return "–"
	}
	return strconv.FormatFloat(*ratio*100, 'f', 1, 64) + " %"
}

func millis(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return strconv.FormatFloat(*ms, 'f', 1, 64) + " ms"
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
