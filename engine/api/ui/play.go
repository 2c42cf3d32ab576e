package ui

import (
	"context"
	"net/http"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/words"
	"procaas/engine/explain"
)

// A Player runs pipelines that are only tried, with an event and answers of services
// written as a file of tests. Nothing is stored, and nobody is called.
type Player func(ctx context.Context, pipelines, tests diag.File) Played

// A Played is what came of it.
type Played struct {
	Findings []diag.Diagnostic // in either file; nothing was run when there are errors
	Tests    []PlayedTest
	Err      string // why it ended early
}

// A PlayedTest is what came of one test.
type PlayedTest struct {
	Name    string
	Wrong   []string // what was not as the test wants it
	Stories []explain.Story
	Calls   []PlayedCall
	Took    time.Duration // by its own clock
}

// A PlayedCall is a call that was answered by the test.
type PlayedCall struct {
	Path    string
	Attempt int
	At      time.Duration
	Address string // method and URL; empty when it was no request
	Error   string
}

type playData struct {
	YAML, Tests string
	Findings    []diag.Diagnostic
	Graphs      []playGraph
	Played      *Played
	Lines       [][]runData // of each test, its runs
	CanRun      bool
	Checked     bool
}

type playGraph struct {
	Pipeline string
	Graph    drawing.Graph
}

// playTime bounds what is tried, far above what anybody waits for.
const playTime = 5 * time.Second

// playground checks what is typed, draws how it would run, and runs it with answers
// that are typed, too. Nothing is kept.
func (c *Console) playground(w http.ResponseWriter, r *http.Request) error {
	d := playData{YAML: example, Tests: exampleTests, CanRun: c.o.Play != nil}
	if r.Method == http.MethodPost {
		d.YAML, d.Tests, d.Checked = r.PostFormValue("yaml"), r.PostFormValue("tests"), true
		file := diag.File{Name: "playground.yaml", Data: []byte(d.YAML)}
		plans, found := c.o.Engine.Try([]diag.File{file})
		d.Findings = found
		for _, p := range plans {
			d.Graphs = append(d.Graphs, playGraph{p.Pipeline, drawing.NewGraph(p, drawing.AsItIs(nil))})
		}
		if c.o.Play != nil && plans != nil && r.PostFormValue("do") == "run" && strings.TrimSpace(d.Tests) != "" {
			if err := c.play(r.Context(), &d, file); err != nil {
				return err
			}
		}
	}
	c.show(w, r, http.StatusOK, "playground", "Playground", d)
	return nil
}

// play runs what is typed. One at a time is enough for people, and keeps the node free
// for its work.
func (c *Console) play(ctx context.Context, d *playData, file diag.File) error {
	ctx, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	select {
	case c.playing <- struct{}{}:
		defer func() { <-c.playing }()
	case <-ctx.Done():
		return &Refused{http.StatusServiceUnavailable, "Somebody else uses the playground. Try again."}
	}
	played := c.o.Play(ctx, file, diag.File{Name: "playground.test.yaml", Data: []byte(d.Tests)})
	d.Played = &played
	for _, t := range played.Tests {
		var lines []runData
		for _, s := range t.Stories {
			line := runData{Story: s, Run: s.Run, Took: words.Took(&s.Run.Accepted, s.Run.Finished)}
			end := s.Run.Accepted
			if s.Run.Finished == nil {
				end = end.Add(t.Took)
			}
			line.Timeline = drawing.NewTimeline(s, end)
			lines = append(lines, line)
		}
		d.Lines = append(d.Lines, lines)
	}
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
            retry: {attempts: 2, min-delay: 1s}
`

// exampleTests are an event for it, and the answers that it gets.
const exampleTests = `tests:
  - name: the user is greeted at the second attempt
    events: {type: hello, payload: {name: Ada}}
    mocks:
      user: [{status: 503}, {status: 202}]
    expect: {status: succeeded}
`
