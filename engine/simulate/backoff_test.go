package simulate_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/simulate"
)

var update = flag.Bool("update", false, "write the goldens anew")

// golden compares what was written with a file.
func golden(t *testing.T, name string, have []byte) {
	t.Helper()
	file := filepath.Join("..", "..", "testdata", "simulate", name)
	if *update {
		if err := os.WriteFile(file, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s differs; have\n%s", file, have)
	}
}

// The article: a fixed interval never lets the service up again, exponential
// growth does. The same for any seed.
func TestFixedNeverRecoversAndExponentialDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		s := simulate.DefaultScenario()
		s.Seed = seed
		r := simulate.Compare(s, simulate.Policies()[:2], 1)
		fixed, exponential := r.Policies[0], r.Policies[1]
		if fixed.Recovered || fixed.TimeToRecover != nil || fixed.Goodput > 1 || fixed.TimeoutsAfter < 400 {
			t.Errorf("seed %d: fixed: recovered %v, goodput %v, timeouts %v; want a service that stays down",
				seed, fixed.Recovered, fixed.Goodput, fixed.TimeoutsAfter)
		}
		if !exponential.Recovered || *exponential.TimeToRecover > 30 || exponential.PeakConcurrency > 951 {
			t.Errorf("seed %d: exponential: recovered %v, concurrency %d; want a service that is back soon",
				seed, exponential.Recovered, exponential.PeakConcurrency)
		}
	}
}

// With as many connections waiting as systems allow today, no client can help it.
func TestLargeBacklogKillsWithAnyPolicy(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Backlog = 4096
	for _, v := range simulate.Compare(s, simulate.Policies()[1:3], 1).Policies {
		if v.Recovered {
			t.Errorf("%s: recovered, with %d requests under way", v.Policy, v.PeakConcurrency)
		}
	}
}

// A real service on a real network was stopped for 20 s, with 1000 clients: it
// saw so many attempts per second.
func TestAttemptsAreThoseOfARealNetwork(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Outage, s.Backlog = 20*time.Second, 4096
	measured := []float64{292, 196, 244, 240}
	for i, v := range simulate.Compare(s, simulate.Policies()[:4], 1).Policies {
		if v.AttemptsDuring < 0.8*measured[i] || v.AttemptsDuring > 1.2*measured[i] {
			t.Errorf("%s: %v attempts per second, measured were %v", v.Policy, v.AttemptsDuring, measured[i])
		}
	}
}

// Events that wait in an inbox for an adaptive limit kill nobody, however long the
// outage and the backlog.
func TestAdaptiveLimitLetsTheServiceUp(t *testing.T) {
	t.Parallel()
	limited := simulate.Policies()[4]
	for _, backlog := range []int{128, 4096} {
		for _, outage := range []time.Duration{20 * time.Second, time.Minute, 5 * time.Minute} {
			s := simulate.DefaultScenario()
			s.Backlog, s.Outage = backlog, outage
			v := simulate.Judge(s, limited)
			if !v.Recovered || *v.TimeToRecover > 15 || v.PeakConcurrency > 300 {
				t.Errorf("backlog %d, outage %v: recovered %v, concurrency %d", backlog, outage, v.Recovered, v.PeakConcurrency)
			}
			if good, came := v.GoodputBefore*15+v.Goodput*120, 100*(135+outage.Seconds()); good < 0.9*came {
				t.Errorf("backlog %d, outage %v: %.0f of %.0f events have succeeded", backlog, outage, good, came)
			}
		}
	}
}

func TestNothingHappensWithoutAnOutage(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Outage, s.After = 0, 30*time.Second
	for _, fault := range simulate.Faults() {
		s.Fault = simulate.Fault(fault)
		for _, p := range simulate.Policies() {
			v := simulate.JudgeAll(s, p, 2)
			if !v.Recovered || *v.TimeToRecover != 0 || v.Recovers != 2 || v.Runs != 2 || v.TimeoutsAfter != 0 || v.PeakConcurrency > 60 {
				t.Errorf("%s, %s: have recovered in %d of %d, %v timeouts/s, concurrency %d", fault, p.Name, v.Recovers, v.Runs, v.TimeoutsAfter,
					v.PeakConcurrency)
			}
		}
	}
}

// With several seeds, a policy has recovered when it has in each of them.
func TestRecoveryIsCountedOverSeeds(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.After = time.Minute
	policy := simulate.Policies()[2]
	v := simulate.JudgeAll(s, policy, 8)
	recovered := 0
	for i := range uint64(8) {
		s.Seed = 1 + i
		if simulate.Judge(s, policy).Recovered {
			recovered++
		}
	}
	if recovered == 0 || recovered == 8 || v.Runs != 8 || v.Recovers != recovered || v.Recovered || v.TimeToRecover != nil {
		t.Errorf("have %d of %d, recovered %v; want %d of 8, some and not all", v.Recovers, v.Runs, v.Recovered, recovered)
	}
}

