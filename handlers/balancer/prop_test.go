package balancer

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// lie is what a worker may claim.
func lie() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64Range(0, 200),
		rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 1e300, -1e300, math.SmallestNonzeroFloat64}),
	)
}

func drawCluster(t *rapid.T) Cluster {
	n, m := rapid.IntRange(1, 8).Draw(t, "workers"), rapid.IntRange(1, 24).Draw(t, "partitions")
	c := Cluster{Seed: rapid.Uint64().Draw(t, "seed"), Workers: n, Partitions: m, Step: rapid.Float64Range(0.5, 10).Draw(t, "step")}
	if rapid.Bool().Draw(t, "capacities known") {
		c.Capacity = rapid.SliceOfN(rapid.Float64Range(0, 200), n, n).Draw(t, "capacity")
	}
	for range m {
		all := make([]int, n)
		for w := range all {
			all[w] = w
		}
		may := rapid.Permutation(all).Draw(t, "allowed")[:rapid.IntRange(1, n).Draw(t, "replicas")]
		c.Allowed = append(c.Allowed, may)
		c.Assignment = append(c.Assignment, may[0])
	}
	return c
}

func drawReport(t *rapid.T, c *Cluster, at float64, where []int) *Report {
	list := func(name string, n int) []float64 { return rapid.SliceOfN(lie(), n, n).Draw(t, name) }
	flags := func(name string, n, odds int) []bool {
		out := make([]bool, n)
		for i := range out {
			out[i] = rapid.IntRange(0, odds).Draw(t, name) == 0
		}
		return out
	}
	r := &Report{
		At: at, Up: flags("down", c.Workers, 4), Draining: flags("draining", c.Workers, 6), Requests: list("requests", c.Workers),
		Drops: list("drops", c.Workers), Busy: list("busy", c.Workers), Age: list("age", c.Workers),
		Weights: list("weights", c.Partitions), Assignment: slices.Clone(where),
	}
	for w := range r.Up {
		r.Up[w] = !r.Up[w]
	}
	return r
}

// Whatever workers claim, moves are allowed, to workers that answer, one for a
// partition, and the same again for the same reports; and a partition leaves a
// dead worker while there is one that may hold it.
func TestPoliciesKeepTheRulesWhateverWorkersClaim(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { keepsTheRules(t, name) })
		})
	}
}

func keepsTheRules(t *rapid.T, name string) {
	c := drawCluster(t)
	p, err := New(name, c, DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	twin, _ := New(name, c, DefaultParams())
	where := slices.Clone(c.Assignment)
	for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
		r := drawReport(t, &c, float64(i+1)*c.Step, where)
		if err := r.check(&c); err != nil {
			t.Fatal(err)
		}
		moves := p.Decide(r)
		if again := twin.Decide(r); !slices.Equal(moves, again) {
			t.Fatalf("have %v, and %v for the same reports", moves, again)
		}
		seen := map[int]bool{}
		for _, m := range moves {
			switch {
			case seen[m.Partition]:
				t.Fatalf("partition %d moves twice: %v", m.Partition, moves)
			case !slices.Contains(c.Allowed[m.Partition], m.To):
				t.Fatalf("move %v to a worker that may not hold it, want one of %v", m, c.Allowed[m.Partition])
			case !r.Up[m.To]:
				t.Fatalf("move %v to a worker that does not answer", m)
			case where[m.Partition] == m.To:
				t.Fatalf("move %v to where it is", m)
			case m.Reason == "":
				t.Fatalf("move %v without a reason", m)
			}
			seen[m.Partition] = true
			where[m.Partition] = m.To
		}
	}
}

