package simulate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine/simulate"
)

// shortScenario takes three seconds of real time, and has so few clients that a busy machine keeps up.
func shortScenario() simulate.Scenario {
	s := simulate.DefaultScenario()
	s.Clients, s.Think = 3, 100*time.Millisecond
	s.Timeout, s.MinDelay = 200*time.Millisecond, 2*time.Millisecond
	s.Before, s.Outage, s.After = time.Second, time.Second, time.Second
	return s
}

// A real run has the same numbers as a simulated one, and ends by itself with all its clients.
func TestRealRunsEnd(t *testing.T) {
	t.Parallel()
	for _, fault := range simulate.Faults() {
		for _, abandon := range []bool{false, true} {
			s := shortScenario()
			s.Fault, s.Abandon = simulate.Fault(fault), abandon
			p := simulate.Policies()[0].Retry
			p.Attempts = 3
			t.Run(fault, func(t *testing.T) {
				t.Parallel()
				samples, err := simulate.Real(t.Context(), s, p)
				if err != nil || len(samples) != 3 {
					t.Fatalf("have %d samples, %v; want one for each second", len(samples), err)
				}
				var sum simulate.Sample
				for _, x := range samples {
					sum.Attempts += x.Attempts
					sum.Good += x.Good
					sum.Timeouts += x.Timeouts
					sum.Refused += x.Refused
				}
				// The clients are 20 times as many in a spike. Each may have an attempt in flight at the end.
				if open := sum.Attempts - sum.Good - sum.Timeouts - sum.Refused; sum.Attempts == 0 || open < 0 || open > 20*s.Clients {
					t.Errorf("%d attempts are neither answered nor failed: %+v", open, sum)
				}
				if last := samples[2]; last.Repeated < 0 || last.Repeated > 20*s.Clients {
					t.Errorf("%d requests are repeated at the end", last.Repeated)
				}
				if fault != string(simulate.FaultRefused) && sum.Refused > 0 {
					t.Errorf("%d attempts were refused by a service that accepts them", sum.Refused)
				}
				if fault == string(simulate.FaultRefused) && sum.Refused == 0 {
					t.Error("the service refused nothing")
				}
			})
		}
	}
}

// The report has both results of each policy of independent clients, with the same fields.
func TestRealResultsAreBesideSimulatedOnes(t *testing.T) {
	t.Parallel()
	policies := simulate.Policies()[2:]
	r, err := simulate.CompareReal(t.Context(), shortScenario(), policies, 1)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var fields []string
	for i, v := range r.Policies {
		names = append(names, v.Policy)
		data, err := json.Marshal(v)
		var one map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(data, &one)
		}
		if err != nil {
			t.Fatal(err)
		}
		have := slices.Sorted(maps.Keys(one))
		if i == 0 {
			fields = have
		}
		if !slices.Equal(have, fields) || len(v.Samples) != 3 || v.Real != strings.HasSuffix(v.Policy, ", real") {
			t.Errorf("%s: real %v, %d samples, fields %v; want %v", v.Policy, v.Real, len(v.Samples), have, fields)
		}
	}
	want := []string{policies[0].Name, policies[0].Name + ", real", policies[1].Name, policies[1].Name + ", real", policies[2].Name}
	if !slices.Equal(names, want) {
		t.Errorf("have %q, want %q", names, want)
	}
	var text, svg bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteSVG(&svg); err != nil || !strings.Contains(svg.String(), ", real: ") {
		t.Errorf("have %v and\n%s\nwant a line for the real run", err, svg.String())
	}
}

// An interrupted run ends at once, also while the service is stopped.
func TestRealRunsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	s := shortScenario()
	s.Before, s.Outage = 0, 9*time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := simulate.CompareReal(ctx, s, simulate.Policies()[:1], 1); err == nil {
		t.Error("want the error of the context")
	}
}

func TestRealRunsAreBounded(t *testing.T) {
	t.Parallel()
	if err := shortScenario().CheckReal(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*simulate.Scenario){
		"clients":     func(s *simulate.Scenario) { s.Clients = 6000 },
		"spike":       func(s *simulate.Scenario) { s.Clients, s.Fault = 1000, simulate.FaultSpike },
		"time":        func(s *simulate.Scenario) { s.After = 11 * time.Minute },
		"connections": func(s *simulate.Scenario) { s.Clients, s.Outage = 1000, time.Minute },
	} {
		s := shortScenario()
		change(&s)
		if s.CheckReal() == nil {
			t.Errorf("%s: want an error", what)
		}
	}
}
