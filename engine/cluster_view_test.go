package engine

import (
	"slices"
	"strings"
	"testing"

	"procaas/dsl"
)

// Who is told why a partition is where it is hears what its worker does, and which of the
// others would not get it.
func TestExplainTellsWhomLeversHold(t *testing.T) {
	t.Parallel()
	yaml := "clusters:\n  - id: c\n    partitions: 2\n    map: {replicas: 3}\n    workers:\n" +
		"      - {id: w1, url: 'http://127.0.0.1:1'}\n      - {id: w2, url: 'http://127.0.0.1:2'}\n      - {id: w3, url: 'http://127.0.0.1:3'}\n"
	b, found := dsl.Load([]dsl.File{{Name: "c.yaml", Data: []byte(yaml)}}, dsl.Options{})
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
			Cluster: b.Clusters[0], State: ClusterState{Workers: []Seen{c.own, {ID: "w2", Up: true, Banned: true}, {ID: "w3", Up: true, Draining: true}}},
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
			if h.Banned != (h.Worker == "w2" || h.Worker == "w1" && c.own.Banned) || h.Draining != (h.Worker == "w3" || h.Worker == "w1" && c.own.Draining) {
				t.Errorf("have %+v, want w2 banned and w3 draining", h)
			}
		}
	}
}
