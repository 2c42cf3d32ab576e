package cluster

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// Check checks what belongs to a cluster, and what its partition map can bear.
func Check(cluster *tree.Cluster, files map[string]*contracts.File, r *diag.Reporter) {
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
		cluster.Healthcheck = &tree.Healthcheck{}
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
		cluster.Parameters = &tree.PolicyParameters{}
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

// preset fills a part that is left out with its defaults. The defaults stand in the tags of
// the tree alone, so an empty part is decoded as if the author had written it. An error
// is a bug of those tags, which any test of a cluster meets.
func preset(into any) {
	spec := tree.Language().Field("clusters").Elem.Spec
	name := "healthcheck"
	if _, ok := into.(*tree.PolicyParameters); ok {
		name = "parameters"
	}
	if err := spec.Field(name).Spec.Decode(map[string]any{}, into); err != nil {
		panic("cluster: " + err.Error())
	}
}

// checkWorkers checks ids and addresses; false when the map cannot be judged.
func checkWorkers(cluster *tree.Cluster, r *diag.Reporter) bool {
	sound := true
	first := map[string]*tree.ClusterWorker{} // by id
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
		if problem := addressProblem(w.URL); problem != "" {
			r.Errorf(w.PlaceOf("url", w.Span), rules.Cluster, "want such as http://127.0.0.1:9101", "url of worker %q %s: %q", w.ID, problem,
				w.URL)
		}
	}
	return sound
}

// addressProblem says why a URL cannot be the beginning of others; empty when it can. Paths
// are appended to it, so it has neither a query nor a fragment, and it is shown to
// operators, so it holds no password.
func addressProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "is not an absolute http or https URL"
	case u.User != nil:
		return "holds a password"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "has a query or a fragment"
	}
	return ""
}

// checkDiscovery checks where workers are asked for, and from which networks they may be.
func checkDiscovery(cluster *tree.Cluster, d *tree.Discovery, r *diag.Reporter) {
	u, err := url.Parse(d.URL)
	if d.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil) {
		r.Errorf(d.PlaceOf("url", d.Span), rules.Cluster, "want such as http://127.0.0.1:9100/workers",
			"discover of cluster %q has no absolute http or https URL without a password: %q", cluster.ID, d.URL)
	}
	for i, network := range d.Networks {
		if _, err := netip.ParsePrefix(network); err != nil {
			r.Errorf(d.PlaceOf(fmt.Sprintf("networks[%d]", i), d.Span), rules.Cluster, "want such as 10.0.0.0/8",
				"%q is no range of addresses", network)
		}
	}
}

// checkMap checks what the map says; false when it cannot be judged.
func checkMap(cluster *tree.Cluster, files map[string]*contracts.File, r *diag.Reporter) bool {
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
		if held = mapFile(m, files, r); held == nil {
			return false
		}
	}
	cluster.Held = held
	return checkHeld(cluster, r)
}

// mapFile reads the file of a map; nil after something was reported.
func mapFile(m *tree.PartitionMap, files map[string]*contracts.File, r *diag.Reporter) *expr.Value {
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
		return nil // reported with the file, or with who named it
	}
	if f.Root == nil || f.Root.Kind != expr.ValueMap {
		r.Errorf(at, rules.Cluster, `such as {"worker-1": ["0-99"]}`, "%s is no mapping from workers to partitions", m.File)
		return nil
	}
	return f.Root
}

// checkHeld checks a map that is given worker by worker; false when the loads of it cannot
// be judged. Workers that are discovered are not known yet, so any name is taken then.
func checkHeld(cluster *tree.Cluster, r *diag.Reporter) bool {
	sound := true
	for i, k := range cluster.Held.Keys() {
		if cluster.Discover == nil && !slices.ContainsFunc(cluster.Workers, func(w *tree.ClusterWorker) bool { return w.ID == k.Name }) {
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

// workerIDs lists the ids of the declared workers, for suggestions.
func workerIDs(c *tree.Cluster) []string {
	var ids []string
	for _, w := range c.Workers {
		ids = append(ids, w.ID)
	}
	return ids
}

// The bounds of what a map may be like before somebody is told.
const (
	unevenBy  = 1.25 // the best load, relative to an even one
	fewFailed = 32   // workers, up to which the load without each of them is computed
)

// checkHolders finds partitions that nobody may hold, failures that the map does not
// bear, and loads that no balancer can even out.
func checkHolders(cluster *tree.Cluster, at diag.Span, r *diag.Reporter) {
	if cluster.Map != nil {
		at = cluster.PlaceOf("map", at)
	}
	at = at.Head()
	workers := cluster.Members()
	holders := Holders(cluster, workers)
	if orphans := partitionsWhere(holders, func(up []int) bool { return len(up) > 0 }); len(orphans) > 0 {
		r.Errorf(at, rules.Unheld, "let two workers of different zones hold them", "no worker of cluster %q may hold %s", cluster.ID, listPartitions(orphans))
		return
	}
	if len(workers) == 1 {
		return // there is nothing to choose
	}
	none := func(int) bool { return false } // is down
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
			return // one is enough to mend the map
		}
	}
	if len(workers) > fewFailed {
		return // each outage costs a search for the best load, and check has to stay quick
	}
	for _, f := range outages(workers) {
		left := BestLoad(holders, capacity, f.down)
		// A map that is uneven anyhow has been told of: only what the outage adds counts.
		if left > unevenBy && left > best*1.1 {
			r.Warnf(at, rules.UnevenMap, "spread what it holds over more workers, or raise replicas",
				"when %s of cluster %q fails, the map keeps some worker at %.2f times the mean load of those left, however partitions are placed",
				f.what, cluster.ID, left)
			return
		}
	}
}

// Capacities returns those of workers, in their order and in the unit of their declaration. One
// that is unknown is the mean of the others, and 1 when all are: only the proportions count.
func Capacities(workers []tree.ClusterWorker) []float64 {
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
		if out[i] = w.Capacity; out[i] <= 0 {
			out[i] = mean
		}
	}
	return out
}

// An outage is what may fail at once.
type outage struct {
	what string
	down func(worker int) bool
}

// outages lists single ones: each worker, and each zone unless it is the only one. Workers
// without a zone are no zone together: nothing says that they fail at once.
func outages(workers []tree.ClusterWorker) []outage {
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

// partitionsWhere lists the partitions that none of their holders saves.
func partitionsWhere(holders [][]int, saved func([]int) bool) []int {
	var out []int
	for p, h := range holders {
		if !saved(h) {
			out = append(out, p)
		}
	}
	return out
}

// listPartitions names a few of them.
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
