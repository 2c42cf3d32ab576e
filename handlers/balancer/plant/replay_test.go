package plant

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
)

// record lets a cluster in virtual time go through a scenario under a policy, and writes
// down what its balancer would keep.
func record(t *testing.T, yaml, policy string) (clusters.Recording, Result) {
	t.Helper()
	s, found := Parse(diag.File{Name: "scenario.yaml", Data: []byte(yaml)})
	if s == nil {
		t.Fatal(found)
	}
	w := newWorld(s, 1)
	p, err := balancer.New(policy, w.describe(1), balancer.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	params, parameters := balancer.DefaultParams(), map[string]float64{}
	text, err := json.Marshal(params)
	if err == nil {
		err = json.Unmarshal(text, &parameters)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := clusters.Recording{
		Cluster: "fanout", Policy: policy, Partitions: len(w.parts), Step: s.Step, Parameters: parameters, Holders: w.allowed,
	}
	for i := range w.workers {
		out.Workers = append(out.Workers, clusters.AssignedWorker{ID: fmt.Sprint("w", i), Zone: fmt.Sprint("z", w.zone[i])})
	}
	m := newMeter(s, policy, 1)
	for at := 0.0; at < s.Duration; at += s.Step {
		w.live(at)
		tally := w.serve(at)
		r := w.observe(at + s.Step)
		o := balancer.Observation{
			Cluster: "fanout", At: 1e9 + r.At, Version: 1, Owners: slices.Clone(r.Assignment),
			Weights: make([]*float64, len(r.Weights)),
		}
		for p, x := range r.Weights {
			if !math.IsNaN(x) {
				x /= s.Step
				o.Weights[p] = &x
			}
		}
		for i, up := range r.Up {
			x := balancer.Observed{AssignedWorker: out.Workers[i], Listed: true, Up: up, Draining: r.Draining[i]}
			if up {
				served, dropped, busy, age := r.Requests[i]/s.Step, r.Drops[i]/s.Step, r.Busy[i], r.Age[i]
				x.Requests, x.Drops, x.Busy, x.Age = &served, &dropped, &busy, &age
			}
			o.Workers = append(o.Workers, x)
		}
		line, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.Observations = append(out.Observations, line)
		moves := p.Decide(r)
		for _, move := range moves {
			m.move(w, move, at+s.Step)
		}
		m.step(w, at, tally, 0)
	}
	return out, m.result()
}

const hot = `
version: 1
name: hot
duration_s: 900
warmup_s: 0
cluster: {workers: 6}
partitions: {count: 90, util: 0.6, replicas: 4}
events:
  - {at_s: 300, kind: spike, rank: 3, to: 0.7, for_s: 300}
`

func reread(t *testing.T, r clusters.Recording) *Recording {
	t.Helper()
	var b bytes.Buffer
	if err := WriteRecording(&b, r); err != nil {
		t.Fatal(err)
	}
	read, err := ReadRecording(&b)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// What is estimated of the assignments that really were is what was measured; the policy
// that decided then decides the same again; and a better one shows that it is.
func TestReplayTellsWhatPoliciesWouldHaveDone(t *testing.T) {
	t.Parallel()
	recording, lived := record(t, hot, "v1")
	got, err := reread(t, recording).Replay([]string{"v1", "v4", "v5"})
	if err != nil {
		t.Fatal(err)
	}
	was, same, classic, best := got.Policies[0], got.Policies[1], got.Policies[2], got.Policies[3]
	if was.Policy != asRecorded || !got.Known {
		t.Fatalf("want what was done first, with capacities, have %+v", got)
	}
	if lived.Drops < 0.02 || math.Abs(got.Measured-lived.Drops) > 0.001 || math.Abs(*was.Drops-lived.Drops) > 0.2*lived.Drops {
		t.Errorf("dropped %.4f: reported %.4f, estimated %.4f", lived.Drops, got.Measured, *was.Drops)
	}
	if same.Moves != 0 || was.Moves != 0 || *same.Drops != *was.Drops || same.Gini != was.Gini || *same.Worst != *was.Worst {
		t.Errorf("want v1 to do again what it did:\n%+v\n%+v", was, same)
	}
	if best.Moves == 0 || len(best.Moved) != best.Moves || *best.Drops > *was.Drops/2 || classic.Moves == 0 || *best.Worst < 0.3 {
		t.Errorf("want v5 to prevent most of %.4f dropped, have %.4f with %d moves, v4 %.4f", *was.Drops, *best.Drops, best.Moves,
			*classic.Drops)
	}
	for _, o := range got.Policies {
		moves := 0
		for _, m := range o.Samples {
			moves += m.Moves
		}
		if moves != o.Moves || len(o.Samples) != got.Observations {
			t.Errorf("%s: %d moves in %d moments, want %d in %d", o.Policy, moves, len(o.Samples), o.Moves, got.Observations)
		}
	}
}

// A policy never moves a partition to where it may not be, through crashes of workers
// and lost healthchecks; what really moved is counted as it was.
func TestReplayOfFailures(t *testing.T) {
	t.Parallel()
	recording, lived := record(t, strings.Replace(hot, "events:\n",
		"events:\n  - {at_s: 100, kind: crash, worker: 2, for_s: 200}\n  - {at_s: 500, kind: ping_loss, prob: 0.05, for_s: 200}\n", 1), "v5")
	r := reread(t, recording)
	got, err := r.Replay(balancer.Names())
	if err != nil {
		t.Fatal(err)
	}
	// The moves of the last step are not seen any more.
	if n := got.Policies[0].Moves; n == 0 || n > lived.Moves {
		t.Errorf("want up to %d moves as recorded, have %d", lived.Moves, n)
	}
	for _, o := range got.Policies {
		left := false
		for _, m := range o.Moved {
			left = left || m.From == "w2"
			to := slices.IndexFunc(r.workers, func(w clusters.AssignedWorker) bool { return w.ID == m.To })
			if !slices.Contains(r.allowed[m.Partition], to) || m.From == m.To {
				t.Errorf("%s: invalid move %+v", o.Policy, m)
			}
		}
		if !left {
			t.Errorf("%s: nothing has left the worker that crashed", o.Policy)
		}
	}
}

// Two recordings that overlap are one.
func TestRecordingsInOneFile(t *testing.T) {
	t.Parallel()
	recording, _ := record(t, hot, "v1")
	early, late := recording, recording
	n := len(recording.Observations)
	early.Observations, late.Observations = recording.Observations[:2*n/3], recording.Observations[n/3:]
	var b bytes.Buffer
	for _, part := range []clusters.Recording{early, late} {
		if err := WriteRecording(&b, part); err != nil {
			t.Fatal(err)
		}
	}
	both, err := ReadRecording(&b)
	if err != nil {
		t.Fatal(err)
	}
	if len(both.seen) != n || both.Params != balancer.DefaultParams() {
		t.Errorf("want %d observations, have %d, %+v", n, len(both.seen), both.Params)
	}
}

// Where nobody knows what workers can do, nothing is made up.
func TestReplayWithoutCapacities(t *testing.T) {
	t.Parallel()
	const head = `{"cluster": "c", "policy": "v5", "partitions": 2, "step_s": 2, ` +
		`"workers": [{"id": "a"CAPA}, {"id": "b"CAPB}], "holders": [[0, 1], [1]]}`
	const seen = `{"cluster": "c", "t": %d, "workers": [{"id": "a", "listed": true, "up": true, "requests": 1}, ` +
		`{"id": "gone", "up": false}], "owners": [0, %d], "weights": [3, null]}`
	for name, c := range map[string]struct {
		a, b  string
		known bool
	}{
		"one declared":  {`, "capacity": 6`, "", false},
		"both declared": {`, "capacity": 6`, `, "capacity": 2`, true},
	} {
		lines := strings.NewReplacer("CAPA", c.a, "CAPB", c.b).Replace(head) + "\n" + fmt.Sprintf(seen, 1000, -1) + "\n" +
			fmt.Sprintf(seen, 1002, 1)
		r, err := ReadRecording(strings.NewReader(lines))
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := r.Replay([]string{"v5"})
		if err != nil {
			t.Fatal(name, err)
		}
		o := got.Policies[0]
		if got.Known != c.known || (o.Drops != nil) != c.known || (o.Worst != nil) != c.known || c.known && *o.Worst != 0.5 {
			t.Errorf("%s: have %+v", name, o)
		}
		var text, data bytes.Buffer
		if err := got.WriteText(&text); err != nil || strings.Contains(text.String(), "unknown") == c.known {
			t.Errorf("%s: %v, %s", name, err, text.String())
		}
		var svg bytes.Buffer
		if err := got.WriteSVG(&svg); err != nil || strings.Contains(svg.String(), "c: dropped requests, estimated") != c.known ||
			strings.Count(svg.String(), "Gini index") != 1 {
			t.Errorf("%s: %v, %s", name, err, svg.String())
		}
		if err := xml.Unmarshal(svg.Bytes(), new(struct{ XMLName xml.Name })); err != nil || strings.Contains(svg.String(), "NaN") ||
			strings.Contains(svg.String(), "Inf") {
			t.Errorf("%s: no drawing: %v, %s", name, err, svg.String())
		}
		if err := datum.WriteJSON(&data, got); err != nil || strings.Contains(data.String(), `"estimated_drop_fraction": null`) == c.known {
			t.Errorf("%s: %v, %s", name, err, data.String())
		}
	}
}

// Bans hold as they were recorded, and a partition that nobody had is placed first.
func TestReplayHeedsBans(t *testing.T) {
	t.Parallel()
	lines := `{"cluster": "c", "policy": "v5", "partitions": 2, "step_s": 2, ` +
		`"workers": [{"id": "a"}, {"id": "b"}], "holders": [[0, 1], [1, 0]]}` + "\n"
	for at, more := range []string{"", "", `, "banned": ["a"]`, `, "banned": ["a"]`} {
		lines += fmt.Sprintf(`{"cluster": "c", "t": %d, "workers": [{"id": "a", "listed": true, "up": true}, `+
			`{"id": "b", "listed": true, "up": true}], "owners": [0, -1], "weights": [3, 1]%s}`+"\n", 1000+2*at, more)
	}
	r, err := ReadRecording(strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Replay(balancer.Names())
	if err != nil {
		t.Fatal(err)
	}
	want := Moved{After: 4, Partition: 0, From: "a", To: "b", Reason: "worker a is banned: as it was recorded"}
	for _, o := range got.Policies[1:] {
		if o.Moves != 1 || o.Moved[0] != want {
			t.Errorf("%s: want %+v, have %+v", o.Policy, want, o.Moved)
		}
	}
}

// A file that somebody has edited may hold any numbers.
func TestReplayOfLies(t *testing.T) {
	t.Parallel()
	lines := `{"cluster": "c", "policy": "v5", "partitions": 2, "step_s": 2, ` +
		`"workers": [{"id": "a"}, {"id": "b"}], "holders": [[0, 1], [1, 0]]}` + "\n"
	for at := range 9 {
		lines += fmt.Sprintf(`{"cluster": "c", "t": %d, "workers": [{"id": "a", "listed": true, "up": true, "requests": 1e308, "drops": 1e308, "busy": 0.5}, `+
			`{"id": "b", "listed": true, "up": true, "requests": 9, "drops": -1e308, "busy": -1}], `+
			`"owners": [0, 0], "weights": [1e308, 1e308]}`+"\n", 1000+2*at)
	}
	r, err := ReadRecording(strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Replay(balancer.Names())
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if err := datum.WriteJSON(&data, got); err != nil {
		t.Error(err)
	}
	for _, o := range got.Policies {
		if !(*o.Drops >= 0 && *o.Drops <= 1 && o.Gini >= 0 && o.Gini <= 1) {
			t.Errorf("%s: %+v", o.Policy, o)
		}
	}
}

func TestRecordingsThatAreNone(t *testing.T) {
	t.Parallel()
	const head = `{"cluster": "c", "partitions": 1, "step_s": 2, "workers": [{"id": "a"}], "holders": [[0]]}`
	const seen = `{"cluster": "c", "t": 1000, "workers": [{"id": "a"}], "owners": [0], "weights": [1]}`
	for lines, want := range map[string]string{
		"":                               "want 2 observations or more, have 0",
		head + "\n" + seen + "\n" + seen: "want 2 observations or more, have 1",
		seen:                             "line 1: want what is known of the cluster first",
		head + "\n{":                     "line 2: unexpected end of JSON input",
		head + "\n" + strings.Replace(seen, `[0]`, `[1]`, 1): "line 2: owners: partition 0 is on worker 1 of 1",
		head + "\n" + strings.Replace(seen, `[1]`, `[1, 2]`, 1): "line 2: want owners and weights of 1 partitions, " +
			"have 1 and 2",
		head + "\n" + strings.Replace(seen, `"c"`, `"d"`, 1): `want an observation of cluster c, have one of "d"`,
		head + "\n" + strings.Replace(seen, `1000`, `-1`, 1): "t: want Unix seconds, have -1",
		head + "\n" + strings.Replace(head, `"c"`, `"d"`, 1): "want one cluster, c of 1 partitions, have d of 1, too",
		strings.Replace(head, `[[0]]`, `[[0, 0]]`, 1): "holders: partition 0: want different workers from 0 " +
			"to 0, have [0 0]",
		strings.Replace(head, `[[0]]`, `[[2]]`, 1):                                     "holders: partition 0: want different workers",
		strings.Replace(head, `[[0]]`, `[]`, 1):                                        "holders: want a list for each of 1 partitions, have 0",
		strings.Replace(head, `"partitions": 1`, `"partitions": 0`, 1):                 "partitions: want 1 to 100000, have 0",
		strings.Replace(head, `"step_s": 2`, `"step_s": 0`, 1):                         "step_s: want 0.001 to 3600, have 0",
		strings.Replace(head, `{"id": "a"}`, `{"id": "a"}, {"id": "a"}`, 1):            "workers: want ids of their own",
		strings.Replace(head, `"step_s"`, `"parameters": {"margins": 1}, "step_s"`, 1): `parameters: json: unknown field "margins"`,
	} {
		if _, err := ReadRecording(strings.NewReader(lines)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, have %v", lines, want, err)
		}
	}
}
