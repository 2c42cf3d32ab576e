package guard

import "time"

// A Budget counts calls, in order to keep retries a limited share of them, because retries keep a
// failing service down. The zero value has seen no calls.
type Budget struct {
	seconds [budgetSeconds]budgetSecond
}

const (
	budgetSeconds = 10   // how far it looks back
	freeRepeats   = 10.0 // allowed per second on all nodes together, beyond the share
)

// A budgetSecond counts the calls that started in one second.
type budgetSecond struct {
	unix    int64 // if it is another second, the counts are stale
	calls   int
	repeats int

	good, bad int // calls that ended in it
}

// at returns the counts of the current second.
func (b *Budget) at(now time.Time) *budgetSecond {
	unix := now.Unix()
	s := &b.seconds[unix%budgetSeconds]
	if s.unix != unix {
		*s = budgetSecond{unix: unix}
	}
	return s
}

// count counts a call that starts.
func (b *Budget) count(repeats bool, now time.Time) {
	s := b.at(now)
	s.calls++
	if repeats {
		s.repeats++
	}
}

// withdraw uncounts a call that has not started after all.
func (b *Budget) withdraw(repeats bool, started time.Time) {
	s := &b.seconds[started.Unix()%budgetSeconds]
	if s.unix != started.Unix() {
		return
	}
	s.calls--
	if repeats {
		s.repeats--
	}
}

// allows reports whether one more retry stays within a share of the calls.
func (b *Budget) allows(share float64, nodes int, now time.Time) bool {
	if share >= 1 {
		return true
	}
	calls, repeats := b.sum(now)
	return float64(repeats+1) <= share*float64(calls)+budgetSeconds*freeRepeats/float64(nodes)
}

// sum returns how many calls and retries started in the period that it looks back.
func (b *Budget) sum(now time.Time) (calls, repeats int) {
	oldest := now.Unix() - budgetSeconds
	for i := range b.seconds {
		if s := &b.seconds[i]; s.unix > oldest && s.unix <= now.Unix() {
			calls += s.calls
			repeats += s.repeats
		}
	}
	return calls, repeats
}

// End records the outcome of a call.
func (b *Budget) End(good bool, now time.Time) {
	if s := b.at(now); good {
		s.good++
	} else {
		s.bad++
	}
}

// Outcomes counts the calls that ended in the period that it looks back.
func (b *Budget) Outcomes(now time.Time) (good, bad int) {
	oldest := now.Unix() - budgetSeconds
	for i := range b.seconds {
		if s := &b.seconds[i]; s.unix > oldest && s.unix <= now.Unix() {
			good += s.good
			bad += s.bad
		}
	}
	return good, bad
}

// rate returns how many calls started in the last full second, or so far in this one. known is
// false if the last second had none.
func (b *Budget) rate(now time.Time) (calls int, known bool) {
	last := &b.seconds[(now.Unix()-1)%budgetSeconds]
	if last.unix != now.Unix()-1 {
		return 0, false
	}
	return max(last.calls, b.at(now).calls), true
}
