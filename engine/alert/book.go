package alert

import (
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/engine/canary"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
)

// downAfter is how long a service must fail before an alert, so that a restart causes none.
const downAfter = 3 * time.Second

// sickAfter is how long a node may be unhealthy before an alert, because it may be starting or
// rejoining.
const sickAfter = 10 * time.Second

// A book knows the troubles. It does no I/O and reads no clock.
type book struct {
	paths    map[string]*trouble
	services map[string]*outage
	down     map[string]time.Time // since when each critical service has been failing
	frozen   *outage
	sick     outage // this node; since is zero while it is healthy
	behind   outage
	damaged  outage               // of the store
	late     map[string]time.Time // since when the target of a path is missed
	firing   map[string]*Alert    // by id, as last reported
}

func newBook() *book {
	return &book{paths: map[string]*trouble{}, services: map[string]*outage{}, down: map[string]time.Time{}, late: map[string]time.Time{}, firing: map[string]*Alert{}}
}

// heed takes a notice.
func (b *book) heed(n model.Notice, now time.Time) {
	switch {
	case n.Kind == model.NoticeFrozen:
		b.frozen = &outage{since: now, reason: n.Error}
	case n.Kind == model.NoticeThawed:
		b.frozen = nil
	case n.Service != "" && n.Kind == model.NoticeFallbackOff:
		delete(b.services, n.Service)
		b.forgive(n.Handlers)
	case n.Service != "":
		b.services[n.Service] = &outage{since: now, until: n.Until, ratio: n.Ratio, reason: short(n.Error), handlers: n.Handlers, owner: n.Owner}
		b.forgive(n.Handlers)
	case n.Path != "":
		t := b.paths[n.Path]
		if t == nil {
			t = &trouble{path: n.Path}
			b.paths[n.Path] = t
		}
		t.heed(n, now)
	}
}

// forgive forgets failures of handlers before their service was turned off or came back.
func (b *book) forgive(paths []string) {
	for _, path := range paths {
		if t := b.paths[path]; t != nil {
			t.out = nil
			t.forgive()
		}
	}
}

// health sets the state of this node.
func (b *book) health(sick, behind, damaged error, now time.Time) {
	for _, h := range []struct {
		state *outage
		err   error
	}{{&b.sick, sick}, {&b.behind, behind}, {&b.damaged, damaged}} {
		switch {
		case h.err == nil:
			*h.state = outage{}
			continue
		case h.state.since.IsZero():
			h.state.since = now
		}
		h.state.reason = short(h.err.Error())
	}
}

// due lists runs to check, least recently checked first.
func (b *book) due(now time.Time, most int) []string {
	type dueRun struct {
		run     string
		checked time.Time
	}
	var list []dueRun
	for _, t := range b.paths {
		for i := range t.stuck {
			if s := &t.stuck[i]; now.Sub(s.checked) >= checkEvery {
				list = append(list, dueRun{s.run, s.checked})
			}
		}
	}
	slices.SortFunc(list, func(a, b dueRun) int {
		if d := a.checked.Compare(b.checked); d != 0 {
			return d
		}
		return strings.Compare(a.run, b.run)
	})
	var runs []string
	for _, d := range list[:min(most, len(list))] {
		runs = append(runs, d.run)
	}
	return runs
}

// found records whether a run still waits.
func (b *book) found(run string, waits bool, now time.Time) {
	for _, t := range b.paths {
		for i := range t.stuck {
			if t.stuck[i].run != run {
				continue
			}
			t.stuck[i].checked = now
			if !waits {
				t.free(run)
			}
			break
		}
	}
}

// A world answers questions about the current state.
type world interface {
	Handler(path string) (stats.HandlerInfo, bool)
	Handlers() []stats.HandlerInfo
	Services() []guard.ServiceInfo
	Backlog() stats.BacklogView
	Late() []stats.LateRuns
	Canary() *canary.State
}