// In no minute does v5 move more of free will than its budget has, in any case. Moves
// off workers that are down or draining are not of free will.
func TestV5MovesWithinItsBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		c.Partitions *= 3 // so that the budget is less than what may move
		c.Step = max(c.Step, 2)
		for range 2 {
			c.Allowed, c.Assignment = append(c.Allowed, c.Allowed[:c.Partitions/3]...), append(c.Assignment, c.Assignment[:c.Partitions/3]...)
		}
		params := DefaultParams()
		params.Budget = rapid.Float64Range(0, 0.2).Draw(t, "budget")
		params.NoReturn, params.FixedCost = 10, 0 // so that it moves often
		p, err := New("v5", c, params)
		if err != nil {
			t.Fatal(err)
		}
		where, refuses := slices.Clone(c.Assignment), rapid.Bool().Draw(t, "refuses")
		var made []float64 // when voluntary moves were
		seed := rapid.Uint64().Draw(t, "loads")
		for i := range 60 {
			r := loaded(&c, where, float64(i+1)*c.Step, rand.New(rand.NewPCG(seed, uint64(i/20))), rand.New(rand.NewPCG(seed+1, uint64(i))))
			for _, m := range p.Decide(r) {
				if from := where[m.Partition]; r.Up[from] && !r.Draining[from] {
					if refuses && i%3 == 0 {
						continue // as somebody else's version was faster
					}
					made = append(made, r.At)
				}
				where[m.Partition] = m.To
			}
			served, dropped, lately := 0.0, 0.0, 0
			for w, up := range r.Up {
				if up {
					served, dropped = served+r.Requests[w], dropped+r.Drops[w]
				}
			}
			limit := max(5, params.Budget*float64(c.Partitions))
			if dropped > 0.01*(served+dropped) {
				limit *= 3
			}
			for _, at := range made {
				if at > r.At-60 {
					lately++
				}
			}
			if len(made) > 0 && made[len(made)-1] == r.At && lately > int(limit) {
				t.Fatalf("at %g s: have %d voluntary moves in a minute, want %d at most", r.At, lately, int(limit))
			}
		}
	})
}

// loaded is a report of workers that serve 100 requests each: usual has loads that last for
// a while, now what happens in this step.
func loaded(c *Cluster, where []int, at float64, usual, now *rand.Rand) *Report {
	n := c.Workers
	r := &Report{
		At: at, Up: make([]bool, n), Draining: make([]bool, n), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: slices.Repeat([]float64{1e6 + at}, n), Weights: make([]float64, c.Partitions),
		Assignment: slices.Clone(where),
	}
	full := 100 * float64(n) / float64(c.Partitions)
	for p, w := range where {
		r.Weights[p] = full * usual.Float64() * usual.Float64() * 4 * (0.9 + 0.2*now.Float64())
		r.Requests[w] += r.Weights[p]
	}
	for w, asked := range r.Requests {
		r.Up[w], r.Draining[w] = now.IntN(50) > 0, usual.IntN(20) == 0
		r.Requests[w], r.Drops[w], r.Busy[w] = min(asked, 100), max(0, asked-100), min(asked/100, 1)
	}
	return r
}

// After enough silence of a minority, what may be elsewhere is elsewhere.
func TestV5LeavesNothingOnTheDead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		dead := make([]bool, c.Workers)
		for i := range (c.Workers - 1) / 2 {
			dead[i] = rapid.Bool().Draw(t, "dead")
		}
		p, err := New("v5", c, DefaultParams())
		if err != nil {
			t.Fatal(err)
		}
		where := slices.Clone(c.Assignment)
		for i := range 2 * missesMost {
			r := drawReport(t, &c, float64(i+1)*c.Step, where)
			for w := range r.Up {
				r.Up[w], r.Draining[w], r.Age[w] = !dead[w], false, 1e6+r.At
			}
			for _, m := range p.Decide(r) {
				where[m.Partition] = m.To
			}
		}
		for part, w := range where {
			if dead[w] && slices.ContainsFunc(c.Allowed[part], func(w int) bool { return !dead[w] }) {
				t.Fatalf("partition %d is still on worker %d, which is dead; %v may hold it", part, w, c.Allowed[part])
			}
		}
	})
}

// A cluster that is served without drops and with room stays as it is.
func TestV5LeavesACalmClusterAlone(t *testing.T) {
	t.Parallel()
	c, report := crowd(12, 240, 4, 7)
	p, err := New("v5", c, DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		r := report(float64(2*i), c.Assignment)
		for w := range r.Up {
			load := r.Requests[w] + r.Drops[w]
			r.Requests[w], r.Drops[w], r.Busy[w] = load, 0, 0.5
		}
		if moves := p.Decide(r); len(moves) > 0 {
			t.Fatalf("have moves %v, want none", moves)
		}
	}
}

