package judge

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// What make test-long ONLY=judge asks for. Without a range, the few scenarios below are run.
var (
	from    = flag.Int("from", 0, "the first scenario")
	to      = flag.Int("to", 0, "the one after the last scenario")
	seeds   = flag.Int("seeds", 1, "runs of each scenario")
	only    = flag.String("only", "", "take scenarios only whose names hold this")
	tracing = flag.Bool("trace", false, "tell each move of v5")
	outFile = flag.String("out", "", "write the results as JSON to this file")
	oldFile = flag.String("old", "", "compare with the results of this file, and take those of v4 from it")
)

// short returns scenarios of different kinds: of some hundred those that take the least time
// and in which v4 drops something.
func short() []int {
	return []int{398, 333, 290, 269, 315, 405, 384, 409, 388, 323, 324, 348, 349, 416, 351}
}

// A verdict is what both policies made of a scenario.
type verdict struct {
	Name   string
	V4, V5 result
}

// floor is the share of requests below which drops are alike.
const floor = 1e-5

// share returns the excess drops of v5 as a share of those of v4.
func (v *verdict) share() float64 {
	return (v.V5.Excess/v.V5.Offered + floor) / (v.V4.Excess/v.V4.Offered + floor)
}

// worse reports whether v5 drops clearly more than v4.
func (v *verdict) worse() bool { return v.V5.Drops > 1.1*v.V4.Drops+floor*v.V4.Offered }

// busier reports whether v5 moves clearly more than v4.
func (v *verdict) busier(partitions int) bool {
	old := float64(v.V4.Moves)
	return float64(v.V5.Moves) > max(1.25*old, old+0.08*float64(partitions**seeds))
}

// judge runs one scenario.
func judge(number int, old map[string]verdict, traced io.Writer) (verdict, error) {
	s := draw(number)
	v := verdict{Name: s.Name}
	known, have := old[s.Name]
	if have {
		v.V4 = known.V4
	}
	for run4 := range *seeds {
		seed := uint64(number*10 + run4 + 1)
		if !have {
			x, err := run(s, seed, "v4", nil)
			if err != nil {
				return v, fmt.Errorf("%s: v4: %w", s.Name, err)
			}
			v.V4.add(x, *seeds)
		}
		x, err := run(s, seed, "v5", traced)
		if err != nil {
			return v, fmt.Errorf("%s: v5: %w", s.Name, err)
		}
		v.V5.add(x, *seeds)
	}
	return v, nil
}

