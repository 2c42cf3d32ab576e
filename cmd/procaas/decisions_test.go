package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/diag"
)

const decisions = "../../docs/decisions"

// decisionHead is the heading of a decision: its title, and its numbers in brackets.
var decisionHead = regexp.MustCompile(`^(.+) \((\d+(?:, \d+)*)\)\n\n`)

// decisionBody is the text of a decision.
var decisionBody = regexp.MustCompile(`(?s)^\*\*Problem\.\*\* .+\n\n\*\*Choice\.\*\* .+\n\n\*\*Cost\.\*\* `)

// A decision is a section of a page in docs/decisions. One that continues or replaces others has their numbers too.
type decision struct {
	page, topic, title, numbers string
}

func readDecisions(t *testing.T) (all []decision) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(decisions, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if filepath.Base(page) == "README.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(text), "\n## ")
		topic, titled := strings.CutPrefix(strings.SplitN(parts[0], "\n", 2)[0], "# ")
		if !titled || len(parts) == 1 {
			t.Errorf("%s: want a topic as its title, and a section for each decision", page)
		}
		for _, part := range parts[1:] {
			m := decisionHead.FindStringSubmatch(part)
			if m == nil || !decisionBody.MatchString(part[len(m[0]):]) {
				t.Errorf("%s: want a title with numbers, Problem, Choice and Cost, have %q", page, strings.SplitN(part, "\n", 2)[0])
				continue
			}
			all = append(all, decision{filepath.Base(page), topic, m[1], m[2]})
		}
	}
	if len(all) == 0 {
		t.Fatalf("no decisions in %s", decisions)
	}
	return all
}

// TestDecisionsAreIndexed compares docs/decisions/README.md with the pages beside it.
func TestDecisionsAreIndexed(t *testing.T) {
	t.Parallel()
	var index strings.Builder
	index.WriteString("# Decisions\n\nWhy things are as they are: the problem, the choice and its cost. The numbers after a title are those of its\n" +
		"decisions, which code and pages name. `make golden` writes this page.\n" +
		"[CONTRIBUTING](../../.github/CONTRIBUTING.md) says how to add a decision.\n")
	topic, numbers := "", map[string]string{} // titles by number
	for _, d := range readDecisions(t) {
		if d.topic != topic {
			topic = d.topic
			fmt.Fprintf(&index, "\n## [%s](%s)\n\n", topic, d.page)
		}
		heading := fmt.Sprintf("%s (%s)", d.title, d.numbers)
		fmt.Fprintf(&index, "- [%s](%s#%s): %s\n", d.title, d.page, anchor(heading), d.numbers)
		for number := range strings.SplitSeq(d.numbers, ", ") {
			if other, found := numbers[number]; found {
				t.Errorf("%q and %q have the number %s", other, d.title, number)
			}
			numbers[number] = d.title
		}
	}
	page := filepath.Join(decisions, "README.md")
	if *update {
		if err := os.WriteFile(page, []byte(index.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != index.String() {
		t.Errorf("%s is not the index of the pages beside it (%v): make golden writes it", page, err)
	}
}

// decisionNamed finds decisions where code and pages name them.
var decisionNamed = regexp.MustCompile(`(?i)\bdecisions? (\d+)\b(?:(?: and| or) (\d+)\b)?`)

// TestDecisionsThatAreNamedAreThere looks for the decisions that code and pages name.
func TestDecisionsThatAreNamedAreThere(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, d := range readDecisions(t) {
		for number := range strings.SplitSeq(d.numbers, ", ") {
			there[number] = true
		}
	}
	files, err := source.Files([]string{"../.."}, nil, func(name string) bool {
		return slices.Contains([]string{".go", ".md", ".sql", ".yaml"}, filepath.Ext(name))
	})
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f diag.File) bool { return strings.Contains(f.Name, "node_modules/") })
	for _, f := range files {
		for _, m := range decisionNamed.FindAllSubmatch(f.Data, -1) {
			for _, number := range m[1:] {
				if len(number) > 0 && !there[string(number)] {
					t.Errorf("%s names decision %s, which is not in docs/decisions", f.Name, number)
				}
			}
		}
	}
}
