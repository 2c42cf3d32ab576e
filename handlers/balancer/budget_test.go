package balancer_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"procaas/engine"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
)

// In no minute does the live balancer move more of free will than its budget has: whoever
// falls silent, drains, gets hot or is not believed, whatever people pull, and though another
// node takes over in between, which knows of the moves only what the store has.
func TestLiveMovesStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 4, 10, 21} { // in the last two a node takes over soon after moves
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := &storm{
				rig:    newRig(t, 5, "    parameters: {budget: 0.1, margin: 0, fixed-cost: 0, no-return: 2s}\n"),
				chance: rand.New(rand.NewPCG(seed, 7)),
			}
			for i := range 150 {
				s.happen(i)
				s.check()
			}
			t.Logf("%d voluntary and %d forced moves, %d in a minute at most", len(s.made), s.forced, s.most)
			if s.made == nil || s.forced == 0 {
				t.Errorf("have %d voluntary and %d forced moves, and %d in a minute at most: the test shows nothing", len(s.made), s.forced, s.most)
			}
		})
	}
}

// A storm is a cluster to which everything happens.
type storm struct {
	*rig
	chance *rand.Rand
	state  []string // of each worker: "", mute, draining or nonsense
	usual  [12]float64
	lever  clusters.Levers

	served, dropped float64 // as the workers tell this time

	made   []time.Time // voluntary moves
	forced int
	most   int // in a minute
}

// happen draws what the workers do until the next tick.
func (s *storm) happen(tick int) {
	if s.state == nil {
		s.state = make([]string, len(s.workers))
	}
	for i := range s.state {
		if s.chance.IntN(25) == 0 {
			s.state[i] = []string{"", "", "mute", "draining", "nonsense"}[s.chance.IntN(5)]
		}
	}
	if tick%10 == 0 {
		for p := range s.usual {
			s.usual[p] = 200 * s.chance.Float64() * s.chance.Float64()
		}
	}
	switch s.chance.IntN(60) {
	case 0:
		s.lever = clusters.Levers{Banned: map[string]clusters.Lever{"w2": {Reason: "test"}}}
	case 1:
		s.lever = clusters.Levers{Frozen: &clusters.Lever{Reason: "test"}}
	case 2:
		s.lever = clusters.Levers{Pins: map[int]clusters.Lever{3: {Worker: "w4", Reason: "test"}}}
	case 3:
		s.lever = clusters.Levers{}
	case 4:
		s.memory, s.node = engine.Memory{}, s.join() // another node goes on
	}
	s.levers(s.lever)
	s.served, s.dropped = 0, 0
	a := s.assignment()
	for i, w := range s.workers {
		w.say(s.report(i, &a))
	}
}

// report is what a worker answers, which serves 100 requests a second.
func (s *storm) report(i int, a *clusters.Assignment) string {
	switch s.state[i] {
	case "mute":
		return "mute"
	case "nonsense":
		return `{"requests": -1}`
	}
	asked, counts := 0.0, map[string]float64{}
	for p, owner := range a.Owners {
		if owner >= 0 && a.Workers[owner].ID == fmt.Sprint("w", i+1) {
			counts[fmt.Sprint(p)] = s.usual[p] * (0.9 + 0.2*s.chance.Float64())
			asked += counts[fmt.Sprint(p)]
		}
	}
	served := min(asked, 100)
	if _, banned := s.lever.Banned[fmt.Sprint("w", i+1)]; !banned {
		s.served, s.dropped = s.served+served, s.dropped+asked-served
	}
	text, err := json.Marshal(map[string]any{
		"requests": served, "drops": asked - served, "busy": served / 100, "age_s": 1e5, "window_s": 1,
		"draining": s.state[i] == "draining", "partitions": counts,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// check lets a tick pass, and counts its moves.
func (s *storm) check() {
	s.t.Helper()
	decision, _ := s.tick()
	var d balancer.Decision
	text, err := json.Marshal(decision)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	voluntary := 0
	for _, m := range d.Moves {
		var from int
		if _, err := fmt.Sscanf(m.From, "w%d", &from); err != nil || s.state[from-1] == "mute" || s.state[from-1] == "draining" ||
			slices.Contains(d.Banned, m.From) || len(m.Reason) > 6 && m.Reason[:6] == "pinned" {
			s.forced++
			continue
		}
		voluntary++
		s.made = append(s.made, s.now)
	}
	lately := 0
	for _, at := range s.made {
		if s.now.Sub(at) < time.Minute {
			lately++
		}
	}
	s.most = max(s.most, lately)
	limit := 5 // the least that a budget has
	if s.dropped > 0.01*(s.served+s.dropped) {
		limit = 15
	}
	if voluntary > 0 && lately > limit {
		s.t.Fatalf("at %s: have %d voluntary moves in a minute, want %d at most", s.now, lately, limit)
	}
}
