package shardmap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/dsl/spec"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/transfers"
)

var (
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	errGone = errors.New("connection refused")
)

// judged makes a view of hosts from what two looks have found.
func judged(history []sample, dcs string, reports ...Report) *view {
	hosts := make([]host, len(reports))
	for i, r := range reports {
		hosts[i] = host{address: fmt.Sprintf("h%d:5432", i), dc: dcs[i : i+1]}
		for range 2 {
			hosts[i].take(r, noon)
		}
	}
	return newView(hosts, history, noon)
}

func TestTheMasterOfTheHighestTimelineCounts(t *testing.T) {
	t.Parallel()
	master := func(timeline int) Report { return Report{Master: true, Timeline: timeline} }
	for name, c := range map[string]struct {
		reports []Report
		master  int
	}{
		"one":                {[]Report{{}, master(1), {}}, 1},
		"an old one too":     {[]Report{master(3), master(4), {}}, 1},
		"the old one later":  {[]Report{master(4), master(3), {}}, 0},
		"two of one":         {[]Report{master(3), master(3), {}}, -1},
		"the newer is gone":  {[]Report{master(3), {Err: errGone}, {}}, 0},
		"none":               {[]Report{{}, {}, {}}, -1},
		"nobody answers":     {[]Report{{Err: errGone}, {Err: errGone}}, -1},
		"two of one, higher": {[]Report{master(3), master(3), master(9)}, -1},
	} {
		v := judged(nil, "aaa", c.reports...)
		if v.master != c.master || (v.problem == "") != (c.master >= 0) {
			t.Errorf("%s: master %d (%s), want %d", name, v.master, v.problem, c.master)
		}
	}
}

func TestAHostIsDownAfterTwoMisses(t *testing.T) {
	t.Parallel()
	h := host{}
	for i, c := range []struct {
		err   error
		alive bool
	}{
		{nil, true},
		{errGone, true},
		{nil, true},
		{errGone, true},
		{errGone, false},
		{nil, false},
		{errGone, false},
		{nil, false},
		{nil, true},
	} {
		h.take(Report{Err: c.err}, noon)
		if h.alive != c.alive {
			t.Errorf("after look %d, which found %v: alive is %v", i, c.err, h.alive)
		}
	}
}

func TestLagIsTheTimeSinceTheMasterWasThere(t *testing.T) {
	t.Parallel()
	history := []sample{{noon.Add(-3 * time.Second), 100}, {noon.Add(-2 * time.Second), 200}, {noon.Add(-time.Second), 200}, {noon, 300}}
	for lsn, want := range map[uint64]time.Duration{300: 0, 400: 0, 250: 0, 200: 0, 150: 2 * time.Second, 50: 3 * time.Second} {
		if have, known := lagOf(lsn, history, noon); have != want || known != (lsn >= 100) {
			t.Errorf("lag at %d: %s, known: %v; want %s", lsn, have, known, want)
		}
	}
	if _, known := lagOf(300, nil, noon); known {
		t.Error("a lag is known although the master was never seen")
	}
}

// A replica is not taken to be fresh because this process has only just begun to look, nor while the
// master does not answer, nor because the log of a former master was longer.
func TestALagThatIsNotKnownIsNoSmallOne(t *testing.T) {
	t.Parallel()
	s := newShard(&language.Shard{ID: "s1", Hosts: []*language.ShardHost{{Address: "h0:5432"}, {Address: "h1:5432"}, {Address: "h2:5432"}}})
	at := func(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }
	fit := func(maxLag time.Duration, minLSN uint64) (out []int) {
		v := s.view.Load()
		for i := range v.hosts {
			if v.fits(i, transfers.ShardQuestion{Mode: transfers.ShardReplica, MaxLag: maxLag, MinLSN: minLSN}) {
				out = append(out, i)
			}
		}
		return out
	}
	check := func(when string, want []int, maxLag time.Duration, minLSN uint64) {
		t.Helper()
		if have := fit(maxLag, minLSN); !slices.Equal(have, want) {
			t.Errorf("%s: replicas %v are fit for max-lag %v and position %d, want %v", when, have, maxLag, minLSN, want)
		}
	}
	s.take(1, Report{Timeline: 1, LSN: 10}, at(0)) // a day behind
	s.take(2, Report{Timeline: 1, LSN: 990}, at(0))
	check("before the master was seen", nil, time.Hour, 0)
	check("before the master was seen, and any lag will do", []int{1, 2}, 0, 0)
	s.take(0, Report{Master: true, Timeline: 1, LSN: 1000}, at(0))
	check("as soon as it was seen", nil, time.Hour, 0)
	s.take(2, Report{Timeline: 1, LSN: 1000}, at(1))
	s.take(1, Report{Timeline: 1, LSN: 11}, at(1))
	check("a second later", []int{2}, 2*time.Second, 0)
	for second := 2; second < 5; second++ { // the master is gone: nothing is written
		s.take(0, Report{Err: errGone}, at(second))
	}
	check("without a master", []int{2}, 2*time.Second, 0)
	s.take(1, Report{Master: true, Timeline: 2, LSN: 500}, at(6))
	check("a replica of the former master", nil, time.Hour, 0)
	check("a replica of the former master, by the position", nil, 0, 600)
	s.take(2, Report{Timeline: 2, LSN: 500}, at(7))
	check("when it follows the new one", []int{2}, time.Second, 0)
}

