package fallback_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"procaas/dsl/tree"
	"procaas/engine/fallback"
	"procaas/engine/model"
)

// defaultFallback is what the language makes of an empty fallback.
func defaultFallback() *tree.Fallback {
	return &tree.Fallback{
		MinSuccessRatio: 0.5, Window: 30 * time.Second, MinCalls: 10, Duration: 10 * time.Second,
		MaxDuration: 5 * time.Minute,
	}
}

// A fleet is handlers under Decide, with calls as regular as a clock.
type fleet struct {
	t         testing.TB
	watched   []fallback.Watched
	fallbacks *fallback.Rules
	state     fallback.State
	now       time.Time
	counts    fallback.Counts
	tallies   []model.Tally // of the last five minutes
	rate      int           // calls of each handler in a second
	changes   []fallback.Change
}

func newFleet(t testing.TB, watched ...fallback.Watched) *fleet {
	return &fleet{
		t: t, watched: watched, fallbacks: fallback.NewRules(watched),
		now: time.Unix(1_800_000_000, 0).UTC(), rate: 5, counts: fallback.Counts{},
	}
}

// run lets seconds pass in which the calls of some handlers fail, and returns what
// changed. Each second another node decides.
func (f *fleet) run(seconds int, fails func(path string) bool) []string {
	f.t.Helper()
	before := len(f.changes)
	for range seconds {
		var tallies []model.Tally
		for _, w := range f.watched {
			tally := model.Tally{Path: w.Path, Second: f.now.Unix()}
			for i := range f.rate {
				at := f.now.Add(time.Duration(i) * time.Second / time.Duration(f.rate))
				switch f.state.Admit(w.Path, at, float64(i)/float64(f.rate)) {
				case fallback.AdmitSkip:
					continue
				case fallback.AdmitProbe:
					if !f.state.TakeProbe(w.Path, at) {
						continue
					}
				}
				if fails(w.Path) {
					tally.Bad++
				} else {
					tally.Good++
				}
			}
			tallies = append(tallies, tally)
		}
		f.now = f.now.Add(time.Second)
		f.changes = append(f.changes, f.fallbacks.Decide(&f.state, f.counts, f.now, tallies)...)
		f.tallies = append(f.tallies, tallies...)
		f.tallies = f.tallies[max(0, len(f.tallies)-300*len(f.watched)):]
		f.restart()
	}
	var lines []string
	for _, c := range f.changes[before:] {
		lines = append(lines, strings.TrimSpace(c.Kind+" "+c.Name))
	}
	return lines
}

// restart lets all nodes die and others continue with what is stored.
func (f *fleet) restart() {
	f.t.Helper()
	data, err := json.Marshal(f.state)
	if err != nil {
		f.t.Fatal(err)
	}
	var again fallback.State
	if err := json.Unmarshal(data, &again); err != nil {
		f.t.Fatal(err)
	}
	f.state = again
	f.counts = f.fallbacks.Recount(&f.state, f.now, f.tallies)
}

func (f *fleet) want(have []string, want ...string) {
	f.t.Helper()
	if d := cmp.Diff(want, have); d != "" {
		f.t.Errorf("(- want, + have):\n%s", d)
	}
}

func all(string) bool     { return true }
func nothing(string) bool { return false }

func only(paths ...string) func(string) bool {
	return func(p string) bool { return slices.Contains(paths, p) }
}

func lone(f *tree.Fallback) fallback.Watched {
	return fallback.Watched{Path: "p/s/h", Service: "push", Fallback: f}
}

func TestHandlerGoesOutAndComesBackByItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lone(defaultFallback()))
	f.want(f.run(60, nothing))
	f.want(f.run(5, all), "out p/s/h")
	f.want(f.run(8, nothing))
	f.want(f.run(6, nothing), "probing p/s/h", "ramping p/s/h")
	f.want(f.run(16, nothing), "back p/s/h")
	if out := f.changes[0]; out.Until.Sub(f.now) > 0 || out.Why == "" {
		t.Errorf("the change says too little: %+v", out)
	}
}

func TestCriticalHandlerStays(t *testing.T) {
	t.Parallel()
	w := lone(defaultFallback())
	w.Critical = true
	f := newFleet(t, w)
	f.want(f.run(600, all))
}

func TestFailedProbeExtendsWithoutDoubling(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lone(defaultFallback()))
	f.want(f.run(50, all), "out p/s/h", "probing p/s/h", "extended p/s/h", "probing p/s/h", "extended p/s/h",
		"probing p/s/h", "extended p/s/h", "probing p/s/h", "extended p/s/h")
	for _, c := range f.changes {
		if c.Kind == fallback.Extended && c.Until.Sub(f.changes[0].Until)%(10*time.Second) > 5*time.Second {
			t.Errorf("extended until %v, first until %v", c.Until, f.changes[0].Until)
		}
	}
}

