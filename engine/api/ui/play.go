package ui

import (
	"net/http"

	"procaas/dsl"
	"procaas/engine"
)

type playData struct {
	YAML     string
	Findings []dsl.Diagnostic
	Graphs   []playGraph
	Checked  bool
}

type playGraph struct {
	Pipeline string
	Graph    graph
}

// maxPlay bounds what is tried; it is far more than anybody types.
const maxPlay = 256 << 10

// playground checks what is typed, and draws how it would run. Nothing is kept.
func (c *Console) playground(w http.ResponseWriter, r *http.Request) error {
	d := playData{YAML: example}
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxPlay)
		if err := r.ParseForm(); err != nil {
			return &Refused{http.StatusRequestEntityTooLarge, "That is too much to try: 256 KiB are the most."}
		}
		d.YAML, d.Checked = r.PostFormValue("yaml"), true
		plans, found := c.o.Engine.Try([]dsl.File{{Name: "playground.yaml", Data: []byte(d.YAML)}})
		d.Findings = found
		for _, p := range plans {
			d.Graphs = append(d.Graphs, playGraph{p.Pipeline, newGraph(p, map[string]engine.HandlerInfo{})})
		}
	}
	c.show(w, r, http.StatusOK, "playground", "Playground", d)
	return nil
}

// example is what the playground begins with.
const example = `pipelines:
  - id: hello
    shared-state: {greeting: null}
    stages:
      - id: think
        handlers:
          - id: greet
            set: {greeting: !$ "'hello ' + event.payload.name"}
      - id: tell
        handlers:
          - id: user
            critical: false
            request: {url: http://127.0.0.1:9083/v1/push, body: {text: !$ shared-state.greeting}}
`
