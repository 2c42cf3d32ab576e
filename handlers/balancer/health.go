package balancer

import "math"

const (
	mostMisses = 10 // healthchecks in a row without an answer before a worker is down, where they are often lost

	// Where none was ever lost: three, unless they come seldom.
	confirmed   = 5.5 // seconds
	leastMisses = 3

	// When half of the cluster falls silent at once: that may be us.
	crowdTime   = 90 // seconds, where reports come seldom
	crowdMisses = 15

	falseDeaths = 0.01 // that may be declared in an hour, at the measured rate of lost healthchecks

	flapHalf  = 300 // seconds
	flapLimit = 1.5 // deaths, fading, beyond which a worker gets no partitions
	poison    = 2.5 // deaths of its workers, fading, beyond which a partition stays where it is
)

// A health is what healthchecks tell about one worker.
type health struct {
	misses int // in a row
	down   bool
	age    float64 // of its process, when it was last up
	seen   float64 // when that was
	flaps  decaying
}

// healths follow the healthchecks of all workers.
type healths struct {
	of     []health
	checks float64 // answered or not, fading
	lost   float64 // not answered though the process lived on, fading
	outage float64 // seconds for which workers were gone that came back, the longest of the last ones
}

// see takes the healthchecks of a report. restarted is called for workers whose
// process has started anew, died for those that are down now.
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
				enough = refused // no healthcheck was lost: there is nobody to answer it
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
			age = s.age + r.At - s.seen // nobody tells: as if it had lived on
		}
		switch began := age+step < s.age+(r.At-s.seen); {
		case began && s.seen > 0:
			if !s.down && s.misses > 0 {
				// It was back before anybody noticed, but it has died.
				s.flaps.add(1, r.At, flapHalf)
				died(w)
			}
			if s.misses > 0 {
				const forget = 0.7
				h.outage = max(r.At-s.seen, forget*h.outage)
			}
			restarted(w, r.At-age)
		default:
			// A long silence tells no more of how often healthchecks are lost than a short one.
			h.lost += float64(min(s.misses, confirm))
		}
		s.misses, s.down, s.age, s.seen = 0, false, age, r.At
	}
}

// gone reports whether nothing listens where a worker was.
func (r *Report) gone(w int) bool { return len(r.Gone) > 0 && r.Gone[w] && !r.Up[w] }

// confirmations returns how many healthchecks must go unanswered in a row before a
// worker is down, so that lost ones hardly ever make one.
func (h *healths) confirmations(workers int, step float64) int {
	least := leastConfirmations(step)
	if h.lost < 0.5 || h.checks == 0 {
		return least
	}
	rate := min(h.lost/h.checks, 0.5)
	hour := float64(workers) * 3600 / step
	return min(max(int(math.Ceil(math.Log(falseDeaths/hour)/math.Log(rate))), least), mostMisses)
}

// leastConfirmations is that where no healthcheck was ever lost. Three are more than chance,
// but each that is waited for costs what the worker is asked for in a step, and to empty one
// that lives costs about a second and a half of that: a half for the hand-over, and what its
// caches have to be filled with. So where steps are long, one has to do, and it is asked again
// within the step instead; see [Observe].
func leastConfirmations(step float64) int {
	return min(max(int(math.Round(confirmed/step)), 1), leastMisses)
}

// crowdConfirmations is that when half of the cluster is silent: a death of half of it, or of
// the way to it. To wait costs half of all requests if it is the first. To empty workers that
// live costs as much as 12 to 60 seconds of all requests, the more the fuller the cluster is
// (12 workers at 0.35 to 0.65 of their capacity, caches that fill in a minute). So the wait
// is about as long as that: who has waited in vain has lost about twice what was to lose.
func crowdConfirmations(step float64) int {
	return min(max(int(math.Ceil(crowdTime/step)), 3), crowdMisses)
}

// back returns how many seconds a worker that is about to stop, or has, is expected to be
// gone yet; infinite when nothing speaks for its coming back soon.
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

// answers reports whether a worker is up and going to stay so, as far as anybody knows.
func (h *healths) answers(r *Report, w int) bool { return r.Up[w] && !r.Draining[w] }