func TestTheChoiceOfHosts(t *testing.T) {
	t.Parallel()
	history := []sample{{noon.Add(-9 * time.Second), 50}, {noon.Add(-5 * time.Second), 100}, {noon, 300}}
	m, fresh, late, dead := Report{Master: true, Timeline: 1, LSN: 300}, Report{LSN: 300}, Report{LSN: 60}, Report{Err: errGone}
	for name, c := range map[string]struct {
		dcs     string
		reports []Report
		q       transfers.ShardQuestion
		want    []int // that may come first; none for an error
	}{
		"master":       {"abc", []Report{fresh, m, fresh}, transfers.ShardQuestion{Mode: transfers.ShardMaster}, []int{1}},
		"no master":    {"ab", []Report{fresh, dead}, transfers.ShardQuestion{Mode: transfers.ShardMaster}, nil},
		"replica":      {"abc", []Report{fresh, m, fresh}, transfers.ShardQuestion{Mode: transfers.ShardReplica}, []int{0, 2}},
		"replica here": {"abc", []Report{fresh, m, fresh}, transfers.ShardQuestion{Mode: transfers.ShardReplica, DC: "c"}, []int{2}},
		"few are left here": {
			"aaab",
			[]Report{fresh, dead, dead, fresh},
			transfers.ShardQuestion{Mode: transfers.ShardReplica, DC: "a"},
			[]int{0, 3},
		},
		"enough are left here": {"aab", []Report{fresh, dead, fresh}, transfers.ShardQuestion{Mode: transfers.ShardReplica, DC: "a"}, []int{0}},
		"none here":            {"abc", []Report{fresh, m, fresh}, transfers.ShardQuestion{Mode: transfers.ShardReplica, DC: "z"}, []int{0, 2}},
		"not too late": {
			"abc",
			[]Report{late, m, fresh},
			transfers.ShardQuestion{Mode: transfers.ShardReplica, MaxLag: time.Second},
			[]int{2},
		},
		"late is allowed": {
			"abc",
			[]Report{late, m, dead},
			transfers.ShardQuestion{Mode: transfers.ShardReplica, MaxLag: 5 * time.Second},
			[]int{0},
		},
		"all are late":         {"ab", []Report{late, m}, transfers.ShardQuestion{Mode: transfers.ShardReplica, MaxLag: time.Second}, nil},
		"any takes the master": {"ab", []Report{late, m}, transfers.ShardQuestion{Mode: transfers.ShardAny, MaxLag: time.Second}, []int{1}},
		"read your writes":     {"abc", []Report{late, m, fresh}, transfers.ShardQuestion{Mode: transfers.ShardReplica, MinLSN: 200}, []int{2}},
		"not yet anywhere":     {"ab", []Report{fresh, m}, transfers.ShardQuestion{Mode: transfers.ShardReplica, MinLSN: 900}, nil},
		"a replaced master not": {
			"ab",
			[]Report{{Master: true, Timeline: 1}, {Master: true, Timeline: 2}},
			transfers.ShardQuestion{Mode: transfers.ShardAny},
			[]int{1},
		},
		"a replaced one for read": {
			"ab",
			[]Report{{Master: true, Timeline: 1}, {Master: true, Timeline: 2}},
			transfers.ShardQuestion{Mode: transfers.ShardReplica},
			nil,
		},
	} {
		v := judged(history, c.dcs, c.reports...)
		first := map[int]bool{}
		for range 200 {
			order, err := v.choose(c.q, rand.IntN)
			if err != nil {
				if !errors.Is(err, transfers.ErrNoHost) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			first[order[0]] = true
			if slices.Sort(order); len(slices.Compact(order)) != len(c.reports) {
				t.Errorf("%s: hosts %v, want each once", name, order)
			}
		}
		for i := range c.reports {
			if first[i] != slices.Contains(c.want, i) {
				t.Errorf("%s: host %d is chosen: %v, want %v", name, i, first[i], c.want)
			}
		}
	}
}

// simulated hosts answer at once; the master of each shard is its first host.
type simulated struct {
	looks atomic.Int64
	deny  func(address string) bool
	inUse sync.Map
	twice atomic.Bool
}

func (p *simulated) Probe(_ context.Context, _ *Map, address string) Report {
	if _, busy := p.inUse.LoadOrStore(address, true); busy {
		p.twice.Store(true)
	}
	defer p.inUse.Delete(address)
	n := p.looks.Add(1)
	if p.deny != nil && p.deny(address) {
		return Report{Err: errGone}
	}
	return Report{Master: address[0] == 'm', Timeline: 1, LSN: uint64(n), Compared: true}
}

func (*simulated) Close() {}

// manyShards makes a map with shards of three hosts each.
func manyShards(n int) *Map {
	d := &language.ShardMap{ID: "many", Key: spec.Names{"key"}, Strategy: "slots", Slots: 4096, KeyType: "text"}
	for i := range n {
		s := &language.Shard{ID: fmt.Sprintf("s%d", i), Class: "hot"}
		for j, dc := range []string{"a", "b", "c"} {
			s.Hosts = append(s.Hosts, &language.ShardHost{Address: fmt.Sprintf("%s-%d.example:5432", []string{"m", "r1", "r2"}[j], i), DC: dc})
		}
		d.Shards = append(d.Shards, s)
	}
	m := (&Service{}).newMap(d)
	for slot := range d.Slots {
		m.index.put(Placement{Map: m.ID, Key: fmt.Sprintf("#%d", slot), Shard: fmt.Sprintf("s%d", slot%n), Epoch: 1, State: Ready}, false)
	}
	return m
}

func TestAllHostsAreLookedAt(t *testing.T) {
	t.Parallel()
	m := manyShards(20)
	p := &simulated{deny: func(a string) bool { return a == "m-7.example:5432" }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { newPoller([]*Map{m}, p, nil).run(ctx); close(done) }()
	settled := func() bool {
		a, err := m.Resolve(t.Context(), transfers.ShardQuestion{Key: "x", Mode: transfers.ShardReplica, DC: "b"})
		if err != nil || a.Hosts[0].DC != "b" || a.Stale {
			return false
		}
		for id, s := range m.shards {
			v := s.view.Load()
			if v == nil || (v.master == 0) != (id != "s7") || slices.ContainsFunc(v.hosts[1:], func(h host) bool { return !h.alive }) {
				return false
			}
		}
		return p.looks.Load() > 200
	}
	patience.Until(t, "all hosts are known", settled)
	cancel()
	<-done
	if p.twice.Load() {
		t.Error("a host was looked at twice at once")
	}
}

// BenchmarkPolling looks at 1,000 shards of three simulated hosts each, as in one second:
// divided by a second, ns/op is the share of a core that it takes.
func BenchmarkPolling(b *testing.B) {
	m := manyShards(1000)
	p := newPoller([]*Map{m}, &simulated{}, nil)
	for b.Loop() {
		const turns = int(pollPeriod / pollTurn)
		for turn := range turns {
			n := len(p.targets)
			p.start(b.Context(), p.targets[turn*n/turns:(turn+1)*n/turns])
			p.work.Wait()
		}
	}
}

// benchKeysMost is how many keys a node of the documented size has.
const benchKeysMost = 2_000_000

// resolving returns a map of so many keys on 1,000 shards whose hosts are known.
func resolving() *Map {
	m := manyShards(1000)
	fresh(m)
	m.layout.strategy, m.layout.parts = "directory", 2
	m.index.layout = m.layout
	for i := range benchKeysMost {
		m.index.put(Placement{Map: m.ID, Key: fmt.Sprint(i), Shard: fmt.Sprintf("s%d", i%1000), Epoch: 1, State: Ready}, false)
	}
	return m
}

var benchMap = sync.OnceValue(resolving)

func benchKeys() []string {
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint(rand.IntN(benchKeysMost))
	}
	return keys
}

// BenchmarkLookup finds placements in memory, one after the other.
func BenchmarkLookup(b *testing.B) {
	m, keys := benchMap(), benchKeys()
	for i := 0; b.Loop(); i++ {
		if _, ok := m.Cached(keys[i&(len(keys)-1)]); !ok {
			b.Fatal("unknown")
		}
	}
}

// BenchmarkLookupParallel does so on all processors.
func BenchmarkLookupParallel(b *testing.B) {
	m, keys := benchMap(), benchKeys()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(keys)); pb.Next(); i++ {
			if _, ok := m.Cached(keys[i&(len(keys)-1)]); !ok {
				b.Error("unknown")
			}
		}
	})
}

// BenchmarkResolve makes whole answers: the placement, the hosts and the connection string.
func BenchmarkResolve(b *testing.B) {
	m, keys := benchMap(), benchKeys()
	for i := 0; b.Loop(); i++ {
		if _, err := m.Resolve(b.Context(), transfers.ShardQuestion{Key: keys[i&(len(keys)-1)], Mode: transfers.ShardMaster}); err != nil {
			b.Fatal(err)
		}
	}
}
