package console_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/credentials"
	"procaas/engine/enginetest/pages"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/console"
	"procaas/handlers/balancer/language"
)

type fanout struct{ ids []string }

func (f fanout) Bundle() *tree.Bundle {
	b := &tree.Bundle{}
	var all []*language.Cluster
	for _, id := range f.ids {
		all = append(all, &language.Cluster{ID: id})
	}
	b.KeepField("clusters", all)
	return b
}

func (fanout) ClusterStatus(_ context.Context, id string) (clusters.ClusterStatus, error) {
	return clusters.ClusterStatus{
		Cluster: &language.Cluster{ID: id}, Assignment: clusters.Assignment{Version: 9},
		Levers: clusters.Levers{
			Frozen: &clusters.Lever{By: "ann", Reason: "<b>"},
			Pins:   map[int]clusters.Lever{3: {Worker: "w-1", By: "ann"}},
		},
		State: clusters.ClusterState{
			Time: time.Now(), Gini: 0.25, Alerts: []string{"worker w-2 is down"},
			Workers: []clusters.Seen{{ID: "w-1", Up: true, Weight: 30}, {ID: "w-2", Problem: "<b>", Weight: 10}},
		},
	}, nil
}

func (fanout) ClusterMoves(context.Context, string) ([]clusters.MoveLog, error) {
	return []clusters.MoveLog{{Partition: 5, To: "w-1", Reason: "first"}, {Partition: 6, From: "w-1", To: "w-2", Reason: "last"}}, nil
}

func TestClustersHaveTheirPage(t *testing.T) {
	t.Parallel()
	added := console.Pages(fanout{[]string{"fanout"}})
	o := pages.Options(credentials.Grant{}, added...)
	pages.Open(t, o, "/console/clusters", http.StatusOK, `aria-current="page">Clusters`, "fanout", "nothing moves", "partition 3 stays on w-1",
		"worker w-2 is down", `width="100"`, `width="33.3`, "last")
	pages.Open(t, pages.Options(credentials.Grant{}, console.Pages(fanout{})...), "/console/clusters", http.StatusOK, "There are no clusters")

	// The chart has what was sampled while the console ran.
	pages.Open(t, o, "/console/data?cluster=fanout", http.StatusOK, "[null,null,null,null]")
	added[0].Chart.Sample(t.Context())
	pages.Open(t, o, "/console/data?cluster=fanout", http.StatusOK, ",[0.25],[0],[0]]")
}
