package guard

import "time"

// A Budget counts calls, so that repetitions stay a share of them: those who
// repeat what fails are what keeps a service down. Its zero value has seen none.
type Budget struct {
	seconds [budgetSeconds]budgetSecond
}

const (
	budgetSeconds = 10   // it looks back
	freeRepeats   = 10.0 // a second, of all nodes together, beyond the share
)

// A budgetSecond is the calls that started in one second.
type budgetSecond struct {
	unix    int64 // another one is stale
	calls   int
	repeats int

	good, bad int // that ended in it
}

// at returns the counts of the present second.
func (b *Budget) at(now time.Time) *budgetSecond {
	unix := now.Unix()
	s := &b.seconds[unix%budgetSeconds]
	if s.unix != unix {
		*s = budgetSecond{unix: unix}
	}
	return s
}

// count notes a call that starts.
func (b *Budget) count(repeats bool, now time.Time) {
	s := b.at(now)
	s.calls++
	if repeats {
		s.repeats++
	}
}

// withdraw forgets a call that has not started after all.
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

// allows reports whether one more repetition is within a share of the calls.
func (b *Budget) allows(share float64, nodes int, now time.Time) bool {
	if share >= 1 {
		return true
	}
	calls, repeats := b.sum(now)
	return float64(repeats+1) <= share*float64(calls)+budgetSeconds*freeRepeats/float64(nodes)
}

// sum is what started in the time that it looks back.
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

// End notes what a call came to.
func (b *Budget) End(good bool, now time.Time) {
	if s := b.at(now); good {
		s.good++
	} else {
		s.bad++
	}
}

// Outcomes is what the calls came to that ended in the time that it looks back.
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

// rate is how many calls started in the last whole second, or have in this one. It
// is not known when there were none in the last one.
func (b *Budget) rate(now time.Time) (calls int, known bool) {
	last := &b.seconds[(now.Unix()-1)%budgetSeconds]
	if last.unix != now.Unix()-1 {
		return 0, false
	}
	return max(last.calls, b.at(now).calls), true
}