// Clients of a service that was stopped left 143 of 4,032 attempts for it when they closed their
// sockets, and 3,957 of 4,066 when the network went on to connect for them.
func TestWhatAbandonedAttemptsReachTheService(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Outage = 20 * time.Second
	p := simulate.Policies()[2]
	if v := simulate.Judge(s, p); float64(v.Late) < 0.9*float64(v.Failed) {
		t.Errorf("dials in the background: %d of %d attempts have arrived", v.Late, v.Failed)
	}
	s.Abandon = true
	if v := simulate.Judge(s, p); v.Late < s.Backlog || float64(v.Late) > 0.1*float64(v.Failed) {
		t.Errorf("closed sockets: %d of %d attempts have arrived, want the backlog of %d and those that still wait", v.Late, v.Failed, s.Backlog)
	}
}

// What else may happen to a service than that it stops: callers that repeat at once keep it down all the
// same, unless it refuses, which costs it nothing.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Outage, s.After = 10*time.Second, 30*time.Second
	fixed, full, limited := simulate.Policies()[0], simulate.Policies()[2], simulate.Policies()[4]
	s.Fault = simulate.FaultRefused
	v, calm := simulate.Judge(s, fixed), simulate.Judge(s, full)
	if !v.Recovered || !calm.Recovered || v.GoodputDuring > 1 || v.Late != 0 || v.AttemptsDuring < 5*calm.AttemptsDuring {
		t.Errorf("refused: have %v and %v, %v and %v attempts/s", v.Recovered, calm.Recovered, v.AttemptsDuring, calm.AttemptsDuring)
	}
	for _, s.Fault = range []simulate.Fault{simulate.FaultBrownout, simulate.FaultSpike} {
		v, calm := simulate.Judge(s, fixed), simulate.Judge(s, limited)
		if v.Recovered || !calm.Recovered || calm.PeakConcurrency > 300 {
			t.Errorf("%s: have %v, and %v with an adaptive limit, with %d at a time", s.Fault, v.Recovered, calm.Recovered, calm.PeakConcurrency)
		}
	}
}

// Each attempt ends as an answer or a timeout, but for those still on their way.
func TestAttemptsAreNeitherLostNorInvented(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Clients, s.After = 300, 30*time.Second
	p := simulate.Policies()[1].Retry
	p.Attempts = 3
	var attempts, ends, given int
	for _, x := range simulate.Backoff(s, p) {
		attempts += x.Attempts
		ends += x.Good + x.Timeouts
		given += x.GivenUp
	}
	if open := attempts - ends; open < 0 || open > s.Clients {
		t.Errorf("%d attempts and %d ends", attempts, ends)
	}
	if given == 0 {
		t.Error("nobody gave up after 3 attempts in an outage of a minute")
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	s := simulate.DefaultScenario()
	s.Clients, s.Outage, s.After = 800, 30*time.Second, 40*time.Second
	policies := append(simulate.Policies(), simulate.Policy{Name: "<mine>", Retry: tree.Retry{
		Attempts: 3, MinDelay: 5 * time.Second, MaxDelay: time.Minute, Factor: 3, Jitter: datum.Jitter{Word: datum.FullJitter},
	}})
	r := simulate.Compare(s, policies, 1)
	var text, svg, data, again bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteSVG(&svg), datum.WriteJSON(&data, r),
		datum.WriteJSON(&again, simulate.Compare(s, policies, 1))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data.Bytes(), again.Bytes()) {
		t.Error("the same seed gives another result")
	}
	for i := range r.Policies {
		r.Policies[i].Samples = r.Policies[i].Samples[:2] // enough to see the form
	}
	data.Reset()
	if err := datum.WriteJSON(&data, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "backoff.txt", text.Bytes())
	golden(t, "backoff.svg", svg.Bytes())
	golden(t, "backoff.json", data.Bytes())
	for d := xml.NewDecoder(&svg); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestScenariosThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*simulate.Scenario){
		"nobody":        func(s *simulate.Scenario) { s.Clients = 0 },
		"everybody":     func(s *simulate.Scenario) { s.Clients = 1 << 40 },
		"no thinking":   func(s *simulate.Scenario) { s.Think = 0 },
		"too slow":      func(s *simulate.Scenario) { s.MinDelay = 3 * time.Second },
		"shrinking":     func(s *simulate.Scenario) { s.Factor = 0.5 },
		"no scale":      func(s *simulate.Scenario) { s.Scale = 0 },
		"negative":      func(s *simulate.Scenario) { s.Outage = -1 },
		"for ever":      func(s *simulate.Scenario) { s.Outage = 1 << 62 },
		"no time after": func(s *simulate.Scenario) { s.After = time.Second },
		"no such fault": func(s *simulate.Scenario) { s.Fault = "fire" },
		"too much":      func(s *simulate.Scenario) { s.Clients, s.After = 100_000, 20*time.Hour },
	} {
		s := simulate.DefaultScenario()
		change(&s)
		if s.Check() == nil {
			t.Errorf("%s: want an error", what)
		}
	}
	if err := simulate.DefaultScenario().Check(); err != nil {
		t.Error(err)
	}
}
