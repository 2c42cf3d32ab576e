package stats

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/store"
)

// A budget is that of seven days, with what the store has, what is on its way there and what is not yet sent.
func TestBudgetsAreOfSevenDays(t *testing.T) {
	t.Parallel()
	s := &Stats{Metrics: NewMetrics(prometheus.NewRegistry())}
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	late := Took{Pipeline: "p", Accepted: 3 * time.Second, Target: 2 * time.Second}
	s.SetBudgets([]store.Use{
		{Day: "2026-01-09", Path: "p", UseCounts: store.UseCounts{Timed: 10, Late: 1}},
		{Day: "2026-01-08", Path: "p", UseCounts: store.UseCounts{Timed: 10, Late: 1}},
	})
	s.Took(late, now.Add(-8*24*time.Hour)) // too old for the budget
	s.Took(late, now)
	if sent := s.SendUsage(); len(sent) != 2 || sent[0].Timed+sent[1].Timed != 2 {
		t.Errorf("want both days sent, have %+v", sent)
	}
	s.Took(late, now)
	if have := s.used.budget("p", now); have != (budgetUse{timed: 22, late: 4}) {
		t.Errorf("while it is on its way: have %+v", have)
	}
	s.ReturnUsage() // the store is away
	if have := s.used.budget("p", now); have != (budgetUse{timed: 22, late: 4}) {
		t.Errorf("want nothing lost, have %+v", have)
	}
	s.SendUsage()
	s.UsageSent()
	if have := s.used.budget("p", now); have.late < 4 {
		t.Errorf("want what the store has by now, have %+v", have)
	}
	if since := BudgetSince(now); since != "2026-01-04" {
		t.Errorf("want seven days with today, have %s", since)
	}
}

// Whatever the paths are called, the memory of a node is bounded.
func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	var u usage
	now := time.Unix(0, 0)
	for i := range 2 * mostUsed {
		u.add(string(rune(i))+"/"+time.Duration(i).String(), now, store.UseCounts{Calls: 1})
	}
	if len(u.pending) != mostUsed+1 || u.pending[dayPath{0, "other pipelines/other stages/other handlers"}].Calls != mostUsed {
		t.Errorf("have %d", len(u.pending))
	}
}

// One slow run of a quiet pipeline is no alert, and one in a hundred is allowed.
func TestLateIsMoreThanOneInAHundred(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ended, late int64
		kept        bool
	}{{100, 1, true}, {100, 2, false}, {99, 1, false}, {1000, 10, true}, {1000, 11, false}} {
		if have := kept(Span{Ended: c.ended, Late: c.late}); *have != c.kept {
			t.Errorf("%d of %d late: want kept %t", c.late, c.ended, c.kept)
		}
	}
	if kept(Span{}) != nil {
		t.Error("want nothing said without runs")
	}
}
