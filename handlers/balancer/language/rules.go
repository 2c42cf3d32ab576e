package language

import (
	"procaas/dsl/rules"
)

// clusterRules documents the rules about clusters and their partition maps.
func clusterRules() []rules.Rule {
	cluster := func(fields string) string {
		return "clusters:\n  - id: fanout\n    partitions: 12\n" + rules.Indented(4, fields)
	}
	workers := func(zones ...string) string {
		text := "workers:\n"
		for i, z := range zones {
			text += "  - {id: w" + string(rune('1'+i)) + ", url: http://127.0.0.1:910" + string(rune('1'+i)) + ", zone: " + z + "}\n"
		}
		return text
	}
	return []rules.Rule{{
		Code:  rules.Cluster,
		Title: "cluster that cannot work",
		Why: "A cluster has workers in a list or finds them by a request. It has a map by a rule or in a file. With both, or " +
			"with none, nobody knows which worker may serve a partition.",
		Before: cluster("owner: team-chats\n"),
		After:  cluster(workers("a", "b", "c")),
	}, {
		Code:   rules.Unheld,
		Title:  "partition that nobody may hold",
		Why:    "The map has no worker for this partition, so requests for it can never be served.",
		Before: cluster(workers("a", "b", "c") + "map:\n  workers: {w1: [\"0-5\"], w2: [\"5-10\"], w3: [\"0-10\"]}\n"),
		After:  cluster(workers("a", "b", "c") + "map:\n  workers: {w1: [\"0-8\"], w2: [\"4-11\"], w3: [\"0-3\", \"9-11\"]}\n"),
	}, {
		Code:  rules.FragileMap,
		Title: "map that one failure breaks",
		Why: "When all workers that may hold a partition fail together, the balancer can put it nowhere. Workers of " +
			"different zones rarely do.",
		Before: cluster(workers("a", "a", "b") + "map: {rule: random, replicas: 1}\n"),
		After:  cluster(workers("a", "a", "b") + "map: {rule: zone, replicas: 2}\n"),
	}, {
		Code:  rules.UnevenMap,
		Title: "map that keeps the load uneven",
		Why: "The map bounds the work of the balancer. No placement of the partitions can have less load on the busiest " +
			"worker than the message says.",
		Before: cluster(workers("a", "b", "c") + "map:\n  workers: {w1: [\"0-11\"], w2: [\"0-11\"], w3: [0]}\n"),
		After:  cluster(workers("a", "b", "c") + "map:\n  workers: {w1: [\"0-11\"], w2: [\"0-11\"], w3: [\"0-5\"]}\n"),
	}, {
		Code:   rules.MapOfNobody,
		Title:  "map of a worker that does not exist",
		Why:    "The partitions of a mistyped worker would have fewer workers than the map seems to say.",
		Before: cluster(workers("a", "b", "c") + "map:\n  workers: {w1: [\"0-8\"], w2: [\"4-11\"], w4: [\"0-3\", \"9-11\"]}\n"),
		After:  cluster(workers("a", "b", "c") + "map:\n  workers: {w1: [\"0-8\"], w2: [\"4-11\"], w3: [\"0-3\", \"9-11\"]}\n"),
	}}
}