// outFor lets a handler fail until it goes out, and returns for how long.
func (f *fleet) outFor() time.Duration {
	f.t.Helper()
	for range 120 {
		f.run(1, all)
		if last := len(f.changes) - 1; last >= 0 && f.changes[last].Kind == fallback.Out && f.changes[last].Until.After(f.now) {
			return f.changes[last].Until.Sub(f.now)
		}
	}
	f.t.Fatal("it does not go out")
	return 0
}

func TestRepeatedTripsDoubleTheTimeUntilItIsQuiet(t *testing.T) {
	t.Parallel()
	spec := defaultFallback()
	spec.MaxDuration = 30 * time.Second
	f := newFleet(t, lone(spec))
	for i, want := range []time.Duration{10, 20, 30, 30} {
		if have := f.outFor(); have != want*time.Second {
			t.Errorf("trip %d: out for %v, want %vs", i+1, have, want)
		}
		f.run(90, nothing)
	}
	f.run(600, nothing)
	if have := f.outFor(); have != 10*time.Second {
		t.Errorf("after ten quiet minutes: out for %v, want 10s", have)
	}
}

func TestFailuresWhileComingBackSendItOutAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lone(defaultFallback()))
	f.outFor()
	f.run(20, nothing)
	if f.state.Outages[0].Phase != fallback.Ramping {
		t.Fatalf("have phase %s", f.state.Outages[0].Phase)
	}
	if have := f.outFor(); have != 20*time.Second {
		t.Errorf("out for %v, want 20s", have)
	}
}

func TestOneProbeASecondInTheWholeCluster(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lone(defaultFallback()))
	f.run(14, all)
	at := f.now.Add(time.Second)
	if f.state.Admit("p/s/h", at, 0) != fallback.AdmitProbe || !f.state.TakeProbe("p/s/h", at) {
		t.Fatalf("want a probe; have %+v", f.state.Outages[0])
	}
	for _, d := range []time.Duration{0, 999 * time.Millisecond} {
		if f.state.Admit("p/s/h", at.Add(d), 0) != fallback.AdmitSkip || f.state.TakeProbe("p/s/h", at.Add(d)) {
			t.Errorf("a second probe after %v", d)
		}
	}
	if f.state.Admit("p/s/h", at.Add(time.Second), 0) != fallback.AdmitProbe {
		t.Error("no probe after a second")
	}
}

// While nodes are away nobody decides, but time goes on.
func TestStateReadAfterALongPause(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lone(defaultFallback()))
	f.run(6, all)
	if have := f.state.Admit("p/s/h", f.now, 0); have != fallback.AdmitSkip {
		t.Errorf("after a restart: have %v, want it still out", have)
	}
	if have := f.state.Admit("p/s/h", f.now.Add(time.Hour), 0); have != fallback.AdmitProbe {
		t.Errorf("an hour later: have %v, want a probe", have)
	}
}

// fan makes handlers of one service, n in each of the pipelines.
func fan(pipelines, n int, service string) []fallback.Watched {
	var watched []fallback.Watched
	for p := range pipelines {
		for h := range n {
			watched = append(watched, fallback.Watched{
				Path: fmt.Sprintf("%s-%02d/s/h%03d", pipelinesOf(service), p, h), Service: service, Fallback: defaultFallback(),
			})
		}
	}
	return watched
}

// pipelinesOf names pipelines of handlers that call nobody.
func pipelinesOf(service string) string {
	if service == "" {
		return "own"
	}
	return service
}

func TestServiceThatIsDownIsOneOutage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, slices.Concat(fan(20, 1, "push"), fan(4, 1, "bonus"), fan(1, 1, "mail"))...)
	f.rate = 1 // too little for each of them to tell so soon
	push := func(path string) bool { return strings.HasPrefix(path, "push") }
	f.run(60, nothing)
	f.want(f.run(6, push), "out push")
	if n := len(f.changes[0].Paths); n != 20 {
		t.Errorf("%d of 20 handlers are out: %v", n, f.changes[0].Paths)
	}
	f.want(f.run(60, nothing), "probing push", "ramping push", "back push")
}

func TestBrokenHandlerOfABusyServiceGoesAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, fan(20, 1, "push")...)
	broken := f.watched[7].Path
	f.run(30, nothing)
	f.want(f.run(8, only(broken)), "out "+broken)
}

