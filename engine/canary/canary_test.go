package canary_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"procaas/engine/canary"
	"procaas/engine/model"
)

// A version is what runs of it come to.
type version struct {
	fails   float64 // share of runs that fail
	errs    float64 // share of first attempts of each handler that fail
	latency float64 // times as long
	calls   int     // more calls of each run
}

var healthy = version{fails: 0.01, errs: 0.02, latency: 1}

// A traffic is a trial under simulated runs, whose keys are all different.
type traffic struct {
	t        *testing.T
	rng      *rand.Rand
	old, now version
	trial    *canary.State
	book     canary.Book
	at       time.Time
	rate     int // runs of a second
	n        int
	last     []canary.Event
}

func newTraffic(t *testing.T, seed uint64, old, now version, o canary.Order) *traffic {
	at := time.Unix(1_800_000_000, 0).UTC()
	return &traffic{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), old: old, now: now, at: at, rate: 40,
		trial: canary.Begin("old", "new", o, canary.TestsOf(1, 3), nil, "ann", "", at),
	}
}

// second lets a second of runs pass, with a node that forgets all but what is stored.
func (f *traffic) second() {
	var tallies []model.Tally
	for range f.rate {
		f.n++
		key := fmt.Sprint("k", f.n)
		name, v := "old", f.old
		if model.VersionFor(model.Split{Old: "old", New: "new", Percent: f.trial.Percent}.String(), "flow", key) == "new" {
			name, v = "new", f.now
		}
		w := f.book.Watch(f.trial, name, "flow", key, key, f.at, false, f.at)
		for h := range 3 {
			path := fmt.Sprintf("p/s/h%d", h)
			for range 1 + v.calls {
				w.Called(path)
			}
			tallies = append(tallies, w.Tried(path, f.rng.Float64() >= v.errs, f.at))
		}
		took := time.Duration(float64(50*time.Millisecond) * v.latency * math.Exp(0.6*f.rng.NormFloat64()))
		tallies = append(tallies, w.Over("p", f.rng.Float64() >= v.fails, f.at.Add(took))...)
	}
	f.at = f.at.Add(time.Second)
	f.last = f.trial.Decide(f.at, tallies, "old", nil)
}

// run lets seconds pass until the trial ends or has all keys, and returns how many runs of the new
// version were compared last.
func (f *traffic) run(most int) (judged int) {
	for range most {
		if f.trial.Phase != canary.Running || f.trial.Percent >= 100 {
			break
		}
		f.second()
		judged = f.trial.Judged()
	}
	return judged
}

// TestLikeVersionsAreNotRolledBack measures false alarms: of trials of a version that is like the
// old one, at most 1 % may be rolled back. Of 1000 none was; fewer are run for each change.
func TestLikeVersionsAreNotRolledBack(t *testing.T) {
	t.Parallel()
	const trials = 60
	alarms := 0
	for seed := range uint64(trials) {
		v := version{fails: []float64{0.0005, 0.01, 0.2}[seed%3], errs: []float64{0.3, 0.001, 0.02}[seed%3], latency: 1}
		f := newTraffic(t, seed, v, v, canary.Order{Percent: 5, Every: 20 * time.Second})
		f.run(10_000)
		if f.trial.Phase == canary.RolledBack {
			alarms++
			t.Logf("seed %d: %s", seed, f.trial.Why)
		}
		if f.trial.Phase == canary.Running && f.trial.Percent != 100 {
			t.Fatalf("seed %d: the trial stays at %g %%", seed, f.trial.Percent)
		}
	}
	t.Logf("false alarms: %d of %d", alarms, trials)
	if alarms > 0 {
		t.Errorf("have %d false alarms of %d, want none", alarms, trials)
	}
}