// sweep ends troubles that are over. It returns all firing alerts, and those that have ended since
// the last sweep, ordered by id.
func (b *book) sweep(node string, w world, now time.Time) []Alert {
	present := map[string]*Alert{}
	put := func(a *Alert) {
		if a != nil {
			present[a.ID()] = a
		}
	}
	for path, t := range b.paths {
		var info *stats.HandlerInfo
		if h, ok := w.Handler(path); ok {
			info = &h
		}
		t.settle(info, now)
		put(t.worst(info))
		if t.clear() {
			delete(b.paths, path)
		}
	}
	for service, o := range b.services {
		put(b.ofService(service, o, w, now))
	}
	services := w.Services()
	for _, a := range b.downServices(services, now) {
		put(a)
	}
	for _, s := range services {
		if c := s.Certificate; c != nil && c.EndsSoon(now) {
			put(&Alert{Kind: CertificateEnds, Service: s.ID, Owner: s.Owner, Since: c.RenewBy, Until: c.Until, Error: c.Text()})
		}
	}
	for _, p := range w.Backlog().Parked {
		if p.Reason == stats.ParkedLoop {
			h, _ := w.Handler(p.For)
			put(&Alert{Kind: PipelineMultiplies, Path: p.For, Owner: h.Owner, Critical: h.Critical, Since: p.Since, Runs: p.Runs})
		}
	}
	for _, a := range b.lateRuns(w.Late(), now) {
		put(a)
	}
	if o := b.frozen; o != nil && now.Sub(o.since) > outageGrace && !slices.ContainsFunc(w.Handlers(), isFrozen) {
		b.frozen = nil // another node has seen it end
	}
	if o := b.frozen; o != nil {
		put(&Alert{Kind: FallbacksFrozen, Since: o.since, Error: o.reason})
	}
	if t := w.Canary(); t.RolledBackLately(now) {
		put(&Alert{Kind: CanaryRolledBack, Since: t.Ended, Error: t.Why})
	}
	if o := b.sick; !o.since.IsZero() && now.Sub(o.since) >= sickAfter {
		put(&Alert{Kind: NodeUnhealthy, Node: node, Since: o.since, Error: o.reason})
	}
	if o := b.behind; !o.since.IsZero() && now.Sub(o.since) >= sickAfter {
		put(&Alert{Kind: DefinitionOutdated, Node: node, Since: o.since, Error: o.reason})
	}
	if o := b.damaged; !o.since.IsZero() {
		put(&Alert{Kind: StoreDamaged, Node: node, Since: o.since, Error: o.reason})
	}
	return b.turn(present, now)
}

// downServices returns the alerts of critical services. They are sent before a run fails, because
// protection makes runs wait for as long as it takes.
func (b *book) downServices(services []guard.ServiceInfo, now time.Time) (out []*Alert) {
	seen := map[string]bool{}
	for _, s := range services {
		if !s.Critical || s.FailingSince == nil {
			continue
		}
		seen[s.ID] = true
		if b.down[s.ID].IsZero() {
			b.down[s.ID] = now
		}
		if now.Sub(b.down[s.ID]) < downAfter {
			continue
		}
		out = append(out, &Alert{
			Kind: ServiceDown, Service: s.ID, Owner: s.Owner, Critical: true, Since: *s.FailingSince, Ratio: s.SuccessRatio,
			Error: short(s.LastError), Runs: s.Parked + s.Waiting,
		})
	}
	maps.DeleteFunc(b.down, func(service string, _ time.Time) bool { return !seen[service] })
	return out
}

// lateRuns returns the alerts of missed targets. The windows of durations keep them from coming and going.
func (b *book) lateRuns(late []stats.LateRuns, now time.Time) (out []*Alert) {
	seen := map[string]bool{}
	for _, l := range late {
		seen[l.Path] = true
		if b.late[l.Path].IsZero() {
			b.late[l.Path] = now
		}
		a := &Alert{Kind: RunsLate, Path: l.Path, Owner: l.Owner, Since: b.late[l.Path], Runs: int(l.Ten.Late), Error: l.Text()}
		if l.Handler != "" {
			a.Handlers = []string{l.Handler}
		}
		out = append(out, a)
	}
	maps.DeleteFunc(b.late, func(path string, _ time.Time) bool { return !seen[path] })
	return out
}

func isFrozen(h stats.HandlerInfo) bool {
	return h.Fallback != nil && h.Fallback.State == fallback.Frozen
}

// ofService returns the alert of a service that is off, or nil if another node has seen it come
// back.
func (b *book) ofService(service string, o *outage, w world, now time.Time) *Alert {
	out := now.Sub(o.since) <= outageGrace
	a := &Alert{
		Kind: ServiceDegraded, Service: service, Owner: o.owner, Since: o.since, Until: o.until, Ratio: &o.ratio, Error: o.reason,
		Handlers: o.handlers,
	}
	for _, path := range o.handlers {
		h, ok := w.Handler(path)
		out = out || ok && h.Fallback.IsOut() && h.Fallback.Service == service
		if h.LastError != "" {
			a.Error = short(h.LastError)
		}
	}
	if !out {
		delete(b.services, service)
		b.forgive(o.handlers)
		return nil
	}
	return a
}

// turn sets the firing alerts.
func (b *book) turn(present map[string]*Alert, now time.Time) []Alert {
	var out []Alert
	for id, a := range b.firing {
		if present[id] == nil {
			a.Ended = now
			present[id] = a
			delete(b.firing, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(present)) {
		if a := present[id]; a.Ended.IsZero() {
			b.firing[id] = a
		}
		out = append(out, *present[id])
	}
	return out
}
