package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"procaas/cmd/procaas/addons"
	"procaas/docs"
)

const (
	longestLine     = 100 // characters
	longestSentence = 30  // words
	longestOfRules  = 25  // words of a sentence that explains a diagnostic
	longestPage     = 250 // lines
)

// A phrase is a way of writing that readers stumbled over, with what to write in its place.
type phrase struct{ old, instead string }

// phrasesOfRules are not in the texts of diagnostics, which are shorter than pages.
var phrasesOfRules = []phrase{
	{`\bgives?\b`, "has, returns, sets"},
	{`(?:^|[.:;] )(?:who|what|that)\b`, "begin with the thing"},
	{`becomes? of\b`, "say what happens"},
	{`\bcomes? (?:with|when)\b`, "arrives, is in"},
	{`\bis none\b`, "say what it is"},
	{`;`, "a full stop"},
}

var phrases = []phrase{
	{`tells? whether`, "reports whether"},
	{`\bgo(es)? on (by|with|from|behind)\b`, "continues, resumes"},
	{`\bbears?\b`, "can take, handles"},
	{`comes? to (an end|hold|be)\b`, "ends, holds, is"},
	{`\bis told\b|\bare told\b|\bbe told\b`, "is notified, learns, sees"},
	{`\bby whom\b`, "say who does it"},
	{`\b(is|are) (one|ones) that\b`, "name the thing"},
	{`\bthe like\b`, "name the things"},
	{`\bought to\b`, "must, should"},
	{`\bno (more|less) than\b`, "at most, at least"},
	{`\bbesides\b`, "also, as well as"},
	{`\bwh(at|o)ever\b|\bwhom\b`, "name the thing or the actor"},
	{`\b(has|have) to be \w+ed\b|\b(is|are) to be \w+ed\b`, "say who must do it"},
	{`\bin place of\b`, "instead of"},
	{`\b(is|are) no more\b|\bnot any more\b`, "no longer"},
	{`\bunder way\b`, "in flight, current"},
	{`\bby what\b`, "say how"},
	{`\brepetitions?\b`, "retry, retries"},
	{`\bhence\b|\bthereby\b|\bwhereby\b|\bthereof\b|\bthereupon\b`, "so, by doing this"},
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline   = regexp.MustCompile("`[^`\n]*`")
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	comment  = regexp.MustCompile(`(?s)<!--.*?-->`)
	sentence = regexp.MustCompile(`[.!?:](?:\s+|$)`)
	// help is what a command says of itself, in its section of the reference.
	help      = regexp.MustCompile("(?ms)^```text\n(.*?)^```$")
	described = regexp.MustCompile(`^\s*"(?:description|summary)": (".*"),?$`)
	item      = regexp.MustCompile(`^\s*([-*]|\d+\.)\s|^ {2,}\S+( \S+)* {2,}`) // the last is a term in a help text
)

// TestProse holds the pages to plain English: short lines, short sentences, and none of the phrases that readers had to
// read twice.
func TestProse(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems(string(text)) {
			t.Errorf("%s%s", page, problem)
		}
	}
}

// others are read as well: what is beside the code, and what is generated from help texts and comments. Their lines and
// pages may be longer, but pages of decisions not.
var others = []string{
	"../README.md", "../.github/CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md", "../dsl/*.md", "../engine/*.md",
	"../clients/*/*.md", "../handlers/*.md", "../handlers/*/*.md", "../handlers/*/*/*.md", "../pipelines/*/*.md", "reference/*.md", "decisions/*.md",
}

// TestProseOfOthers holds other texts to the same sentences and phrases.
func TestProseOfOthers(t *testing.T) {
	t.Parallel()
	for _, pattern := range others {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: have %d files: %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// The index has a line for each decision, and nobody reads it whole.
			page := strings.HasPrefix(pattern, "decisions") && filepath.Base(file) != "README.md"
			if lines := strings.Count(string(text), "\n"); lines > longestPage && page {
				t.Errorf("%s has %d lines; want at most %d: split it", file, lines, longestPage)
			}
			for _, problem := range sentences(help.ReplaceAllString(string(text), "$1")) {
				t.Errorf("%s%s", file, problem)
			}
		}
	}
}

// TestProseOfTheAPI holds the descriptions of calls and fields to the same.
func TestProseOfTheAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../schemas/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		m := described.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var description string
		if err := json.Unmarshal([]byte(m[1]), &description); err != nil {
			t.Fatal(err)
		}
		for _, problem := range sentences(description) {
			t.Errorf("../schemas/openapi.json:%d, line%s", i+1, problem)
		}
	}
}

// TestIndexHasAllPages keeps a page from being there without anybody finding it.
func TestIndexHasAllPages(t *testing.T) {
	t.Parallel()
	indexed, err := docs.Pages()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for i, p := range indexed {
		if p.Title == "" || there[p.Name] || i > 0 && p.Section == "" {
			t.Errorf("%s is in the index twice, without a section, or has no heading", p.Name)
		}
		there[p.Name] = true
	}
	files := pages(t)
	reference, err := filepath.Glob("reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, reference...) {
		if name := strings.TrimSuffix(filepath.ToSlash(file), ".md"); !there[name] {
			t.Errorf("%s is not in the index", file)
		}
	}
}

