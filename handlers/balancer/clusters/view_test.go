package clusters

import (
	"slices"
	"strings"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/handlers/balancer/language"
)

// The explanation of a partition's place says what its worker does, and which of the
// others would not get it.
func TestExplainTellsWhomLeversHold(t *testing.T) {
	t.Parallel()
	yaml := "clusters:\n  - id: c\n    partitions: 2\n    map: {replicas: 3}\n    workers:\n" +
		"      - {id: w1, url: 'http://127.0.0.1:1'}\n      - {id: w2, url: 'http://127.0.0.1:2'}\n      - {id: w3, url: 'http://127.0.0.1:3'}\n"
	b, found := dsl.Load([]diag.File{{Name: "c.yaml", Data: []byte(yaml)}}, dsl.Options{Language: tree.NewLanguage(language.Section())})
	if b == nil {
		t.Fatal(found)
	}
	for _, c := range []struct {
		own  Seen
		want string
	}{
		{Seen{ID: "w1", Up: true}, ""},
		{Seen{ID: "w1", Problem: "connection refused"}, "w1 does not answer: connection refused"},
		{Seen{ID: "w1", Up: true, Banned: true}, "w1 is banned"},
		{Seen{ID: "w1", Up: true, Draining: true}, "w1 is emptied"},
	} {
		s := ClusterStatus{
			Cluster: language.ClustersOf(b)[0], State: ClusterState{Workers: []Seen{
				c.own,
				{ID: "w2", Up: true, Banned: true},
				{ID: "w3", Up: true, Draining: true},
			}},
			Assignment: Assignment{Version: 1, Workers: []AssignedWorker{{ID: "w1"}}, Owners: []int{0, 0}, Since: []int64{1, 1}},
		}
		v := s.explain(0, nil)
		own := slices.DeleteFunc(slices.Clone(v.Notes), func(n string) bool { return !strings.HasPrefix(n, "w1 ") })
		if len(own) > 1 || !strings.HasPrefix(strings.Join(own, ""), c.want) || (c.want == "") != (len(own) == 0) {
			t.Errorf("%+v: want the note %q, have %q", c.own, c.want, v.Notes)
		}
		if stuck := slices.ContainsFunc(v.Notes, func(n string) bool { return strings.HasPrefix(n, "it can go nowhere else") }); stuck {
			t.Errorf("%+v: w3 is up and may hold it, have %q", c.own, v.Notes)
		}
		for _, h := range v.Holders {
			if h.Banned != (h.Worker == "w2" || h.Worker == "w1" && c.own.Banned) || h.Draining != (h.Worker == "w3" || h.Worker == "w1" &&
				c.own.Draining) {
				t.Errorf("have %+v, want w2 banned and w3 draining", h)
			}
		}
	}
}

// A pin that a ban or a drain contradicts is reported, whichever was pulled first.
func TestLeversThatContradictEachOtherAreTold(t *testing.T) {
	t.Parallel()
	yaml := "clusters:\n  - id: c\n    partitions: 4\n    workers:\n" +
		"      - {id: w1, url: 'http://127.0.0.1:1', zone: a}\n      - {id: w2, url: 'http://127.0.0.1:2', zone: b}\n      - {id: " +
		"w3, url: 'http://127.0.0.1:3'}\n"
	b, found := dsl.Load([]diag.File{{Name: "c.yaml", Data: []byte(yaml)}}, dsl.Options{Language: tree.NewLanguage(language.Section())})
	if b == nil {
		t.Fatal(found)
	}
	pins := map[int]Lever{3: {Worker: "w3"}, 0: {Worker: "w1"}}
	held := func(id string) map[string]Lever { return map[string]Lever{id: {By: "ann"}} }
	banned := "partition 0 is pinned to w1, which is banned"
	for _, c := range []struct {
		name   string
		levers Levers
		wants  []string
	}{
		{"pins alone", Levers{Pins: pins}, nil},
		{"others", Levers{Pins: pins, Banned: held("w2"), Draining: held("w2"), Zones: held("b")}, nil},
		{"a ban", Levers{Pins: pins, Banned: held("w1")}, []string{banned}},
		{"a ban and a drain", Levers{Pins: pins, Banned: held("w1"), Draining: held("w1")}, []string{banned}},
		{"two drains", Levers{Pins: pins, Zones: held("a"), Draining: held("w3")}, []string{
			"partition 0 is pinned to w1, which is drained", "partition 3 is pinned to w3, which is drained",
		}},
	} {
		s := ClusterStatus{Cluster: language.ClustersOf(b)[0], Levers: c.levers}
		have := s.View().Levers.Warnings
		if !slices.EqualFunc(have, c.wants, strings.HasPrefix) {
			t.Errorf("%s: want %q, have %q", c.name, c.wants, have)
		}
		told := slices.ContainsFunc(s.explain(0, nil).Notes,
			func(n string) bool { return strings.HasPrefix(n, "partition 0 is pinned to w1, which") })
		if told != (len(c.wants) > 0) {
			t.Errorf("%s: want the partition's notes to say so, too: %t", c.name, told)
		}
	}
}
