package language

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
)

// Section is the section clusters of files.
func Section() tree.Section {
	return tree.Section{
		Of: sectionSpec(), Rules: readRules,
		Check: func(value any, c *tree.Checking) {
			for _, declared := range value.([]*Cluster) {
				Check(declared, c.Files, c.Reporter)
			}
		},
		Each: func(value any, visit func(tree.Declaration)) {
			for _, c := range value.([]*Cluster) {
				x := tree.Declaration{
					Kind: "cluster", ID: c.ID, Span: c.Span, At: c.PlaceOf("id", c.Span),
					Owner: &c.Owner, OwnerAt: c.PlaceOf("owner", c.Span), Secret: c.Secret,
				}
				if c.Map != nil {
					x.File, x.FileAt = c.Map.File, c.Map.PlaceOf("file", c.Map.Span)
				}
				visit(x)
			}
		},
	}
}

// Check checks the parts of a cluster, and whether its partition map can tolerate outages.
func Check(cluster *Cluster, files map[string]*contracts.File, r *diag.Reporter) {
	at := cluster.PlaceOf("id", cluster.Span)
	switch {
	case len(cluster.Workers) > 0 && cluster.Discover != nil:
		r.Errorf(cluster.PlaceOf("discover", at), rules.Cluster, "keep one of them", "cluster %q has both workers and discover", cluster.ID)
		return
	case len(cluster.Workers) == 0 && cluster.Discover == nil:
		r.Errorf(at, rules.Cluster, "list them below workers:, or write discover: {url: …}", "cluster %q has no workers", cluster.ID)
		return
	}
	sound := checkWorkers(cluster, r)
	if d := cluster.Discover; d != nil {
		checkDiscovery(cluster, d, r)
	}
	if cluster.Healthcheck == nil {
		cluster.Healthcheck = &Healthcheck{}
		preset(cluster.Healthcheck)
	}
	for _, f := range []struct{ name, path string }{{"path", cluster.Healthcheck.Path}, {"ping", cluster.Healthcheck.Ping}} {
		if !strings.HasPrefix(f.path, "/") {
			r.Errorf(cluster.Healthcheck.PlaceOf(f.name, at), rules.Cluster, "write it as /healthcheck",
				"%s of the healthcheck of cluster %q does not begin with /: %q", f.name, cluster.ID, f.path)
		}
	}
	if _, err := ParseKeyPlace(cluster.Key); err != nil {
		r.Errorf(cluster.PlaceOf("key", at), rules.Cluster, "write it as header:X-User", "key of cluster %q: %v", cluster.ID, err)
	}
	if cluster.Parameters == nil {
		cluster.Parameters = &PolicyParameters{}
		preset(cluster.Parameters)
	} else if p := cluster.Parameters; p.GiniLow > p.GiniHigh {
		r.Errorf(p.PlaceOf("gini-low", p.Span), rules.Cluster, "make it the lower one",
			"gini-low of cluster %q is %v, above gini-high, %v", cluster.ID, p.GiniLow, p.GiniHigh)
	}
	sound = checkMap(cluster, files, r) && sound
	if sound && cluster.Discover == nil && cluster.Partitions > 0 {
		checkHolders(cluster, at, r)
	}
}

// preset sets a part that the file omits to its defaults. The tags of the tree are the only place of defaults,
// so preset decodes an empty mapping. An error is a bug in the tags, which any test of a cluster finds.
func preset(into any) {
	spec := sectionSpec().Field("clusters").Elem.Spec
	name := "healthcheck"
	if _, ok := into.(*PolicyParameters); ok {
		name = "parameters"
	}
	if err := spec.Field(name).Spec.Decode(map[string]any{}, into); err != nil {
		panic("cluster: " + err.Error())
	}
}

// checkWorkers checks ids and addresses. It returns false if the map cannot be checked.
func checkWorkers(cluster *Cluster, r *diag.Reporter) bool {
	sound := true
	first := map[string]*ClusterWorker{} // by id
	for _, w := range cluster.Workers {
		if w.ID == "" || w.URL == "" {
			sound = false
			continue
		}
		at := w.PlaceOf("id", w.Span)
		if twin := first[w.ID]; twin != nil {
			r.Report(diag.Diagnostic{
				Span: at, Code: rules.Duplicate, Message: fmt.Sprintf("worker %q of cluster %q is declared twice", w.ID, cluster.ID),
				Hint:    "rename one of them",
				Related: []diag.Related{{Span: twin.PlaceOf("id", twin.Span), Message: "declared here first"}},
			})
			sound = false
		}
		first[w.ID] = w
		if _, err := urls.ParseBase(w.URL); err != nil {
			r.Errorf(w.PlaceOf("url", w.Span), rules.Cluster, "want such as http://127.0.0.1:9101", "url of worker %q %v", w.ID, err)
		}
	}
	return sound
}

