package dsl_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// sharedText is what all pipelines of the tests share.
const sharedText = `schemas:
  order: {type: object, properties: {n: {type: number}}}
events: [{type: known, payload: order}]
configs: {limit: 5}
services: [{id: shop, url: "http://shop.example"}]
flows:
  - {id: f, key: !$ event.key, shared-state: {total: 0}}
  - {id: g, key: !$ event.key}
`

// drawPipeline writes a pipeline that may have to do with others: it has their flow, calls them, sends them events or awaits some. A
// tame one makes no errors, as long as all others are tame.
func drawPipeline(t *rapid.T, b *strings.Builder, id string, isTame bool) {
	odds := func(label string, of int) bool { return rapid.IntRange(1, of).Draw(t, label) == 1 }
	other := func() string { return fmt.Sprintf("p%d", rapid.IntRange(0, 7).Draw(t, "other")) }
	fmt.Fprintf(b, "  - id: %s\n", id)
	isCalled := !isTame && odds("called", 3)
	if isCalled {
		fmt.Fprintf(b, "    inputs: {n: {type: %s}}\n    outputs: {m: !$ inputs.n}\n", rapid.SampledFrom([]string{"number", "string"}).Draw(t, "input"))
	} else if !isTame && odds("on", 3) {
		fmt.Fprintf(b, "    on: [%s]\n", rapid.SampledFrom([]string{"known", "e0", "e1", other()}).Draw(t, "event"))
	}
	if !isCalled && odds("flow", 10) {
		fmt.Fprintf(b, "    flow: %s\n", rapid.SampledFrom([]string{"f", "g"}).Draw(t, "flow"))
	}
	fmt.Fprintf(b, "    shared-state: {n: 0}\n    stages:\n")
	for i := range rapid.IntRange(1, 3).Draw(t, "stages") {
		fmt.Fprintf(b, "      - id: s%d\n        handlers:\n          - id: h%d\n            critical: %t\n", i, i, odds("critical", 2))
		if odds("condition", 4) {
			fmt.Fprintf(b, "            enabled: !$ shared-state.n > configs.limit\n")
		}
		kind := rapid.IntRange(0, 15).Draw(t, "kind")
		if isTame {
			kind = max(kind, 3) // most of them have to do with no other
			if kind == 3 && !odds("sends", 3) {
				kind++
			}
		}
		switch kind {
		case 0:
			fmt.Fprintf(b, "            call: {pipeline: %s, with: {n: 1}}\n            result:\n              n: !$ sources.h%d.response.m ?? 0\n", other(), i)
		case 1:
			fmt.Fprintf(b, "            await: {event: %s, deadline: 1h}\n", rapid.SampledFrom([]string{"e0", "e1", "e2"}).Draw(t, "awaited"))
		case 2:
			fmt.Fprintf(b, "            set: {n: !$ missing.name}\n")
		case 3:
			sent := other()
			if !isTame {
				sent = rapid.SampledFrom([]string{"known", "e0", "e1", sent}).Draw(t, "sent")
			}
			fmt.Fprintf(b, "            emit: {type: %s}\n", sent)
		default:
			fmt.Fprintf(b, "            request: {service: shop, path: /a, query: {n: !$ shared-state.n}}\n")
			fmt.Fprintf(b, "            result:\n              n: !$ sources.h%d.response.n ?? 0\n", i)
		}
	}
}

// drawFile writes a file of pipelines.
func drawFile(t *rapid.T, number int, isTame bool) diag.File {
	var b strings.Builder
	b.WriteString("pipelines:\n")
	drawPipeline(t, &b, fmt.Sprintf("p%d", number), isTame)
	if !isTame && rapid.IntRange(0, 3).Draw(t, "second") == 0 {
		drawPipeline(t, &b, fmt.Sprintf("p%d", rapid.IntRange(0, 20).Draw(t, "name")), false)
	}
	return diag.File{Name: fmt.Sprintf("team-%d.yaml", number), Data: []byte(b.String())}
}