func TestHandlersThatStillSucceedStayWhenTheirServiceFails(t *testing.T) {
	t.Parallel()
	f := newFleet(t, fan(4, 1, "push")...)
	f.run(30, nothing)
	f.want(f.run(9, only(f.watched[0].Path, f.watched[1].Path)), "out push")
	if d := cmp.Diff([]string{f.watched[0].Path, f.watched[1].Path}, f.state.Outages[0].Members); d != "" {
		t.Error(d)
	}
	f.run(1, all)
	if n := len(f.state.Outages[0].Members); n != 4 {
		t.Errorf("%d of 4 are out after the others failed too", n)
	}
}

func TestNoMoreThanAShareOfAPipelineIsOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, fan(1, 100, "")...)
	f.run(30, nothing)
	f.run(6, all)
	out, capped := 0, 0
	for _, c := range f.changes {
		switch c.Kind {
		case fallback.Out:
			out++
		case fallback.Capped:
			capped++
		}
	}
	if out != 30 || capped != 70 {
		t.Errorf("%d went out and %d were capped, want 30 and 70", out, capped)
	}
}

func TestServiceTakesNoMoreThanAShareOfAPipeline(t *testing.T) {
	t.Parallel()
	f := newFleet(t, slices.Concat(fan(1, 20, "push"), fan(3, 1, "bonus"), fan(2, 1, "mail"))...)
	f.run(30, nothing)
	have := f.run(6, func(path string) bool { return strings.HasPrefix(path, "push") })
	if n := len(f.state.Outages[0].Members); n != 6 || !slices.Contains(have, "out push") {
		t.Errorf("%d of 20 are out: %v", n, have)
	}
}

func TestNothingGoesOutWhenHalfOfAllServicesFail(t *testing.T) {
	t.Parallel()
	var watched []fallback.Watched
	for _, service := range []string{"bonus", "mail", "orders", "push"} {
		watched = append(watched, fan(3, 1, service)...)
	}
	f := newFleet(t, watched...)
	f.run(30, nothing)
	f.want(f.run(60, all), "frozen")
	f.want(f.run(60, nothing), "thawed")
	push := func(path string) bool { return strings.HasPrefix(path, "push") }
	f.want(f.run(6, push), "out push")
}

// A service may decide otherwise: its handlers go out while those of others stay.
func TestServiceMayLeaveFallbacksUnfrozen(t *testing.T) {
	t.Parallel()
	watched := slices.Concat(fan(3, 1, "mail"), fan(3, 1, "push"), fan(3, 1, "bonus"))
	for i := range watched {
		watched[i].Unfrozen = watched[i].Service == "push"
	}
	f := newFleet(t, watched...)
	f.run(30, nothing)
	f.want(f.run(6, func(path string) bool { return !strings.HasPrefix(path, "bonus") }), "frozen", "out push")
	if why := f.state.FrozenWhy; why != "2 of 3 services fail at once (mail, push), so the cause may be on our side" {
		t.Errorf("have %q", why)
	}
}

func TestOneServiceOfTwoMayFail(t *testing.T) {
	t.Parallel()
	f := newFleet(t, slices.Concat(fan(1, 1, "push"), fan(1, 1, "mail"))...)
	f.run(30, nothing)
	f.want(f.run(6, only(f.watched[0].Path)), "out "+f.watched[0].Path)
}

// So few calls tell something when nearly all of them fail.
func TestFewCallsDecideWhenTheyAgree(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		good int
		out  bool
	}{{0, true}, {1, true}, {2, true}, {3, false}, {5, false}} {
		f := fallback.NewRules([]fallback.Watched{lone(defaultFallback())})
		now := time.Unix(1_800_000_000, 0)
		var tallies []model.Tally
		for i := range 10 { // one call in 4 s: only the long window holds enough
			tally := model.Tally{Path: "p/s/h", Second: now.Unix() - int64(40-4*i), Bad: 1}
			if i%2 == 0 && i/2 < tc.good {
				tally.Good, tally.Bad = 1, 0
			}
			tallies = append(tallies, tally)
		}
		var s fallback.State
		if out := len(f.Decide(&s, fallback.Counts{}, now, tallies)) > 0; out != tc.out {
			t.Errorf("%d of 10 succeed: out is %v, want %v", tc.good, out, tc.out)
		}
	}
}

