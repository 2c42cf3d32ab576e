package fallback

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/tree"
)

// serviceFallback is the rule for judging a service whose handlers have different rules.
func serviceFallback() *tree.Fallback {
	return &tree.Fallback{MinSuccessRatio: 0.5, Window: 30 * time.Second, MinCalls: 10}
}

// takeOutService turns off the handlers of a failing service together, as one outage with one
// alert. Those whose calls still succeed stay on until they fail too.
func (d *decision) takeOutService(service string, failing map[string]string) {
	if o := d.named(service); o != nil {
		if o.Phase == Out {
			d.join(o, failing)
		}
		return
	}
	why, down := d.serviceDown(service, failing)
	if !down {
		return
	}
	o := &Outage{Name: service, Service: true, Since: d.now, Trips: d.trips(service)}
	if good, bad, _ := counted(d.pooled(service, ""), serviceFallback(), d.now); good+bad > 0 {
		o.Ratio = ratioOf(good, good+bad)
	}
	d.Outages = slices.DeleteFunc(d.Outages, func(single *Outage) bool {
		if single.Service || d.byPath[single.Name].Service != service {
			return false
		}
		o.Members = append(o.Members, single.Members...)
		o.Trips = max(o.Trips, single.Trips)
		return true
	})
	d.Outages = append(d.Outages, o)
	if d.join(o, failing); len(o.Members) > 0 {
		d.send(o, Out, why)
	} else {
		d.Outages = d.Outages[:len(d.Outages)-1]
	}
}

// join adds handlers to the outage of their service. Those that fail by their own rules come first,
// because only a share of a pipeline's handlers may be off.
func (d *decision) join(o *Outage, failing map[string]string) {
	for _, own := range []bool{true, false} {
		for _, w := range d.byService[o.Name] {
			why, fails := failing[w.Path]
			switch {
			case fails != own || w.Fallback == nil || d.outage(w.Path) != nil || well(d.counts[w.Path], d.now):
			case slices.Contains(o.Spared, w.Path) && !fails:
			case d.mayGo(*w):
				o.Members = append(o.Members, w.Path)
				delete(d.counts, w.Path)
				delete(d.Capped, w.Path)
			case fails:
				d.cap(w.Path, why)
			}
		}
	}
	slices.Sort(o.Members)
}

// serviceDown reports whether a service fails as a whole: two of its handlers trip at nearly the
// same time, or its calls fail even without its worst handler.
func (d *decision) serviceDown(service string, failing map[string]string) (string, bool) {
	trips := 0
	var why string
	var worst *Watched
	most := 0
	for _, w := range d.byService[service] {
		if reason, ok := failing[w.Path]; ok {
			trips++
			why = reason
		}
		if o := d.outage(w.Path); o != nil && !o.Service && d.now.Sub(o.Since) <= together {
			trips++
		}
		if _, bad := total(d.counts[w.Path], 0); bad > most {
			worst, most = w, bad
		}
	}
	if trips >= 2 && why != "" {
		return "two of its handlers fail at once: " + why, true
	}
	if worst == nil {
		return "", false
	}
	if _, down := judge(d.pooled(service, worst.Path), serviceFallback(), d.now); !down {
		return "", false
	}
	return judge(d.pooled(service, ""), serviceFallback(), d.now)
}

// anyServiceDown reports whether any service fails as a whole.
func (d *decision) anyServiceDown() bool {
	for service := range d.byService {
		if _, down := d.serviceDown(service, nil); down {
			return true
		}
	}
	return false
}

// halfFails reports whether at least two services, and at least half of those called, have begun to
// fail, and names them.
func (d *decision) halfFails() (why string, half bool) {
	const fresh = time.Minute // older outages say nothing about now
	called := 0
	var failing []string
	for _, service := range slices.Sorted(maps.Keys(d.byService)) {
		if o := d.named(service); o != nil {
			if d.now.Sub(o.Since) <= fresh {
				called, failing = called+1, append(failing, service)
			}
			continue
		}
		counts := d.pooled(service, "")
		from := d.now.Add(-serviceFallback().Window).Unix()
		good, bad := total(counts, from)
		if good+bad == 0 {
			continue
		}
		called++
		if n, _ := streak(counts, 0); n >= 2 || good+bad >= 10 && upperBound(good, good+bad) < 0.5 {
			failing = append(failing, service)
		}
	}
	names := strings.Join(failing[:min(len(failing), namedFailing)], ", ")
	if more := len(failing) - namedFailing; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d of %d services fail at once (%s), so the cause may be on our side", len(failing), called, names),
		len(failing) >= 2 && 2*len(failing) >= called
}

// namedFailing is how many failing services are named.
const namedFailing = 3

// pooled sums the counts of a service's handlers, except one, since its last outage.
func (d *decision) pooled(service, without string) []Count {
	var sum []Count
	since := d.Past[service].Back.Unix()
	for _, w := range d.byService[service] {
		if w.Path == without {
			continue
		}
		for _, c := range d.counts[w.Path] {
			if c.Second >= since {
				sum = addCount(sum, c)
			}
		}
	}
	return sum
}