// Names of workers and units of load mean nothing.
func TestV5DoesNotDependOnUnits(t *testing.T) {
	t.Parallel()
	run := func(unit float64) (all []Move) {
		c, report := crowd(10, 200, 4, 3)
		p, err := New("v5", c, DefaultParams())
		if err != nil {
			t.Fatal(err)
		}
		where := slices.Clone(c.Assignment)
		for i := range 200 {
			r := report(float64(2*i), where)
			for _, list := range [][]float64{r.Requests, r.Drops, r.Weights} {
				for k := range list {
					list[k] *= unit
				}
			}
			for _, m := range p.Decide(r) {
				where[m.Partition] = m.To
				all = append(all, Move{Partition: m.Partition, To: m.To})
			}
		}
		return all
	}
	one, thousand := run(1), run(1024)
	if !slices.Equal(one, thousand) || len(one) == 0 {
		t.Errorf("have %d moves, and %d others for loads a thousand times larger", len(one), len(thousand))
	}
}

func TestGini(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		weights []float64
		want    float64
	}{
		{nil, 0}, {[]float64{5}, 0}, {[]float64{0, 0}, 0}, {[]float64{3, 3, 3}, 0}, {[]float64{0, 0, 0, 8}, 0.75}, {[]float64{1, 3}, 0.25},
	} {
		if have := Gini(c.weights); math.Abs(have-c.want) > 1e-12 {
			t.Errorf("Gini(%v): want %v, have %v", c.weights, c.want, have)
		}
	}
}

const initExample = `{"type":"init","seed":1,"workers":2,"partitions":2,` +
	`"capacity":[10,null],"zone":["a","b"],"allowed":[[0,1],[1,0]],"assignment":[0,1],"step_s":2}`

const observeExample = `{"type":"observe","t":2,"up":[true,true],"draining":[false,false],` +
	`"requests":[5,5],"drops":[0,0],"busy":[0.5,0.5],"age_s":[100,90],"weights":[5,null],"assignment":[0,1]}`

func TestServeAnswersEachReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lost := strings.Replace(strings.Replace(observeExample, "[true,true]", "[false,true]", 1), `"t":2`, `"t":4`, 1)
	if err := Serve(strings.NewReader(initExample+"\n"+observeExample+"\n\n"+lost+"\n"), &out, "v1", DefaultParams()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || lines[0] != `{"moves":[]}` {
		t.Fatalf("want two answers, the first without moves, have %q", out.String())
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("have %q, want JSON", line)
		}
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ input, want string }{
		{`{"type":"observe"}`, `line 1: type: want "init", have "observe"`},
		{`{"type":"init","workers":"2"}`, "line 1: workers: want int, have string"},
		{`{"type":"init","workers":2}`, "line 1: want 1 worker and 1 partition or more, have 2 and 0"},
		{strings.Replace(initExample, "[1,0]]", "[1,2]]", 1), "line 1: allowed: partition 1: want different workers from 0 to 1, have [1 2]"},
		{strings.Replace(initExample, `"assignment":[0,1]`, `"assignment":[0,-2]`, 1), "line 1: assignment: partition 1: want a worker from " +
			"0 to 1, have -2"},
		{initExample + "\n" + strings.Replace(observeExample, `"assignment":[0,1]`, `"assignment":[0]`, 1), "line 2: assignment: want a " +
			"worker for each of 2 partitions, have 1"},
		{initExample + "\n" + strings.Replace(observeExample, `"busy":[0.5,`, `"busy":["high",`, 1), "line 2: busy: want float64, have string"},
		{initExample + "\n" + strings.Replace(observeExample, `"busy":[0.5,`, `"busy":[Nan,`, 1), "line 2: invalid character 'N' looking for " +
			"beginning of value"},
		{initExample + "\n" + strings.Replace(observeExample, `"assignment":[0,1]`, `"assignment":"NaN"`, 1), "line 2: assignment: want " +
			"[]*int, have string"},
		{initExample + "\n" + observeExample + "\n" + strings.Replace(observeExample, `"t":2`, `"t":1`, 1), "line 3: t: want 2 or more, the " +
			"time of the line before, have 1"},
		{
			initExample + "\n" + strings.Replace(observeExample, `"up":[true,true],`, "", 1),
			"line 2: up: want the state of each worker, have none",
		},
		{initExample + "\n" + strings.Replace(observeExample, "[5,null]", "[5]", 1), "line 2: weights: want a value or null for each of 2 " +
			"partitions, have 1"},
		{initExample + "\n{", "line 2: unexpected end of JSON input"},
	} {
		err := Serve(strings.NewReader(c.input), &bytes.Buffer{}, "v5", DefaultParams())
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: want %q, have %v", c.input, c.want, err)
		}
	}
}

