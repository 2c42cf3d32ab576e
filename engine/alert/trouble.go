package alert

import (
	"slices"
	"time"
	"unicode/utf8"

	"procaas/engine/model"
	"procaas/engine/stats"
)

// These define when a trouble begins and ends.
const (
	failuresNeeded = 3                // of a non-critical handler …
	failuresWithin = time.Hour        // … in this time …
	failuresRatio  = 0.9              // … at a lower success ratio: then it keeps failing
	quietAfter     = 5 * time.Minute  // without failures, if there was a success since
	staleAfter     = time.Hour        // without failures, if there was no success
	outageGrace    = 15 * time.Second // until this node knows the outage from a notice
	checkEvery     = 5 * time.Second  // interval for checking whether a run still waits
	maxStuck       = 1000             // runs of a path to remember
	maxKeys        = 10               // to list in an alert
	maxError       = 500              // bytes
)

// A lapse is a repeated failure.
type lapse struct {
	since time.Time // zero: it does not occur
	last  time.Time
	count int
	run   string
	err   string
}

func (l *lapse) happened(n model.Notice, now time.Time) {
	if l.since.IsZero() {
		l.since, l.count = now, 0
	}
	l.last, l.run, l.err = now, n.Run, short(n.Error)
	l.count++
}

// over reports whether it has stopped. The handler is nil for other paths.
func (l *lapse) over(h *stats.HandlerInfo, now time.Time) bool {
	switch idle := now.Sub(l.last); {
	case idle >= staleAfter:
		return true
	case idle < quietAfter:
		return false
	}
	return h == nil || h.LastSuccess != nil && h.LastSuccess.After(l.last)
}

// An outage is the time that fallback has turned a handler or a service off.
type outage struct {
	since, until time.Time
	ratio        float64
	reason       string
	handlers     []string // of a service
	owner        string
}

// A stuckRun is one that waits for an operator.
type stuckRun struct {
	run     string
	key     string // flow/key that it blocks; empty for none
	parked  bool   // it has not failed
	since   time.Time
	checked time.Time
	err     string
}

// A trouble is everything that is wrong at one path.
type trouble struct {
	path     string
	owner    string
	critical bool

	failed  lapse // failed runs
	givenUp lapse // a non-critical handler has given up
	untaken lapse // events were kept for nothing
	recent  [failuresNeeded]time.Time
	keeps   time.Time // since when it keeps failing; zero: it does not
	out     *outage
	stuck   []stuckRun
}

// heed takes a notice.
func (t *trouble) heed(n model.Notice, now time.Time) {
	t.owner, t.critical = n.Owner, t.critical || n.Critical
	switch n.Kind {
	case model.NoticeGivenUp:
		t.givenUp.happened(n, now)
		t.recent = [failuresNeeded]time.Time(append(t.recent[1:], now))
	case model.NoticeUntaken:
		t.untaken.happened(n, now)
	case model.NoticeRunFailed:
		t.failed.happened(n, now)
		if model.IsUndo(n.Path) {
			t.stand(n, stuckRun{run: n.Run}, now) // it stays until somebody retries or cancels the run
		}
	case model.NoticeRunParked:
		t.stand(n, stuckRun{run: n.Run, parked: true}, now)
	case model.NoticeKeyBlocked:
		t.stand(n, stuckRun{run: n.Run, key: n.Flow + "/" + n.Key}, now)
	case model.NoticeFallbackOn:
		t.out = &outage{since: now, until: n.Until, ratio: n.Ratio, reason: short(n.Error)}
	case model.NoticeFallbackOff:
		t.out = nil
		t.forgive()
	}
}

// stand adds a run that waits for an operator, or whose key is blocked.
func (t *trouble) stand(n model.Notice, s stuckRun, now time.Time) {
	s.since, s.checked, s.err = now, now, short(n.Error)
	if i := slices.IndexFunc(t.stuck, func(o stuckRun) bool { return o.run == s.run }); i >= 0 {
		t.stuck[i].key = max(t.stuck[i].key, s.key)
		return
	}
	if len(t.stuck) == maxStuck {
		t.stuck = t.stuck[1:]
	}
	t.stuck = append(t.stuck, s)
}

// free removes a run that no longer waits. When none is left, earlier failures are over, too.
func (t *trouble) free(run string) {
	t.stuck = slices.DeleteFunc(t.stuck, func(s stuckRun) bool { return s.run == run })
	if len(t.stuck) == 0 {
		t.failed = lapse{}
	}
}