// checkDiscovery checks the addresses that list workers, and the networks in which workers may be.
func checkDiscovery(cluster *Cluster, d *Discovery, r *diag.Reporter) {
	if _, err := urls.ParsePublic(d.URL); d.URL != "" && err != nil {
		r.Errorf(d.PlaceOf("url", d.Span), rules.Cluster, "want such as http://127.0.0.1:9100/workers", "url of discover of cluster %q %v",
			cluster.ID, err)
	}
	for i, network := range d.Networks {
		if _, err := netip.ParsePrefix(network); err != nil {
			r.Errorf(d.PlaceOf(fmt.Sprintf("networks[%d]", i), d.Span), rules.Cluster, "want such as 10.0.0.0/8",
				"%q is no range of addresses", network)
		}
	}
}

// checkMap checks the map. It returns false if the loads cannot be checked.
func checkMap(cluster *Cluster, files map[string]*contracts.File, r *diag.Reporter) bool {
	m := cluster.Map
	if m == nil {
		return true
	}
	if m.File == "" && m.Workers == nil {
		if m.Rule == "all" && m.Replicas > 0 {
			r.Errorf(m.PlaceOf("replicas", m.Span), rules.Cluster, "drop it", "with rule: all, every worker may hold every partition")
			return false
		}
		return true
	}
	for _, name := range []string{"rule", "replicas", "seed", "file"} {
		if span := m.PlaceOf(name, diag.Span{}); span != (diag.Span{}) && (name != "file" || m.Workers != nil) {
			r.Errorf(span, rules.Cluster, "keep one of them", "the map of cluster %q lists its workers, so it takes no %s",
				cluster.ID, name)
			return false
		}
	}
	held := m.Workers
	if m.File != "" {
		held = mapFile(m, files, r)
		if held == nil {
			return false
		}
	}
	cluster.Held = held
	return checkHeld(cluster, r)
}

// mapFile reads the file of a map. It returns nil after it has reported an error.
func mapFile(m *PartitionMap, files map[string]*contracts.File, r *diag.Reporter) *expr.Value {
	at := m.PlaceOf("file", m.Span)
	from := files[m.Span.File]
	if from == nil {
		return nil
	}
	name, _, ok := from.Target(m.File, true)
	if !ok {
		r.Errorf(at, rules.Cluster, "write a path relative to this file, such as fanout.map.json", "%q is no file that a map may be in", m.File)
		return nil
	}
	f := files[name]
	if !f.Usable() {
		return nil // reported with the file, or where it is named
	}
	if f.Root == nil || f.Root.Kind != expr.ValueMap {
		r.Errorf(at, rules.Cluster, `such as {"worker-1": ["0-99"]}`, "%s is no mapping from workers to partitions", m.File)
		return nil
	}
	return f.Root
}

// checkHeld checks a map that lists partitions per worker. It returns false if the loads cannot be checked.
// Discovered workers are unknown yet, so any name is valid then.
func checkHeld(cluster *Cluster, r *diag.Reporter) bool {
	sound := true
	for i, k := range cluster.Held.Keys() {
		if cluster.Discover == nil && !slices.ContainsFunc(cluster.Workers, func(w *ClusterWorker) bool { return w.ID == k.Name }) {
			r.Errorf(k.Span, rules.MapOfNobody, r.DidYouMean(k.Name, func() []string { return workerIDs(cluster) }),
				"the map has partitions for %q, which is not a worker of cluster %q", k.Name, cluster.ID)
			sound = false
		}
		item := cluster.Held.Items()[i]
		if item.Kind != expr.ValueList {
			r.Errorf(item.Head(), rules.Cluster, `such as [0, 7, "10-19"]`, "worker %q: want a list of partitions, have %s", k.Name,
				item.Describe())
			sound = false
		} else if _, problem := partitionsOf(item, cluster.Partitions); problem != "" {
			r.Errorf(item.Head(), rules.Cluster, "", "worker %q: %s", k.Name, problem)
			sound = false
		}
	}
	return sound
}

// workerIDs returns the ids of the declared workers, for suggestions.
func workerIDs(c *Cluster) []string {
	var ids []string
	for _, w := range c.Workers {
		ids = append(ids, w.ID)
	}
	return ids
}

