package playground

import (
	"context"
	"fmt"
	"strings"
	"time"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine/api/ui"
	"procaas/engine/flowtest"
	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/handlers"
)

// maxPlayed is how many tests the playground runs.
const maxPlayed = 5

// run runs tests of the console's playground: on a store in memory, in virtual time, without a network.
func run(ctx context.Context, pipelines, tests diag.File) (out ui.Played) {
	file, found := flowtest.Parse(tests)
	out.Findings = found
	if file == nil {
		return out
	}
	if len(file.Stubs) > 0 || len(file.Pipelines) > 0 {
		out.Err = "In the playground a test has no files: leave out pipelines and stubs."
		return out
	}
	bundle, found := dsl.Load([]diag.File{pipelines}, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	if bundle == nil {
		out.Findings = append(out.Findings, found...)
		return out
	}
	env := flowtest.Env{
		Types: addons.HandlerTypes(), Alone: handlers.Alone(),
		Store: func(now func() time.Time) store.Store { return memory.New(now).Ports() },
	}
	suite, found := flowtest.NewSuite(tests.Name, file, bundle, nil, env)
	out.Findings = append(out.Findings, found...)
	if suite == nil {
		return out
	}
	played, err := suite.Play(ctx, maxPlayed)
	switch {
	case ctx.Err() != nil:
		out.Err = "It takes too long for the playground: run it with procaas test."
	case err != nil:
		out.Err = err.Error()
	// A test that was left out must not seem to have passed.
	case len(file.Tests) > maxPlayed:
		out.Err = fmt.Sprintf("The playground runs %d tests; procaas test runs all.", maxPlayed)
	}
	for _, p := range played {
		t := ui.PlayedTest{Name: p.Name, Stories: p.Stories, Took: p.Took}
		for _, r := range p.Refused {
			t.Wrong = append(t.Wrong, "refused: "+r)
		}
		for _, d := range p.Problems {
			t.Wrong = append(t.Wrong, strings.TrimSpace(fmt.Sprintf("line %d, %s: want %s, have "+
				"%s\n%s", d.Span.Start.Line, d.Path, d.Want, d.Have,
				d.Note)))
		}
		for _, c := range p.Calls {
			call := ui.PlayedCall{Path: c.Path, Attempt: c.Attempt, At: c.At, Address: strings.TrimSpace(c.Method + " " + c.URL)}
			if c.Err != nil {
				call.Error = c.Err.Error()
			}
			t.Calls = append(t.Calls, call)
		}
		out.Tests = append(out.Tests, t)
	}
	return out
}