// forgive forgets that the handler gave up.
func (t *trouble) forgive() {
	t.givenUp, t.keeps, t.recent = lapse{}, time.Time{}, [failuresNeeded]time.Time{}
}

// settle ends what is over. The handler is nil for other paths.
func (t *trouble) settle(h *stats.HandlerInfo, now time.Time) {
	if !t.failed.since.IsZero() && len(t.stuck) == 0 && t.failed.over(h, now) {
		t.failed = lapse{}
	}
	if !t.givenUp.since.IsZero() && t.givenUp.over(h, now) {
		t.forgive()
	}
	if !t.untaken.since.IsZero() && now.Sub(t.untaken.last) >= staleAfter {
		t.untaken = lapse{}
	}
	out := h != nil && h.Fallback.IsOut()
	outByItself := out && h.Fallback.Service == ""
	if t.out != nil && now.Sub(t.out.since) > outageGrace && !outByItself {
		t.out = nil // another node has seen it end
		t.forgive()
	}
	often := !t.recent[0].IsZero() && now.Sub(t.recent[0]) <= failuresWithin
	mostly := h == nil || h.SuccessRatio == nil || *h.SuccessRatio < failuresRatio ||
		float64(h.RecentCalls) < failuresRatio*float64(h.RecentCalls+h.LeftOut)
	switch {
	case out:
		t.keeps = time.Time{} // its outage says enough
	case t.keeps.IsZero() && often && mostly:
		t.keeps = now
	}
}

// clear reports whether nothing is left to remember.
func (t *trouble) clear() bool {
	return t.failed.since.IsZero() && t.untaken.since.IsZero() && t.givenUp.since.IsZero() && t.out == nil && len(t.stuck) == 0
}

// worst returns the alert of the gravest trouble, or nil.
func (t *trouble) worst(h *stats.HandlerInfo) *Alert {
	a := &Alert{Path: t.path, Owner: t.owner, Critical: t.critical}
	if h != nil {
		a.Owner, a.Critical, a.Ratio = h.Owner, h.Critical, h.SuccessRatio
	}
	switch keys, first, last := t.blocked(); {
	case len(t.stuck) > 0 && model.IsUndo(t.path):
		last := t.stuck[len(t.stuck)-1]
		a.Kind, a.Critical = RunNotUndone, true
		a.Since = t.stuck[0].since
		a.Error = last.err
		a.Run = last.run
		a.KeyCount, a.Keys, a.Runs = len(keys), keys[max(0, len(keys)-maxKeys):], len(t.stuck)
	case len(keys) > 0:
		a.Kind = KeyBlocked
		a.Since = first
		a.Error = last.err
		a.Run = last.run
		a.Parked = last.parked
		a.KeyCount, a.Keys, a.Runs = len(keys), keys[max(0, len(keys)-maxKeys):], len(t.stuck)
	case len(t.stuck) > 0:
		last := t.stuck[len(t.stuck)-1]
		a.Kind = RunParked
		a.Since = t.stuck[0].since
		a.Error = last.err
		a.Run = last.run
		a.Parked = true
		a.Runs = len(t.stuck)
	case !t.failed.since.IsZero():
		a.Kind = RunFailed
		a.Since = t.failed.since
		a.Error = t.failed.err
		a.Run = t.failed.run
		a.Runs = t.failed.count
	case t.out != nil:
		a.Kind = HandlerDegraded
		a.Since = t.out.since
		a.Until = t.out.until
		a.Error = t.givenUp.err
		a.Ratio = &t.out.ratio
		a.Run, a.Runs = t.givenUp.run, t.givenUp.count
		if a.Error == "" {
			a.Error = t.out.reason
		}
	case !t.keeps.IsZero():
		a.Kind = HandlerFailing
		a.Since = t.keeps
		a.Error = t.givenUp.err
		a.Run = t.givenUp.run
		a.Runs = t.givenUp.count
	case !t.untaken.since.IsZero():
		a.Kind = EventsUntaken
		a.Since = t.untaken.since
		a.Error = t.untaken.err
		a.Run = t.untaken.run
		a.Runs = t.untaken.count
	default:
		return nil
	}
	return a
}

// blocked lists the blocked keys, since when the first is blocked, and the last run that blocks
// one.
func (t *trouble) blocked() (keys []string, first time.Time, last stuckRun) {
	for _, s := range t.stuck {
		if s.key == "" {
			continue
		}
		if first.IsZero() {
			first = s.since
		}
		keys, last = append(keys, s.key), s
	}
	return keys, first, last
}

// short shortens a text.
func short(text string) string {
	if len(text) <= maxError {
		return text
	}
	cut := maxError
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
