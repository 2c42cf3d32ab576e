package dsl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"procaas/dsl/diag"
)

// loadCron reports whether a trigger with this line loads.
func loadCron(t testing.TB, line string) bool {
	_, found := load(t, fmt.Sprintf(`pipelines:
  - {id: tick, stages: [{id: s, handlers: [{id: h, wait: {for: 1s}}]}]}
triggers:
  - {id: t, event: tick, cron: %q}
`, line))
	for _, d := range found {
		if d.Severity == diag.Error && d.Code != "PC0218" {
			t.Fatalf("%q: %s", line, show(found))
		}
	}
	return !diag.HasErrors(found)
}

// TestCronIsWhatTheSchedulerReads makes lines out of good and bad parts: what
// loads, the scheduler must understand, and what it does not, must not load.
func TestCronIsWhatTheSchedulerReads(t *testing.T) {
	t.Parallel()
	parts := []string{
		"*", "*/5", "0", "1", "5-10", "5-10/2", "3/2", "12", "59", "60", "31", "7", "6-1", "*/0", "-1", "+1", "", "jan", "MON",
		"dec-jan", "mon-fri", "fri/2", "x", "1-", "/2", "1//2", "1-2-3",
	}
	rapid.Check(t, func(rt *rapid.T) {
		fields := make([]string, 5)
		for i := range fields {
			list := rapid.SliceOfN(rapid.SampledFrom(parts), 1, 2).Draw(rt, "list")
			fields[i] = strings.Join(list, ",")
		}
		line := strings.Join(fields, " ")
		loads := loadCron(t, line)
		_, err := cron.ParseStandard(line)
		if loads && err != nil {
			rt.Fatalf("%q loads, but the scheduler says: %v", line, err)
		}
		if !loads && err == nil && !stricter(line) {
			rt.Fatalf("%q does not load, but the scheduler takes it", line)
		}
	})
}

// stricter tells what only we refuse: empty elements, signs, and days that
// never come.
func stricter(line string) bool {
	fields := strings.Fields(line)
	for _, f := range fields {
		for part := range strings.SplitSeq(f, ",") {
			if part == "" || strings.ContainsAny(part, "+") {
				return true
			}
		}
	}
	return fields[4] == "*" && !strings.ContainsAny(fields[2]+fields[3], "*,-/")
}

func TestCronOfRealLife(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"*/5 * * * *":         true,
		"0 3 * * mon-fri":     true,
		"0 0 29 2 *":          true,
		"0 0 30 feb *":        false,
		"0 0 31 2 1":          true, // mondays of February, by the rule of cron
		"0 0 31 apr,jun *":    false,
		"0 0 * * sun":         true,
		"0 0 * * 7":           false,
		"@every 1h":           false,
		"TZ=UTC 0 0 * * *":    false,
		"0 0 0 * * *":         false,
		"0 0 1 1 * extra":     false,
		"0\t0  1 1 *":         true,
		"0 0 1 january *":     false,
		"0-59/15 9-17 * * 1":  true,
		"0,15,30,45 * * * *":  true,
		"0 0 1-31/60 * *":     false,
		"99999999999 * * * *": false,
	} {
		if have := loadCron(t, line); have != want {
			t.Errorf("%q loads: have %v, want %v", line, have, want)
		}
	}
}
