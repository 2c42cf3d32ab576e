package ui

import (
	"context"
	"html/template"
	"net/http"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/words"
	"procaas/engine/explain"
	"procaas/engine/planner"
)

// A Typed is what somebody typed in the playground.
type Typed struct {
	YAML  string
	Tests string // an event and the answers of services, as a file of tests
	Run   bool   // not only check it
}

// A Player checks and runs what is typed, and returns it as a part of the page. Nothing is stored, and nobody is called.
// Anybody who may see the console may type anything. So a Player bounds its time and memory, and an error says to people
// which bound was reached.
type Player func(ctx context.Context, typed Typed) (template.HTML, error)

// A Trial checks and runs what is typed in this process.
type Trial struct {
	Plan func(files []diag.File) ([]planner.PlanView, []diag.Diagnostic) // nil plans exactly if a finding is an error
	Run  func(ctx context.Context, pipelines, tests diag.File) Played    // nil runs nothing
}

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
	CanRun      bool
	Result      template.HTML // empty before something is typed
	Err         string        // why there is no result
}

// playResult is what comes of what is typed.
type playResult struct {
	Findings []diag.Diagnostic
	Graphs   []playGraph
	Played   *Played
	Lines    [][]runData // of each test, its runs
}

type playGraph struct {
	Pipeline string
	Graph    drawing.Graph
}

// playTime bounds the wait for a result and for others who use the playground, far above what anybody waits for.
const playTime = 10 * time.Second

// playground checks what is typed, draws how it would run, and runs it with answers
// that are typed, too. Nothing is kept.
func (c *Console) playground(w http.ResponseWriter, r *http.Request) error {
	d := playData{YAML: example, Tests: exampleTests, CanRun: c.o.Play != nil}
	if r.Method == http.MethodPost {
		d.YAML, d.Tests = r.PostFormValue("yaml"), r.PostFormValue("tests")
		if err := c.play(r.Context(), &d, Typed{d.YAML, d.Tests, r.PostFormValue("do") == "run"}); err != nil {
			return err
		}
	}
	c.show(w, r, http.StatusOK, "playground", "Playground", d)
	return nil
}

// play tries what is typed. One at a time is enough for people, and keeps the node free
// for its work.
func (c *Console) play(ctx context.Context, d *playData, typed Typed) error {
	ctx, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	select {
	case c.playing <- struct{}{}:
		defer func() { <-c.playing }()
	case <-ctx.Done():
		return &Refused{http.StatusServiceUnavailable, "Somebody else uses the playground. Try again."}
	}
	play := c.o.Play
	if play == nil {
		play = Trial{Plan: c.o.Engine.Try}.Play
	}
	var err error
	d.Result, err = play(ctx, typed)
	if err != nil {
		d.Err = err.Error()
	}
	return nil
}

// Play is a [Player].
func (t Trial) Play(ctx context.Context, typed Typed) (template.HTML, error) {
	file := diag.File{Name: "playground.yaml", Data: []byte(typed.YAML)}
	plans, found := t.Plan([]diag.File{file})
	d := playResult{Findings: found}
	for _, p := range plans {
		d.Graphs = append(d.Graphs, playGraph{p.Pipeline, drawing.NewGraph(p, drawing.AsItIs(nil))})
	}
	if t.Run != nil && plans != nil && typed.Run && strings.TrimSpace(typed.Tests) != "" {
		played := t.Run(ctx, file, diag.File{Name: "playground.test.yaml", Data: []byte(typed.Tests)})
		d.Played = &played
		for _, t := range played.Tests {
			d.Lines = append(d.Lines, linesOf(t))
		}
	}
	var out strings.Builder
	if err := newPages(nil)["playground"].ExecuteTemplate(&out, "result", d); err != nil {
		return "", err
	}
	return template.HTML(out.String()), nil
}

// linesOf draws the runs of a test.
func linesOf(t PlayedTest) (lines []runData) {
	for _, s := range t.Stories {
		line := runData{Story: s, Run: s.Run, Took: words.Took(&s.Run.Accepted, s.Run.Finished)}
		end := s.Run.Accepted
		if s.Run.Finished == nil {
			end = end.Add(t.Took)
		}
		line.Timeline = drawing.NewTimeline(s, end)
		lines = append(lines, line)
	}
	return lines
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