// TestBadVersionsAreRolledBack measures after how many runs of the new version it is rolled back.
func TestBadVersionsAreRolledBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		percent float64
		now     version
		within  int
		why     string
	}{
		{"fails 20 times as often", 5, version{fails: 0.2, errs: 0.02, latency: 1}, 120, "failures of p: "},
		{"fails 20 times as often", 50, version{fails: 0.2, errs: 0.02, latency: 1}, 320, "failures of p: "},
		{"takes three times as long", 5, version{fails: 0.01, errs: 0.02, latency: 3}, 60, "latency of p: "},
		{"takes three times as long", 50, version{fails: 0.01, errs: 0.02, latency: 3}, 160, "latency of p: "},
		{"takes half as long again", 5, version{fails: 0.01, errs: 0.02, latency: 1.5}, 400, "latency of p: "},
		{"takes half as long again", 50, version{fails: 0.01, errs: 0.02, latency: 1.5}, 700, "latency of p: "},
		{"a handler always errs", 5, version{fails: 0.01, errs: 1, latency: 1}, 30, "errors of p/s/h0: "},
		{"calls twice", 5, version{fails: 0.01, errs: 0.02, latency: 1, calls: 1}, 40, "calls of p: "},
	} {
		t.Run(fmt.Sprintf("%s at %g %%", c.name, c.percent), func(t *testing.T) {
			t.Parallel()
			const trials = 200
			most, sum := 0, 0
			for seed := range uint64(trials) {
				f := newTraffic(t, seed, healthy, c.now, canary.Order{Percent: c.percent, Hold: true})
				n := f.run(10_000)
				if f.trial.Phase != canary.RolledBack || !strings.HasPrefix(f.trial.Why, c.why) {
					t.Fatalf("seed %d: %s after %d runs: %s", seed, f.trial.Phase, n, f.trial.Why)
				}
				most, sum = max(most, n), sum+n
			}
			t.Logf("rolled back after %d runs of the new version on average, %d at most", sum/trials, most)
			if most > c.within {
				t.Errorf("rolled back after %d runs, want at most %d", most, c.within)
			}
		})
	}
}

func TestScheduleAndItsEnd(t *testing.T) {
	t.Parallel()
	f := newTraffic(t, 1, healthy, healthy, canary.Order{Percent: 5, Every: 30 * time.Second})
	var shares []string
	for range 600 {
		f.second()
		for _, e := range f.last {
			shares = append(shares, fmt.Sprintf("%s %g", e.Phase, e.Percent))
		}
		data, err := json.Marshal(f.trial) // all nodes die
		if err != nil {
			t.Fatal(err)
		}
		f.trial = new(canary.State)
		if err := json.Unmarshal(data, f.trial); err != nil {
			t.Fatal(err)
		}
	}
	if have := strings.Join(shares, ", "); have != "running 25, running 50, running 100" {
		t.Errorf("have %s", have)
	}
	if e := f.trial.Decide(f.at, nil, "new", nil); len(e) != 1 || e[0].Phase != canary.Promoted {
		t.Errorf("have %+v, want the version promoted", e)
	}
	g := newTraffic(t, 1, healthy, healthy, canary.Order{Percent: 5})
	if e := g.trial.Decide(g.at, nil, "third", nil); len(e) != 1 || e[0].Phase != canary.Superseded {
		t.Errorf("have %+v, want the trial superseded", e)
	}
	if h := newTraffic(t, 1, healthy, healthy, canary.Order{Percent: 5, Hold: true, Every: time.Second}); h.run(600) < canary.DefaultLeast ||
		h.trial.Percent != 5 {
		t.Errorf("have %g %%, want the share held", h.trial.Percent)
	}
}