// Limits beyond which a map gets a warning or is not checked.
const (
	unevenBy  = 1.25 // best possible load, relative to an even one
	fewFailed = 32   // workers; up to here the load is also computed without each worker
)

// checkHolders reports partitions without a possible holder, failures that the map cannot tolerate, and loads
// that no balancer can even out.
func checkHolders(cluster *Cluster, at diag.Span, r *diag.Reporter) {
	if cluster.Map != nil {
		at = cluster.PlaceOf("map", at)
	}
	at = at.Head()
	workers := cluster.Members()
	holders := Holders(cluster, workers)
	if orphans := partitionsWhere(holders, func(up []int) bool { return len(up) > 0 }); len(orphans) > 0 {
		r.Errorf(at, rules.Unheld, "let two workers of different zones hold them",
			"no worker of cluster %q may hold %s", cluster.ID, listPartitions(orphans))
		return
	}
	if len(workers) == 1 {
		return // there is no choice
	}
	none := func(int) bool { return false } // no worker is down
	capacity := Capacities(workers)
	best := BestLoad(holders, capacity, none)
	if best > unevenBy {
		r.Warnf(at, rules.UnevenMap, "add partitions to the workers in few lists, or raise replicas",
			"the map of cluster %q keeps some worker at %.2f times the mean load, however partitions are placed", cluster.ID, best)
	}
	for _, f := range outages(workers) {
		lost := partitionsWhere(holders, func(up []int) bool { return slices.ContainsFunc(up, func(i int) bool { return !f.down(i) }) })
		if len(lost) > 0 {
			r.Warnf(at, rules.FragileMap, "let workers of other zones hold them, too, as rule: zone does",
				"when %s of cluster %q fails, no worker may hold %s", f.what, cluster.ID, listPartitions(lost))
			return // one finding is enough to repair the map
		}
	}
	if len(workers) > fewFailed {
		return // each outage needs a search for the best load, and the check must stay fast
	}
	for _, f := range outages(workers) {
		left := BestLoad(holders, capacity, f.down)
		// Only the effect of the outage counts: an uneven map is already reported.
		if left > unevenBy && left > best*1.1 {
			r.Warnf(at, rules.UnevenMap, "spread what it holds over more workers, or raise replicas",
				"when %s of cluster %q fails, the map keeps some worker at %.2f times the mean load of those left, however partitions are placed",
				f.what, cluster.ID, left)
			return
		}
	}
}

// Capacities returns the capacities of workers, in their order and in the declared unit. An unknown one is the
// mean of the others, or 1 if all are unknown. Only the ratios matter.
func Capacities(workers []ClusterWorker) []float64 {
	sum, known := 0.0, 0.0
	for _, w := range workers {
		if w.Capacity > 0 {
			sum, known = sum+w.Capacity, known+1
		}
	}
	mean := 1.0
	if known > 0 {
		mean = sum / known
	}
	out := make([]float64, len(workers))
	for i, w := range workers {
		out[i] = w.Capacity
		if out[i] <= 0 {
			out[i] = mean
		}
	}
	return out
}

// An outage is a set of workers that may fail together.
type outage struct {
	what string
	down func(worker int) bool
}

// outages returns each worker and each zone, unless there is only one zone. Workers without a zone do not form
// one, since nothing says that they fail together.
func outages(workers []ClusterWorker) []outage {
	var out []outage
	var zones []string
	for i, w := range workers {
		out = append(out, outage{"worker " + w.ID, func(j int) bool { return j == i }})
		if !slices.Contains(zones, w.Zone) {
			zones = append(zones, w.Zone)
		}
	}
	if len(zones) < 2 {
		return out
	}
	for _, z := range zones {
		if z != "" {
			out = append(out, outage{"zone " + z, func(j int) bool { return workers[j].Zone == z }})
		}
	}
	return out
}

// partitionsWhere returns the partitions for which saved returns false.
func partitionsWhere(holders [][]int, saved func([]int) bool) []int {
	var out []int
	for p, h := range holders {
		if !saved(h) {
			out = append(out, p)
		}
	}
	return out
}

// listPartitions returns the first few of them as text.
func listPartitions(list []int) string {
	const few = 5
	if len(list) == 1 {
		return fmt.Sprintf("partition %d", list[0])
	}
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(list[:min(few, len(list))]), " ", ", "), "[]")
	if len(list) > few {
		text += fmt.Sprintf(" and %d others", len(list)-few)
	}
	return "partitions " + text
}
