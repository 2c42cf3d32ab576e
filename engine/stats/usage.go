package stats

import (
	"strings"
	"sync"
	"time"

	"procaas/engine/store"
)

// This file counts what paths use on each day. The store has what all nodes have counted, except for what they have not yet
// added to it.

// mostUsed is how many days and paths a node counts one by one until it adds them to the store. The rest counts together.
const mostUsed = MostNamed + mostTook

// budgetDays is how many days an error budget covers, the present one included.
const budgetDays = 7

// A dayPath is one day of a path.
type dayPath struct {
	day  int64 // since the Unix epoch
	path string
}

// A budgetUse is how much of an error budget is used.
type budgetUse struct{ timed, late int64 }

// usage is what this node has counted and not yet added to the store, and what the store has of error budgets.
type usage struct {
	mu      sync.Mutex // guards the following
	pending map[dayPath]*store.UseCounts
	sending []store.Use          // those of pending that the store gets at this moment
	week    map[string]budgetUse // what the store has of the last days
}

// dayOf returns the day of a time.
func dayOf(t time.Time) int64 { return t.Unix() / int64(24*time.Hour/time.Second) }

// dayText formats a day as the store has it.
func dayText(day int64) string {
	return time.Unix(day*int64(24*time.Hour/time.Second), 0).UTC().Format(time.DateOnly)
}

// add counts what a path has used.
func (u *usage) add(path string, now time.Time, counts store.UseCounts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := dayPath{dayOf(now), path}
	seen := u.pending[at]
	if seen == nil && len(u.pending) >= mostUsed {
		at.path = strings.Join(othersPath[:], "/")
		seen = u.pending[at]
	}
	if seen == nil {
		if u.pending == nil {
			u.pending = map[dayPath]*store.UseCounts{}
		}
		seen = new(store.UseCounts)
		u.pending[at] = seen
	}
	seen.Add(counts)
}

// SendUsage returns what to add to the store. UsageSent or ReturnUsage must follow.
func (s *Stats) SendUsage() []store.Use {
	u := &s.used
	u.mu.Lock()
	defer u.mu.Unlock()
	for at, counts := range u.pending {
		u.sending = append(u.sending, store.Use{Day: dayText(at.day), Path: at.path, UseCounts: *counts})
	}
	clear(u.pending)
	return u.sending
}

// ReturnUsage takes back what the store has not taken, for the next time.
func (s *Stats) ReturnUsage() {
	u := &s.used
	u.mu.Lock()
	sending := u.sending
	u.sending = nil
	u.mu.Unlock()
	for _, use := range sending {
		if day, err := time.Parse(time.DateOnly, use.Day); err == nil {
			u.add(use.Path, day, use.UseCounts)
		}
	}
}

// UsageSent notes that the store has what was sent.
func (s *Stats) UsageSent() {
	u := &s.used
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, use := range u.sending {
		if had, ok := u.week[use.Path]; ok {
			u.week[use.Path] = budgetUse{had.timed + use.Timed, had.late + use.Late}
		}
	}
	u.sending = nil
}

// SetBudgets sets what the store has of the last days.
func (s *Stats) SetBudgets(week []store.Use) {
	used := map[string]budgetUse{}
	for _, use := range week {
		if use.Timed > 0 {
			had := used[use.Path]
			used[use.Path] = budgetUse{had.timed + use.Timed, had.late + use.Late}
		}
	}
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	s.used.week = used
}

// BudgetSince is the first day of the present error budgets, as the store has it.
func BudgetSince(now time.Time) string { return dayText(dayOf(now) - budgetDays + 1) }

// OldestUsage is the first day that stores keep.
func OldestUsage(now time.Time) string { return dayText(dayOf(now) - store.UsageKept + 1) }

// budget returns how much of the error budget of a path is used: what the store has of all nodes, and what this one has not
// yet added.
func (u *usage) budget(path string, now time.Time) budgetUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.week[path]
	for _, use := range u.sending {
		if use.Path == path && use.Day >= BudgetSince(now) {
			sum.timed, sum.late = sum.timed+use.Timed, sum.late+use.Late
		}
	}
	for day := dayOf(now); day > dayOf(now)-budgetDays; day-- {
		if counts := u.pending[dayPath{day, path}]; counts != nil {
			sum.timed, sum.late = sum.timed+counts.Timed, sum.late+counts.Late
		}
	}
	return sum
}
