package decode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// The bounds of one file.
const (
	largestFile  = 1 << 20
	mostFindings = 200
)

// honestTime is what an ordinary file of a quarter of the largest size takes here
// and now: the measure for hostile ones.
func honestTime() time.Duration {
	var text strings.Builder
	text.WriteString("handlers:\n")
	for i := 0; text.Len() < largestFile/4; i++ {
		fmt.Fprintf(&text, "- id: h%d\n  into: p/s\n  critical: false\n  enabled: !$ event.payload.n > %d\n", i, i)
	}
	start := time.Now()
	parseText(text.String())
	return time.Since(start)
}

// Hostile files: each must be refused or read in a time that an honest file may
// take, too, apart from what a busy machine adds.
func TestHostileFilesAreBounded(t *testing.T) {
	t.Parallel()
	honest := honestTime()
	var keys, wide strings.Builder
	keys.WriteString("configs:\n")
	for i := range 80_000 {
		fmt.Fprintf(&keys, "  k%d: 1\n", i)
	}
	for i := range 100_000 {
		fmt.Fprintf(&wide, "k%d: \n", i)
	}
	laughs := "configs:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("  a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9))
	}
	fill := func(unit string) string { return strings.Repeat(unit, largestFile/len(unit)) }
	for name, c := range map[string]struct {
		text string
		code diag.Code // the first one; empty for none
	}{
		"one byte too many":    {strings.Repeat("#", largestFile+1), rules.TooLarge},
		"just large enough":    {strings.Repeat("#", largestFile), ""},
		"many keys":            {keys.String(), ""},
		"100,000 keys":         {wide.String(), rules.TooLarge},
		"50,000 equal keys":    {strings.Repeat("k: \n", 50_000), rules.DuplicateKey},
		"one long unknown key": {strings.Repeat("a", 1000) + ": 1", rules.UnknownField},
		"a billion laughs":     {laughs, rules.TooLarge},
		"many aliases":         {"configs:\n  a: &a 1\n  b: [" + strings.Repeat("*a, ", 101) + "]", rules.TooManyAliases},
		"enough aliases":       {"configs:\n  a: &a 1\n  b: [" + strings.Repeat("*a, ", 100) + "]", ""},
		"large text, 100 aliases": {
			"configs:\n  a: &a " + strings.Repeat("x", 100_000) + "\n  b: [" + strings.Repeat("*a, ", 100) + "]",
			rules.TooLarge,
		},
		"deep":                 {"configs: {a: " + strings.Repeat("[", 61) + strings.Repeat("]", 61) + "}", ""},
		"too deep":             {"configs: {a: " + strings.Repeat("[", 63) + strings.Repeat("]", 63) + "}", rules.TooDeep},
		"much too deep":        {strings.Repeat("[", 20_000), rules.Syntax},
		"brackets":             {fill("["), rules.Syntax},
		"braces":               {fill("{a: "), rules.Syntax},
		"dashes":               {fill("- "), rules.Syntax},
		"question marks":       {fill("? "), rules.Syntax},
		"commas":               {"a: [" + strings.Repeat("a,", 500_000) + "]", rules.TooLarge},
		"colons":               {fill(": "), rules.Syntax},
		"newlines":             {fill("\n"), ""},
		"comments":             {fill("#\n"), ""},
		"comments behind keys": {fill("a: #\n"), rules.TooLarge},
		"anchors":              {fill("&a "), rules.Syntax},
		"tags":                 {fill("!a "), rules.Syntax},
		"one quote":            {"a: '" + fill("x")[5:], rules.Syntax},
		"quotes":               {fill("'' "), rules.Syntax},
		"escapes":              {`a: "` + strings.Repeat(`\x41`, 200_000) + `"`, rules.UnknownField},
		"folded lines":         {"a: !$ >\n" + strings.Repeat(" x\n\n", 200_000), rules.UnknownField},
		"blanks":               {"a: |\n" + strings.Repeat(" ", largestFile-10), rules.UnknownField},
		"unclosed expressions": {fill("a: !$ (\n")[:600_000], rules.DuplicateKey},
		"nested first version": {"handlers:\n- id: a\n  enabled#and: " + strings.Repeat("[value#and: ", 80), rules.Syntax},
		"operators":            {"handlers:\n- id: a\n  enabled#and: [" + strings.Repeat("true,", 150_000) + "]", ""},
		"many small aliases":   {"x: &a []\n" + strings.Repeat("- *a\n", 200), rules.Syntax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, found := parseText(c.text)
			took := time.Since(start)
			t.Logf("%v, %d findings", took, len(found))
			if took > 60*honest {
				t.Errorf("took %v, and an honest file %v", took, honest)
			}
			if len(found) > mostFindings+1 {
				t.Errorf("have %d findings, want at most %d", len(found), mostFindings+1)
			}
			have := diag.Code("")
			if len(found) > 0 {
				have = found[0].Code
			}
			if have != c.code {
				t.Errorf("have code %q, want %q: %v", have, c.code, found[:min(3, len(found))])
			}
		})
	}
}
