package balancer

import "math"

const (
	mostMisses = 10 // the most unanswered healthchecks in a row before a worker is down, if many get lost

	// The rule if none was ever lost: three, or fewer if they are rare.
	confirmed   = 5.5 // seconds
	leastMisses = 3

	// The rule if half of the cluster falls silent at once, which may be our own fault.
	crowdTime   = 90 // seconds, if reports are rare
	crowdMisses = 15

	falseDeaths = 0.01 // false deaths allowed per hour, at the measured rate of lost healthchecks

	flapHalf  = 300 // seconds
	flapLimit = 1.5 // decayed deaths above which a worker gets no partitions
	poison    = 2.5 // decayed deaths of its workers above which a partition stays where it is
)

// A health is the state of one worker by its healthchecks.
type health struct {
	misses int // unanswered in a row
	down   bool
	age    float64 // of its process, when it was last up
	seen   float64 // when it was last up
	flaps  decaying
}

// healths follow the healthchecks of all workers.
type healths struct {
	of     []health
	checks float64 // all healthchecks, decayed
	lost   float64 // unanswered although the process lived, decayed
	outage float64 // longest recent outage in seconds
}

// see takes the healthchecks of a report. It calls restarted for workers whose process is new, and
// died for those that are down now.
func (h *healths) see(r *Report, step float64, restarted func(w int, at float64), died func(w int)) {
	silent := 0
	for _, up := range r.Up {
		if !up {
			silent++
		}
	}
	confirm, refused := h.confirmations(len(r.Up), step), 1
	if silent > 1 && 2*silent >= len(r.Up) {
		confirm = max(confirm, crowdConfirmations(step))
		refused = confirm
	}
	fade := math.Exp2(-step / 3600)
	h.checks = h.checks*fade + float64(len(r.Up))
	h.lost *= fade
	for w := range h.of {
		s := &h.of[w]
		if !r.Up[w] {
			s.misses++
			enough := confirm
			if r.gone(w) {
				enough = refused // refused connections are proof: no healthcheck was lost
			}
			if !s.down && s.misses >= enough {
				s.down = true
				s.flaps.add(1, r.At, flapHalf)
				died(w)
			}
			continue
		}
		age := clean(r.Age[w])
		if math.IsNaN(r.Age[w]) {
			age = s.age + r.At - s.seen // not reported: assume that it lived on
		}
		switch began := age+step < s.age+(r.At-s.seen); {
		case began && s.seen > 0:
			if !s.down && s.misses > 0 {
				// It was back before anybody noticed, but it had died.
				s.flaps.add(1, r.At, flapHalf)
				died(w)
			}
			if s.misses > 0 {
				const forget = 0.7
				h.outage = max(r.At-s.seen, forget*h.outage)
			}
			restarted(w, r.At-age)
		default:
			// A long silence says no more about the rate of lost healthchecks than a short one.
			h.lost += float64(min(s.misses, confirm))
		}
		s.misses, s.down, s.age, s.seen = 0, false, age, r.At
	}
}

// gone reports whether nothing listens at a worker's address.
func (r *Report) gone(w int) bool { return len(r.Gone) > 0 && r.Gone[w] && !r.Up[w] }

// confirmations returns how many healthchecks in a row must be unanswered before a worker is down,
// so that lost ones hardly ever cause that.
func (h *healths) confirmations(workers int, step float64) int {
	least := leastConfirmations(step)
	if h.lost < 0.5 || h.checks == 0 {
		return least
	}
	rate := min(h.lost/h.checks, 0.5)
	hour := float64(workers) * 3600 / step
	return min(max(int(math.Ceil(math.Log(falseDeaths/hour)/math.Log(rate))), least), mostMisses)
}

// leastConfirmations returns that number if no healthcheck was ever lost. Three rule out chance.
// But each further wait costs the requests of the worker in a step. Emptying a live one costs about
// a second and a half of these: half a second for the hand-over, and the filling of caches. So with
// long steps one is enough, and [Observe] asks again within the step instead.
func leastConfirmations(step float64) int {
	return min(max(int(math.Round(confirmed/step)), 1), leastMisses)
}

// crowdConfirmations returns that number if half of the cluster is silent: it has died, or the
// network to it. If it has died, waiting costs half of all requests. Emptying live workers costs as
// much as 12 to 60 seconds of all requests, more in fuller clusters (12 workers at 0.35 to 0.65 of
// their capacity, caches that fill in a minute). So the wait is about that long, which costs at
// most about twice the optimum.
func crowdConfirmations(step float64) int {
	return min(max(int(math.Ceil(crowdTime/step)), 3), crowdMisses)
}

// back returns for how many more seconds a worker that has stopped, or is about to, is expected to
// be away. It is infinite if nothing suggests that it will be back soon.
func (h *healths) back(r *Report, w int) float64 {
	left := h.outage
	if s := &h.of[w]; !r.Up[w] {
		left -= r.At - s.seen
	}
	if left <= 0 {
		return math.Inf(1)
	}
	return left
}

// fit reports whether a worker may get partitions.
func (h *healths) fit(r *Report, w int) bool {
	return h.answers(r, w) && h.of[w].flaps.of(r.At, flapHalf) < flapLimit
}

// answers reports whether a worker is up and expected to stay up.
func (h *healths) answers(r *Report, w int) bool { return r.Up[w] && !r.Draining[w] }
