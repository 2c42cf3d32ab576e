package dsl_test

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// unfollowed are the codes whose examples are no files that can be mended by hand, and why.
var unfollowed = map[diag.Code]string{
	"PC0101": "the file would have a mebibyte",
	"PC0119": "the file would have 200 other findings",
	"PC0224": "the file would have 10000 transitions",
}

// comments are lines of their own, which --fix makes of what stood behind an expression.
var comments = regexp.MustCompile(`(?m)^ *#.*\n`)

// TestEveryRemedyWorks follows the message about the wrong example of each rule, by --fix where that mends it. What comes
// of it must have no findings: a remedy that leads to the next error helps nobody. What --fix makes is the right example.
func TestEveryRemedyWorks(t *testing.T) {
	t.Parallel()
	o, remedies := dsl.Options{Language: language(), Types: builtinTypes()}, readRemedies(t)
	for _, rule := range language().Rules() {
		if rule.AboutTests() || unfollowed[rule.Code] != "" {
			continue
		}
		t.Run(string(rule.Code), func(t *testing.T) {
			t.Parallel()
			files := splitFiles(rule.Before)
			_, found := dsl.Load(files, o)
			out, fixed, left := dsl.Fix(files, o)
			if len(fixed) > 0 && len(left) > 0 {
				t.Errorf("--fix leaves %s\nin %s", show(left), out[0].Data)
			}
			if have, want := comments.ReplaceAllString(string(out[0].Data), ""), string(splitFiles(rule.After)[0].Data); len(fixed) > 0 && have != want {
				t.Errorf("--fix makes something else of it:\n%s\nwant\n%s", have, want)
			}
			if len(remedies[rule.Code]) == 0 && len(fixed) == 0 {
				t.Errorf("no remedy is tried against %s", show(found))
			}
			for _, r := range remedies[rule.Code] {
				after := r.follow(t, rule, found)
				if _, left := dsl.Load(splitFiles(after), o); len(left) > 0 {
					t.Errorf("the remedy %q leads to %s\nin %s", r.says, show(left), after)
				}
			}
		})
	}
	for code := range remedies {
		if _, ok := language().Rule(code); !ok || unfollowed[code] != "" {
			t.Errorf("the remedies of %s are never tried", code)
		}
	}
}

// A remedy is what an author does who follows a message.
type remedy struct {
	says     *regexp.Regexp // finds the advice in the message or its hint
	old, new string         // lines of the file; no old ones for the whole file
}

// readRemedies reads the remedies of each rule.
func readRemedies(t *testing.T) map[diag.Code][]remedy {
	t.Helper()
	text, err := os.ReadFile("../testdata/dsl/rules/remedies.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[diag.Code][]remedy{}
	for part := range strings.SplitSeq(strings.ReplaceAll(string(text), `\0`, "\x00"), "\n\n") {
		if strings.HasPrefix(part, "#") {
			continue
		}
		head, lines, _ := strings.Cut(part, "\n")
		code, says, _ := strings.Cut(head, " ")
		r := remedy{says: regexp.MustCompile(says)}
		for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\n"), "\n") {
			switch line[0] {
			case '-':
				r.old += line[1:] + "\n"
			case '+':
				r.new += line[1:] + "\n"
			default:
				t.Fatalf("neither - nor +: %q", line)
			}
		}
		all[diag.Code(code)] = append(all[diag.Code(code)], r)
	}
	return all
}

// follow does what the message says to the wrong example of a rule.
func (r remedy) follow(t *testing.T, rule rules.Rule, found []diag.Diagnostic) string {
	t.Helper()
	for _, d := range found {
		text := d.Message + "\n" + d.Hint
		m := r.says.FindStringSubmatchIndex(text)
		if m == nil || d.Code != rule.Code {
			continue
		}
		before := strings.TrimSuffix(rule.Before, "\n") + "\n"
		now := string(r.says.ExpandString(nil, r.new, text, m))
		if r.old == "" {
			return now
		}
		if n := strings.Count(before, r.old); n != 1 {
			t.Fatalf("%q stands %d times in\n%s", r.old, n, before)
		}
		return strings.Replace(before, r.old, now, 1)
	}
	t.Errorf("no message has the advice %q: %s", r.says, show(found))
	return cmp.Or(rule.After, rule.Before)
}
