package addon

import (
	"fmt"

	"procaas/dsl/tree"
	"procaas/engine/diff"
	"procaas/handlers/balancer/language"
)

// These are the kinds of things of clusters.
const (
	clusterKind = "cluster"
	workerKind  = "worker"
)

// compareClusters compares clusters. It warns of changes that give keys to other workers.
func compareClusters(c *diff.Comparison, a, b *tree.Bundle) {
	diff.List(c, clusterKind, language.ClustersOf(a), language.ClustersOf(b), diff.Edits[*language.Cluster]{
		Name:    func(v *language.Cluster) string { return v.ID },
		Removed: "nobody is told any more which worker serves its keys",
		Both:    func(a, b *language.Cluster) { compareCluster(c, a, b) },
	})
}

func compareCluster(c *diff.Comparison, a, b *language.Cluster) {
	fields := diff.Fields(a, b, "workers")
	if b.Map != nil && b.Map.File != "" {
		fields = append(fields, diff.Values("map.file", a.Held, b.Held)...)
	}
	c.Warned(clusterKind, b.ID, fields, func(f diff.FieldChange) string {
		if f.Field != "partitions" {
			return ""
		}
		few, many := min(a.Partitions, b.Partitions), max(a.Partitions, b.Partitions)
		return fmt.Sprintf("about %.0f %% of the keys fall into other partitions, and so to other workers; declare a new cluster",
			100*float64(many-few)/float64(many))
	})
	name := func(w *language.ClusterWorker) string { return b.ID + "/" + w.ID }
	diff.List(c, workerKind, a.Workers, b.Workers, diff.Edits[*language.ClusterWorker]{
		Name: name,
		Both: func(old, now *language.ClusterWorker) { c.Changed(workerKind, name(now), diff.Fields(old, now)) },
	})
}
