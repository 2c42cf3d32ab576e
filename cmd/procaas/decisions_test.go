package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/diag"
)

const decisions = "../../docs/decisions"

// decisionHead is how each decision begins.
var decisionHead = regexp.MustCompile(`(?s)^# (\d+)\. ([^\n]+)\n\n- Date: (\d{4}-\d\d-\d\d)\n- Status: (.+?)\n- Topic: ([^\n]+)\n\n\*Context\.\* .+\n\*Choice\.\* `)

// A decision is a file of docs/decisions.
type decision struct {
	number                     int
	file, title, status, topic string
}

func readDecisions(t *testing.T) (all []decision) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(decisions, "[0-9]*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no decisions in %s: %v", decisions, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := decisionHead.FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s: want a title with its number, Date, Status, Topic, and then *Context.* and *Choice.*", file)
			continue
		}
		n, _ := strconv.Atoi(m[1])
		if want := fmt.Sprintf("%04d-", n); !strings.HasPrefix(filepath.Base(file), want) {
			t.Errorf("%s: the title has the number %d", file, n)
		}
		all = append(all, decision{
			number: n, file: filepath.Base(file), title: m[2], status: strings.Join(strings.Fields(m[4]), " "),
			topic: m[5],
		})
	}
	return all
}

// TestDecisionsAreIndexed holds docs/decisions/README.md against the files beside it.
func TestDecisionsAreIndexed(t *testing.T) {
	t.Parallel()
	all := readDecisions(t)
	var topics []string
	lines := map[string][]string{}
	for i, d := range all {
		if i > 0 && d.number <= all[i-1].number {
			t.Errorf("%s and %s have one number", all[i-1].file, d.file)
		}
		topic, note := d.topic, ""
		switch status, rest, changed := strings.Cut(d.status, ", changed by "); {
		case strings.HasPrefix(d.status, "replaced by "):
			topic, note = "Replaced", " ("+d.status+")"
		case status != "accepted":
			t.Errorf(`%s: want the status "accepted", "accepted, changed by …" or "replaced by …", have %q`, d.file, d.status)
		case changed:
			note = " (changed by " + strings.Join(decisionLink.FindAllString(rest, -1), ", ") + ")"
		}
		if lines[topic] == nil && topic != "Replaced" {
			topics = append(topics, topic)
		}
		lines[topic] = append(lines[topic], fmt.Sprintf("- [%d. %s](%s)%s\n", d.number, d.title, d.file, note))
	}
	var index strings.Builder
	index.WriteString("# Decisions\n\nThe reasons of the design, one file per decision: the problem (context), what we chose, and what that costs. A decision without\n" +
		"a note still holds as it is written. \"Changed by\" names later decisions that change a part of it. `make golden` writes this page.\n" +
		"[CONTRIBUTING](../../.github/CONTRIBUTING.md) says how to add a decision.\n")
	for _, topic := range append(topics, "Replaced") {
		fmt.Fprintf(&index, "\n## %s\n\n%s", topic, strings.Join(lines[topic], ""))
	}
	page := filepath.Join(decisions, "README.md")
	if *update {
		if err := os.WriteFile(page, []byte(index.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != index.String() {
		t.Errorf("%s is not the index of the files beside it (%v): make golden writes it", page, err)
	}
}

var (
	decisionLink = regexp.MustCompile(`\[\d+\]\([^)]+\)`)
	// decisionNamed finds decisions where code and pages name them.
	decisionNamed   = regexp.MustCompile(`(?i)\bdecisions? (\d+)\b(?:(?: and| or) (\d+)\b)?|DESIGN\.md (\d+)\b`)
	decisionSection = regexp.MustCompile(`(?m)^## (\d+)\. `)
)

// TestDecisionsThatAreNamedAreThere looks for the decisions that code and pages name.
func TestDecisionsThatAreNamedAreThere(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, d := range readDecisions(t) {
		there[strconv.Itoa(d.number)] = true
	}
	files, err := source.Files([]string{"../.."}, nil, func(name string) bool {
		return slices.Contains([]string{".go", ".md", ".sql", ".yaml"}, filepath.Ext(name))
	})
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f diag.File) bool { return strings.Contains(f.Name, "node_modules/") })
	for _, f := range files {
		for _, m := range decisionSection.FindAllSubmatch(f.Data, -1) { // those of engine/DESIGN.md are to be moved
			there[string(m[1])] = there[string(m[1])] || filepath.Base(f.Name) == "DESIGN.md"
		}
	}
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