// chosen lists the numbers of the scenarios to run.
func chosen() (numbers []int) {
	if *from == 0 && *to == 0 {
		return short()
	}
	for i := *from; i < *to; i++ {
		if strings.Contains(draw(i).Name, *only) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// verdicts runs all scenarios that are asked for.
func verdicts(t *testing.T, numbers []int, old map[string]verdict) []verdict {
	out, failed := make([]verdict, len(numbers)), make([]error, len(numbers))
	var traced io.Writer
	if *tracing {
		traced = t.Output()
	}
	var wait sync.WaitGroup
	room := make(chan bool, runtime.GOMAXPROCS(0))
	for k, number := range numbers {
		room <- true
		wait.Go(func() {
			out[k], failed[k] = judge(number, old, traced)
			<-room
		})
	}
	wait.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// A summary is over all scenarios.
type summary struct {
	Drops, Moves                 float64 // of v5 as shares of those of v4, geometric means
	Worse, Busier, Back, Invalid int
}

// sum makes the summary, and tells each scenario in a line.
func sum(t *testing.T, numbers []int, all []verdict, old map[string]verdict) (s summary) {
	tell := func(format string, args ...any) { fmt.Fprintf(t.Output(), format+"\n", args...) }
	tell("%-16s %4s | %8s %8s %8s %5s %5s | %5s %5s | %4s %4s | of v5: dead, handing over, over capacity, %%", "scenario", "step", "bound %",
		"v4 %", "v5 %",
		"v5/v4", "old", "moves", "v5", "back", "v5")
	drops, moves := 0.0, 0.0
	for k := range all {
		v, d := &all[k], draw(numbers[k])
		percent := func(x float64) float64 { return 100 * x / v.V5.Offered }
		mark, before := "", math.NaN()
		if v.worse() {
			s.Worse, mark = s.Worse+1, " DROPS"
		}
		if v.busier(d.Partitions) {
			s.Busier, mark = s.Busier+1, mark+" MOVES"
		}
		if o, have := old[v.Name]; have {
			before = o.share()
		}
		tell("%-16s %4.0f | %8.4f %8.4f %8.4f %5.2f %5.2f | %5d %5d | %4d %4d | %.3f %.3f %.3f%s", v.Name, d.Step, percent(v.V5.Bound),
			percent(v.V4.Drops),
			percent(v.V5.Drops), v.share(), before, v.V4.Moves, v.V5.Moves, v.V4.Back, v.V5.Back, percent(v.V5.Dead), percent(v.V5.Handing),
			percent(v.V5.Over), mark)
		drops += math.Log(v.share())
		moves += math.Log(float64(v.V5.Moves+1) / float64(v.V4.Moves+1))
		s.Back += v.V5.Back
		s.Invalid += v.V5.Invalid + v.V4.Invalid
	}
	n := float64(len(all))
	s.Drops, s.Moves = math.Exp(drops/n), math.Exp(moves/n)
	tell("%d scenarios: v5 has %.3f of the avoidable drops of v4 and %.3f of its moves; it drops clearly more in %d and moves clearly "+
		"more in %d; %d moves back, %d invalid",
		len(all), s.Drops, s.Moves, s.Worse, s.Busier, s.Back, s.Invalid)
	return s
}

// v5 is judged by a cluster that it was not made for.
func TestJudge(t *testing.T) {
	t.Parallel()
	old := map[string]verdict{}
	if *oldFile != "" {
		var list []verdict
		data, err := os.ReadFile(*oldFile)
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			old[v.Name] = v
		}
	}
	numbers := chosen()
	if len(numbers) == 0 {
		t.Fatalf("want scenarios, have none from %d to %d with %q in their names", *from, *to, *only)
	}
	all := verdicts(t, numbers, old)
	if *outFile != "" {
		data, err := json.Marshal(all)
		if err == nil {
			err = os.WriteFile(*outFile, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := sum(t, numbers, all, old)
	if s.Invalid > 0 {
		t.Errorf("have %d invalid moves, want none", s.Invalid)
	}
	if len(numbers) < len(short()) {
		return // a single scenario may be bad luck
	}
	// v5 reaches less than half of these, so that its next version has room.
	if s.Drops > 0.3 || s.Moves > 0.5 || s.Worse > 1+len(numbers)/20 {
		t.Errorf("want 0.3 of the avoidable drops and 0.5 of the moves of v4 at most, and clearly more drops in one of twenty scenarios; "+
			"have %.3f, %.3f and %d of %d",
			s.Drops, s.Moves, s.Worse, len(numbers))
	}
}

// In a step that is as long as caches take to fill, what lands is cold at first and warm in the
// end: the work of its landing is not to look like a worker that has got weak. It did once, so
// that each landing drove others away, 288 moves in this seesaw of loads; v4 makes 15.
func TestLandingsInLongStepsDriveNobodyAway(t *testing.T) {
	t.Parallel()
	x, err := run(draw(1363), 13631, "v5", nil)
	if err != nil {
		t.Fatal(err)
	}
	if share := x.Excess / x.Offered; x.Moves > 80 || share > 0.003 {
		t.Errorf("want 80 moves and 0.3 %% of drops at most, have %d and %.2f %%", x.Moves, 100*share)
	}
}

// After a release whose workers drained one by one, a worker that drops gets rid of a partition whose
// only other workers had it before. It did not once: v5 dropped 2.18 % here, and v4 1.20 %.
func TestPartitionsGoBackAfterARelease(t *testing.T) {
	t.Parallel()
	v, err := judge(269, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v.worse() {
		t.Errorf("v5 drops %.2f %%, and v4 %.2f %%", 100*v.V5.Drops/v.V5.Offered, 100*v.V4.Drops/v.V4.Offered)
	}
}