// Other languages' JSON libraries write NaN and infinities; they tell nothing.
func TestServeReadsNotANumberAsUntold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{"busy":[NaN, -Infinity,Infinity,-1]}`, `{"busy":[null, null,null,-1]}`},
		{`{"zone":["NaN","a\\","\"Infinity"],"t":1}`, `{"zone":["NaN","a\\","\"Infinity"],"t":1}`},
		{`NaN`, `null`},
		{`-`, `-`},
		{`"\`, `"\`},
		{``, ``},
	} {
		if have := string(numbersOnly([]byte(c.in))); have != c.want {
			t.Errorf("%s: want %s, have %s", c.in, c.want, have)
		}
	}
	lies := strings.NewReplacer("[0.5,0.5]", "[NaN,-Infinity]", "[5,5]", "[Infinity,NaN]", "[5,null]", "[NaN,Infinity]", "[100,90]",
		"[NaN,90]")
	for _, name := range Names() {
		var out bytes.Buffer
		if err := Serve(strings.NewReader(initExample+"\n"+lies.Replace(observeExample)+"\n"), &out, name, DefaultParams()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if have := out.String(); have != "{\"moves\":[]}\n" {
			t.Errorf("%s: want no moves, have %s", name, have)
		}
	}
}

// Reports with only the required fields are answered, and what nobody has gets a worker that
// may hold it, by every policy.
func TestServeTakesWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	first := strings.Replace(initExample, `"assignment":[0,1]`, `"assignment":[null,-1]`, 1)
	lines := []string{
		first, "", `{"type":"observe","t":2,"up":[true,true],"assignment":[null,-1],"colour":"red"}`, "  ",
		`{"type":"observe","t":4,"up":[false,true],"weights":[5,5],"draining":null,"assignment":[0,-1]}`,
		`{"type":"observe","t":6,"up":[false,false],"assignment":[-1,-1]}`,
	}
	for _, name := range Names() {
		var out bytes.Buffer
		if err := Serve(strings.NewReader(strings.Join(lines, "\n")), &out, name, DefaultParams()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var answers []struct{ Moves []Move }
		for d := json.NewDecoder(&out); d.More(); {
			var a struct{ Moves []Move }
			if err := d.Decode(&a); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		if len(answers) != 3 || len(answers[0].Moves) != 2 || len(answers[2].Moves) != 0 {
			t.Fatalf("%s: want three answers, the first with both partitions, the last with none, have %+v", name, answers)
		}
		if m := answers[0].Moves; m[0].To == m[1].To || m[0].Reason != "nobody had it" {
			t.Errorf("%s: want both workers to get one of what nobody had, have %+v", name, m)
		}
		for _, m := range answers[1].Moves {
			if m.To != 1 {
				t.Errorf("%s: want moves to the worker that answers, have %+v", name, m)
			}
		}
	}
}

func TestNewRefusesWhatItCannotBe(t *testing.T) {
	t.Parallel()
	c := Cluster{Workers: 1, Partitions: 1, Allowed: [][]int{{0}}, Assignment: []int{0}, Step: 1}
	if _, err := New("v6", c, DefaultParams()); err == nil || !strings.Contains(err.Error(), `have "v6"`) {
		t.Errorf("have %v, want an error that names the policy", err)
	}
	p := DefaultParams()
	p.GiniLow = 0.5
	if _, err := New("v3", c, p); err == nil || !strings.Contains(err.Error(), "gini_low") {
		t.Errorf("have %v, want an error about gini_low", err)
	}
}

func FuzzServe(f *testing.F) {
	f.Add(initExample + "\n" + observeExample)
	f.Add(initExample + "\n" + `{"type":"observe","t":1,"up":[true,false],"assignment":[null,-1]}` + "\n" +
		`{"type":"observe","t":1e300,"up":[true,true],"age_s":[null,1],"assignment":[0,-1]}`)
	f.Add(initExample + "\n" + observeExample + "\n" + strings.Replace(observeExample, "true,true", "false,false", 1))
	f.Fuzz(func(t *testing.T, input string) {
		for _, name := range Names() {
			var out bytes.Buffer
			_ = Serve(strings.NewReader(input), &out, name, DefaultParams())
			if out.Len() > 0 && !strings.HasSuffix(out.String(), "}\n") {
				t.Errorf("have an answer that is cut off: %q", out.String())
			}
		}
	})
}