// A trial waits for enough runs, and does not count those of another share, nor a busy key twice.
func TestWhatDoesNotCount(t *testing.T) {
	t.Parallel()
	f := newTraffic(t, 1, healthy, healthy, canary.Order{Percent: 5, Every: time.Second})
	f.rate = 1
	f.run(60)
	if f.trial.Percent != 5 {
		t.Errorf("have %g %% after %d runs, want to wait", f.trial.Percent, f.trial.Judged())
	}
	w := f.book.Watch(f.trial, "new", "flow", "busy", "run-1", f.at, false, f.at)
	if again := f.book.Watch(f.trial, "new", "flow", "busy", "run-2", f.at, false, f.at); w == nil || again != nil {
		t.Errorf("have %v and %v, want the first run of a key", w, again)
	}
	if same := f.book.Watch(f.trial, "new", "flow", "busy", "run-1", f.at, true, f.at); same == nil {
		t.Error("a run that resumes is not watched")
	}
	if early := f.book.Watch(f.trial, "new", "flow", "k", "r", f.trial.Turned.Add(-1), true, f.at); early != nil {
		t.Error("a run from before the trial is watched")
	}
	late := w.Over("p", false, f.at)
	if len(w.Over("p", true, f.at)) != 0 {
		t.Error("a run ends twice")
	}
	f.at = f.at.Add(time.Second)
	f.trial.Turn(25, f.at)
	f.trial.Decide(f.at, late, "old", nil)
	if f.trial.Judged() != 0 {
		t.Error("a run of another share counts")
	}
}

// People compare the numbers of calls with what they count themselves.
func TestCallsAreExact(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 5, 7, 8, 99} {
		f := newTraffic(t, 1, healthy, healthy, canary.Order{Percent: 5})
		w := f.book.Watch(f.trial, "new", "flow", "k", "r", f.at, false, f.at)
		for range n {
			w.Called("p/s/h")
		}
		f.trial.Decide(f.at, w.Over("p", true, f.at), "old", nil)
		if c := f.trial.View().Compared; c[0].Kind != canary.Calls || c[0].New.P50 != float64(n) {
			t.Errorf("%d calls: have %+v", n, c)
		}
	}
}

// What the old version does, and the new one has not been seen to do, keeps the share.
func TestNothingUnjudgedIsPromoted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		old, now string // outcomes of first attempts of a handler
		changed  bool
		out      []string
		ignore   []string
		want     string
	}{
		{name: "the tenth call is still to come", old: "+++++++++++++", now: "---------", want: "errors of p/s/rare"},
		{name: "a changed handler is called rarely", old: "+++", now: "+", changed: true, want: "errors of p/s/rare"},
		{name: "a handler is called rarely", old: "+++", now: "+"},
		{name: "the new version does not call the handler", old: "++++++++++++++++++++++++++++++++", want: "errors of p/s/rare"},
		{name: "its fallback has taken a handler out", out: []string{"p/s/rare"}, want: "p/s/rare is out of the flow"},
		{name: "errors do not matter", old: "+++", now: "-", out: []string{"p/s/rare"}, ignore: []string{canary.Errors}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := time.Unix(1_800_000_000, 0).UTC()
			o := canary.Order{Percent: 30, Every: time.Second, Least: 20, Ignore: c.ignore}
			trial := canary.Begin("old", "new", o, 1, nil, "ann", "", at)
			if c.changed {
				trial.Changed = []string{"p/s/rare"}
			}
			var book canary.Book
			var tallies []model.Tally
			for i := range 100 {
				side, outcomes := "old", c.old
				if i >= 70 {
					side, outcomes = "new", c.now
				}
				key := fmt.Sprint("k", i)
				w := book.Watch(trial, side, "flow", key, key, at, false, at)
				tallies = append(tallies, w.Over("p", true, at)...)
				if n := i % 70; n < len(outcomes) {
					tallies = append(tallies, w.Tried("p/s/rare", outcomes[n] == '+', at))
				}
			}
			trial.Decide(at.Add(2*time.Second), tallies, "old", c.out)
			if have := trial.View().Waits; !strings.Contains(have, c.want) || (trial.Percent == 30) != (c.want != "") {
				t.Errorf("have %g %% %s: %q, want %q", trial.Percent, trial.Phase, have, c.want)
			}
		})
	}
}