// outcome describes a bundle: what is in it, and what the checks have made of it.
func outcome(b *tree.Bundle) string {
	if b == nil {
		return "none"
	}
	var out strings.Builder
	ids := func(all []*tree.Pipeline) (ids []string) {
		for _, p := range all {
			if b.Pipeline(p.ID) != p {
				ids = append(ids, "another")
			}
			ids = append(ids, p.ID)
		}
		return ids
	}
	fmt.Fprintln(&out, b.Hash, ids(b.Pipelines), slices.Sorted(maps.Keys(b.Index.Handlers)), len(b.Index.Pipelines), b.Index.Kept)
	for _, index := range []map[string][]*tree.Pipeline{b.Index.Serving, b.Index.Awaiting} {
		for _, event := range slices.Sorted(maps.Keys(index)) {
			fmt.Fprintln(&out, event, ids(index[event]))
		}
	}
	for _, f := range b.Files {
		fmt.Fprintln(&out, f.Name, string(f.Data))
	}
	for _, p := range b.Pipelines {
		fmt.Fprintln(&out, p.ID, p.Span, p.On, p.Flow, p.Level, p.Called, p.Owner, slices.Sorted(maps.Keys(p.Contracts)))
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				fmt.Fprintln(&out, h.Path, h.Span, h.Type, h.LeadsBack, h.Undescribed, b.Handler(h.Path) == h)
			}
		}
	}
	return out.String()
}

// Whatever people edit, a loader finds and makes what a load of all files does.
func TestLoaderLoadsAsAll(t *testing.T) {
	t.Parallel()
	o := dsl.Options{Language: language(), Types: testTypes()}
	edits, partly := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		good := []diag.File{{Name: "shared.yaml", Data: []byte(sharedText)}}
		for i := range 8 {
			good = append(good, drawFile(t, i, true))
		}
		files := good
		var l dsl.Loader
		var last *tree.Bundle
		for range rapid.IntRange(2, 8).Draw(t, "edits") {
			have, found := l.Load(files, o)
			want, all := dsl.Load(files, o)
			if len(found)+len(all) > 0 && !reflect.DeepEqual(found, all) {
				t.Fatalf("want the findings of a load of all files:%s\nhave%s", show(all), show(found))
			}
			if a, b := outcome(want), outcome(have); a != b {
				t.Fatalf("want the bundle of a load of all files:\n%s\nhave\n%s", a, b)
			}
			if have == nil {
				files = good // they mend it
				continue
			}
			if last != nil && have != last {
				edits++
				if slices.ContainsFunc(have.Pipelines, func(p *tree.Pipeline) bool { return last.Pipeline(p.ID) == p }) {
					partly++
				}
			}
			good, last = files, have
			files = slices.Clone(files)
			switch n := rapid.IntRange(0, 9).Draw(t, "edited"); {
			case n < 8:
				files[n+1] = drawFile(t, n, rapid.Bool().Draw(t, "tame"))
			case n == 8:
				files[0].Data = []byte(strings.Replace(sharedText, "limit: 5", fmt.Sprint("limit: ", rapid.IntRange(0, 9).Draw(t, "limit")), 1))
			default:
				files[1].Data = append(slices.Clip(files[1].Data), "# a comment\n"...)
			}
		}
	})
	if 10*partly < edits {
		t.Errorf("of %d edits only %d were loaded partly", edits, partly)
	}
}

// An edit of one of many files loads what a load of this file does, not that of all.
func TestLoaderLoadsWhatHasChanged(t *testing.T) {
	o := dsl.Options{Language: language(), Types: testTypes()}
	files := thousand()
	var l dsl.Loader
	before, found := l.Load(files, o)
	if before == nil {
		t.Fatal(show(found))
	}
	all := testing.AllocsPerRun(1, func() { dsl.Load(files, o) })
	edit := func(i int) {
		files = slices.Clone(files)
		files[i].Data = append(slices.Clip(files[i].Data), "# a comment\n"...)
	}
	edit(7)
	edit(30)
	after, _ := l.Load(files, o)
	for i, p := range after.Pipelines {
		file := p.Span.File
		if isOld := before.Pipelines[i] == p; isOld == (file == files[7].Name || file == files[30].Name) {
			t.Fatalf("pipeline %s of %s: shared with the bundle before: %t", p.ID, file, isOld)
		}
	}
	part := testing.AllocsPerRun(3, func() { edit(11); l.Load(files, o) })
	if part*30 > all { // loading it twice would be a 25th
		t.Errorf("loading one of 50 files again makes %.0f allocations, all files %.0f, want a 30th at most", part, all)
	}
}

// BenchmarkLoader1000 loads 1,000 pipelines again after an edit of one file of 20.
func BenchmarkLoader1000(b *testing.B) {
	o := dsl.Options{Language: language(), Types: testTypes()}
	files := thousand()
	var l dsl.Loader
	l.Load(files, o)
	b.ReportAllocs()
	for b.Loop() {
		files[7].Data = append(slices.Clip(files[7].Data), "# a comment\n"...)
		if bundle, found := l.Load(files, o); bundle == nil {
			b.Fatal(show(found))
		}
	}
}
