package balancer

import "math"

const (
	missesMost  = 10   // the most unanswered healthchecks in a row before a worker is down, if many get lost
	missesLeast = 3    // the fewest, which rule out chance; with long steps [Observe] asks again within the step
	missesTime  = 5.5  // s of silence that are enough: a longer wait costs more than emptying a live worker
	crowdTime   = 90   // s of silence of half of the cluster, if reports are rare: it may be the balancer's own fault
	crowdMisses = 15   // the same in reports, if they are frequent
	falseDeaths = 0.01 // false deaths allowed per hour, at the measured rate of lost healthchecks
	lostHalf    = 3600 // s: half-life of that rate
	deathHalf   = 300  // s: half-life of deaths
	deathsFlap  = 1.5  // decayed deaths above which a worker gets no partitions
	deathsBlame = 2.5  // decayed deaths of its workers above which a partition may kill them, and stays where it is
)

// A health is the state of one worker by its healthchecks.
type health struct {
	misses int // unanswered in a row
	down   bool
	age    float64 // of its process, when it was last up
	seen   float64 // when it was last up
	deaths decaying
}

// healths follow the healthchecks of all workers.
type healths struct {
	of     []health
	checks float64 // all healthchecks, decayed
	lost   float64 // unanswered although the process lived, decayed
}

// observe takes the healthchecks of a report. It calls restarted for workers whose process is new,
// and died for those that are down now.
func (h *healths) observe(r *Report, step float64, restarted func(w int, at float64), died func(w int)) {
	silent := 0
	for w, up := range r.Up {
		if !up && !r.gone(w) && !r.banned(w) {
			silent++
		}
	}
	confirm := h.confirmations(len(r.Up), step)
	if crowded(silent, len(r.Up)) && !r.Evacuate {
		confirm = max(confirm, crowdConfirmations(step))
	}
	fade := math.Exp2(-step / lostHalf)
	h.checks, h.lost = h.checks*fade+float64(len(r.Up)), h.lost*fade
	for w := range h.of {
		s := &h.of[w]
		if r.banned(w) {
			s.misses, s.down, s.seen = 0, false, 0
			continue
		}
		if !r.Up[w] {
			s.misses += r.misses(w)
			if !s.down && (s.misses >= confirm || r.gone(w)) { // refused connections are proof
				s.down = true
				s.deaths.add(1, r.At, deathHalf)
				died(w)
			}
			continue
		}
		passed, age := r.At-s.seen, clean(r.Age[w])
		if math.IsNaN(r.Age[w]) {
			age = s.age + passed // not reported: assume that it lived on
		}
		switch began := age+step < s.age+passed; {
		case began && s.seen > 0:
			if !s.down && s.misses > 0 {
				s.deaths.add(1, r.At, deathHalf) // it was back before anybody noticed
				died(w)
			}
			restarted(w, r.At-age)
		default:
			// A long silence says no more about the rate of lost healthchecks than a short one.
			h.lost += float64(min(s.misses, confirm))
		}
		s.misses = 0
		s.down = false
		s.age = age
		s.seen = r.At
	}
}

// crowded reports whether so many workers are silent that the balancer may be the one that is cut
// off.
func crowded(silent, workers int) bool { return silent > 1 && 2*silent >= workers }

// confirmations returns how many healthchecks in a row must be unanswered before a worker is down,
// so that lost ones hardly ever cause that.
func (h *healths) confirmations(workers int, step float64) int {
	least := leastConfirmations(step)
	if h.lost < 0.5 || h.checks == 0 {
		return least
	}
	rate, hour := min(h.lost/h.checks, 0.5), float64(workers)*3600/step
	return min(max(int(math.Ceil(math.Log(falseDeaths/hour)/math.Log(rate))), least), missesMost)
}

// leastConfirmations returns that number if no healthcheck was ever lost.
func leastConfirmations(step float64) int {
	return min(max(int(math.Round(missesTime/step)), 1), missesLeast)
}

// crowdConfirmations returns that number if half of the cluster is silent.
func crowdConfirmations(step float64) int {
	return min(max(int(math.Ceil(crowdTime/step)), 3), crowdMisses)
}

// fit reports whether a worker may get partitions.
func (h *healths) fit(r *Report, w int) bool {
	return h.answers(r, w) && h.of[w].deaths.of(r.At, deathHalf) < deathsFlap
}

// answers reports whether a worker is up and expected to stay up.
func (h *healths) answers(r *Report, w int) bool { return r.Up[w] && !r.Draining[w] }

// A decaying is a number with a half-life.
type decaying struct{ value, at float64 }

// of returns the number at a time.
func (d *decaying) of(now, half float64) float64 { return d.value * math.Exp2((d.at-now)/half) }

// add adds to the number.
func (d *decaying) add(x, now, half float64) { d.value, d.at = d.of(now, half)+x, now }