// A blip of two seconds is none, whenever in a second it begins and however many
// calls there are; one of four and a half takes the handler out.
func TestBlipMayBeginAnywhereInASecond(t *testing.T) {
	t.Parallel()
	out := func(rate int, from, length time.Duration) bool {
		f := fallback.NewRules([]fallback.Watched{lone(defaultFallback())})
		var s fallback.State
		counts := fallback.Counts{}
		began := time.Unix(1_800_000_000, 0)
		for second := range 60 {
			tally := model.Tally{Path: "p/s/h", Second: began.Unix() + int64(second)}
			for call := range rate {
				at := time.Duration(second)*time.Second + time.Duration(call)*time.Second/time.Duration(rate)
				if at >= from && at < from+length {
					tally.Bad++
				} else {
					tally.Good++
				}
			}
			f.Decide(&s, counts, began.Add(time.Duration(second+1)*time.Second), []model.Tally{tally})
			if len(s.Outages) > 0 {
				return true
			}
		}
		return false
	}
	for _, rate := range []int{5, 7, 20, 100} {
		for offset := time.Duration(0); offset < time.Second; offset += 10 * time.Millisecond {
			if out(rate, 30*time.Second+offset, 2*time.Second) {
				t.Errorf("%d calls a second, blip at %v: it goes out", rate, offset)
			}
			if !out(rate, 30*time.Second+offset, 4500*time.Millisecond) {
				t.Errorf("%d calls a second, 4.5s down at %v: it stays", rate, offset)
			}
		}
	}
}

// Older seconds are joined, ten to one; that must not make a blip long.
func TestOldBlipDoesNotBecomeAnOutage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lone(defaultFallback()))
	f.rate = 0
	f.run(9, nothing)
	f.rate = 10
	f.want(f.run(2, all)) // the last second of one ten, the first of the next
	f.rate = 0
	f.want(f.run(200, nothing))
}

func TestHandlersOfAnOldDefinitionAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFleet(t, fan(3, 1, "push")...)
	f.run(6, all)
	if len(f.state.Outages) == 0 {
		t.Fatal("nothing is out")
	}
	f.fallbacks = fallback.NewRules(nil)
	f.watched = nil
	f.run(1, nothing)
	if d := cmp.Diff(fallback.State{}, f.state); d != "" {
		t.Errorf("something is left:\n%s", d)
	}
	if len(f.counts) > 0 {
		t.Errorf("something is still counted: %v", f.counts)
	}
}

// Whatever calls come to: critical handlers stay, the caps hold, no handler is in
// two outages, and what is stored is what was meant.
func TestFallbackInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var watched []fallback.Watched
		for p := range 3 {
			for h := range rapid.IntRange(1, 9).Draw(t, "handlers") {
				w := fallback.Watched{
					Path:     fmt.Sprintf("p%d/s/h%d", p, h),
					Service:  rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "service"),
					Critical: rapid.Bool().Draw(t, "critical"),
				}
				if rapid.Bool().Draw(t, "fallback") {
					w.Fallback = defaultFallback()
				}
				watched = append(watched, w)
			}
		}
		f := fallback.NewRules(watched)
		var s fallback.State
		counts := fallback.Counts{}
		now := time.Unix(1_800_000_000, 0).UTC()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
			var tallies []model.Tally
			for _, w := range watched {
				tallies = append(tallies, model.Tally{
					Path: w.Path, Second: now.Unix() - int64(rapid.IntRange(0, 3).Draw(t, "ago")),
					Good: rapid.SampledFrom([]int{0, 0, 1, 9}).Draw(t, "good"), Bad: rapid.SampledFrom([]int{0, 1, 20}).Draw(t, "bad"),
				})
			}
			f.Decide(&s, counts, now, tallies)
			checkFallbacks(t, watched, s)
		}
	})
}

func checkFallbacks(t *rapid.T, watched []fallback.Watched, s fallback.State) {
	free, out, seen := map[string]int{}, map[string]int{}, map[string]bool{}
	byPath := map[string]fallback.Watched{}
	for _, w := range watched {
		byPath[w.Path] = w
		if !w.Critical {
			free[w.Path[:2]]++
		}
	}
	for _, o := range s.Outages {
		if !slices.IsSorted(o.Members) || len(o.Members) == 0 {
			t.Fatalf("outage %s has the members %v", o.Name, o.Members)
		}
		for _, path := range o.Members {
			if w := byPath[path]; w.Critical || w.Fallback == nil || seen[path] {
				t.Fatalf("%s is out: %+v", path, w)
			}
			seen[path] = true
			out[path[:2]]++
		}
	}
	for p, n := range out {
		if n > max(1, free[p]*3/10) {
			t.Fatalf("%d of %d handlers of %s are out", n, free[p], p)
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again fallback.State
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	twice, _ := json.Marshal(again)
	if string(twice) != string(data) {
		t.Fatalf("stored as\n%s\nread as\n%s", data, twice)
	}
}