// TestProseFindsProblems shows that each rule finds something.
func TestProseFindsProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Repeat("abc ", 26) + "\n":                                "104 characters",
		"It runs " + strings.Repeat("and\nruns ", 15) + ".\n":            "32 words",
		"| a | " + strings.Repeat("word ", 31) + " |\n":                  "31 words",
		"The node goes on with the run.\n":                               `"goes on with"`,
		"```sh\nprocaas goes on\n```\nAnd `it goes on` in [x](goes%20).": "",
		"One. Two. Three.\n\n- four\n- five\n":                           "",
		strings.Repeat("line\n\n", 130):                                  "259 lines",
	} {
		found := strings.Join(problems(text), "\n")
		if want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%.60q: want %q, have %q", text, want, found)
		}
	}
}

// pages lists what people read who use the program: the pages of this folder and the README.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if d.IsDir() && (path == "decisions" || path == "reference") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("have %d pages: %v", len(all), err)
	}
	return all
}

// problems lists what is wrong with a page, each with its line.
func problems(text string) (found []string) {
	report := func(line int, format string, args ...any) {
		found = append(found, fmt.Sprintf(":%d: %s", line, fmt.Sprintf(format, args...)))
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > longestPage {
		report(1, "the page has %d lines; want at most %d: split it", len(lines), longestPage)
	}
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > longestLine && !strings.HasPrefix(line, "|") {
			report(i+1, "the line has %d characters; want at most %d", n, longestLine)
		}
	}
	return append(found, sentences(text)...)
}

// sentences lists sentences that are too long, and phrases.
func sentences(text string) (found []string) {
	report := func(line int, format string, args ...any) {
		found = append(found, fmt.Sprintf(":%d: %s", line, fmt.Sprintf(format, args...)))
	}
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	prose := fenced.ReplaceAllStringFunc(text, blank)
	prose = comment.ReplaceAllStringFunc(prose, blank)
	prose = inline.ReplaceAllString(prose, "x")
	prose = linked.ReplaceAllString(prose, "$1")
	for _, p := range paragraphs(prose) {
		for _, problem := range stumbles(p.text, longestSentence, phrases) {
			report(p.line, "%s", problem)
		}
	}
	return found
}

// stumbles lists the long sentences and the phrases of a text that readers stumble over.
func stumbles(text string, longest int, phrases []phrase) (found []string) {
	for _, s := range sentence.Split(text, -1) {
		if n := len(strings.Fields(s)); n > longest {
			found = append(found, fmt.Sprintf("a sentence has %d words; want at most %d: %s", n, longest, strings.Join(strings.Fields(s), " ")))
		}
	}
	for _, phrase := range phrases {
		if m := compiled(phrase.old).FindString(text); m != "" {
			found = append(found, fmt.Sprintf("%q: write in its place: %s", m, phrase.instead))
		}
	}
	return found
}

// regexps has the expressions of phrases, by their text: tests look for the same ones in each paragraph.
var regexps sync.Map

func compiled(old string) *regexp.Regexp {
	re, found := regexps.Load(old)
	if !found {
		re, _ = regexps.LoadOrStore(old, regexp.MustCompile(`(?i)`+old))
	}
	return re.(*regexp.Regexp)
}

// TestRulesProse holds the texts that explain diagnostics to plain English, since their readers are stuck already.
func TestRulesProse(t *testing.T) {
	t.Parallel()
	for _, rule := range addons.Language().Rules() {
		for _, text := range []string{rule.Title, rule.Why} {
			for _, problem := range stumbles(text, longestOfRules, slices.Concat(phrases, phrasesOfRules)) {
				t.Errorf("%s: %s", rule.Code, problem)
			}
		}
	}
}

type paragraph struct {
	line int
	text string
}

// paragraphs parts text at blank lines, headings, elements of lists and cells of tables.
func paragraphs(text string) (all []paragraph) {
	open := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
			open = false
		case strings.HasPrefix(trimmed, "|"):
			for cell := range strings.SplitSeq(trimmed, "|") {
				all = append(all, paragraph{i + 1, cell})
			}
			open = false
		case open && !item.MatchString(line):
			last := &all[len(all)-1]
			last.text += " " + trimmed
		default:
			all = append(all, paragraph{i + 1, item.ReplaceAllString(line, "")})
			open = true
		}
	}
	return all
}

// told finds messages and hints in the goldens of diagnostics.
var told = regexp.MustCompile(`(?m)^(?:(?:error|warning|advice)\[PC\d+\]: |\s+= help: |note: |[\d:-]+ (?:error|warning|advice) PC\d+ )(.*)$`)

// phrasesOfMessages are not in diagnostics: they name what to write.
var phrasesOfMessages = []phrase{
	{`(?:^|[.:;,] )say [a-z-]+:`, "write, add"},
	{`\bgives\b|^give (?:it|a|the)\b`, "sets, add, write"},
	{`\bgoes on\b`, "continues"},
	{`\bcalls nobody\b`, "makes no call"},
	{`\bdrop one of both\b`, "drop one of them"},
	{`\bread it with \?\.`, "quote the whole expression"},
}

// TestDiagnosticsProse holds the messages that goldens show to plain English.
func TestDiagnosticsProse(t *testing.T) {
	t.Parallel()
	goldens, err := filepath.Glob("../testdata/dsl/*.txt")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	found := 0
	for _, golden := range goldens {
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range told.FindAllStringSubmatch(string(text), -1) {
			found++
			for part := range strings.SplitSeq(m[1], " | ") {
				for _, problem := range stumbles(part, 1000, slices.Concat(phrases, phrasesOfMessages)) { // hints list all fields
					t.Errorf("%s: %s in %q", golden, problem, part)
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("found %d messages, want many", found)
	}
}
