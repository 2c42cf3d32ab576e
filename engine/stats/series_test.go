package stats

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/definitions"
)

// Files may have any number of handlers, and /metrics must stay readable.
func TestMetricsHaveABoundedNumberOfHandlers(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := &Stats{Metrics: NewMetrics(registry)}
	now := time.Now()
	path := func(i int) string { return fmt.Sprintf("work/a/h%d", i) }
	for i := range MostNamed + 50 {
		s.Path(path(i)).Ended(nil, time.Millisecond, now, "")
		s.LeftOut(path(i), "switch")
	}
	s.Metrics.handlers.read.Store(new(func() []HandlerInfo {
		all := make([]HandlerInfo, MostNamed+50)
		for i := range all {
			all[i].Path, all[i].Switch = path(i), "on"
		}
		return all
	}))
	calls := func() (series int, others float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			most := MostNamed + 1
			if f.GetName() == "procaas_handler_calls_total" {
				most *= 3 // outcomes
			} else if f.GetType().String() == "GAUGE" {
				most = MostNamed
			}
			if n := len(f.GetMetric()); n > most {
				t.Errorf("%s: want at most %d series, have %d", f.GetName(), most, n)
			}
			if f.GetName() != "procaas_handler_calls_total" {
				continue
			}
			series = len(f.GetMetric())
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetValue() == othersPath[2] {
						others += m.GetCounter().GetValue()
					}
				}
			}
		}
		return series, others
	}
	if series, others := calls(); series != 3*(MostNamed+1) || others != 50 {
		t.Errorf("want 50 calls of other handlers in %d series, have %g in %d", 3*(MostNamed+1), others, series)
	}

	if !s.IsFull() {
		t.Error("want it reported that there are more handlers")
	}

	// A handler that is forgotten makes room, and those without series of their own take none away.
	for _, i := range []int{0, MostNamed} {
		s.forget(path(i), s.Path(path(i)))
	}
	s.Path("work/a/late")
	s.Path("work/a/later")
	if series, others := calls(); series != 3*(MostNamed+1) || others != 50 {
		t.Errorf("want the counts of other handlers kept and one new handler, have %g in %d series", others, series)
	}
}

// Files may have any number of pipelines and stages, too.
func TestDurationsHaveABoundedNumberOfSeries(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := &Stats{Metrics: NewMetrics(registry)}
	for i := range mostTook + 50 {
		s.Took(Took{Pipeline: "work", Stage: fmt.Sprintf("s%d", i), Begun: time.Millisecond}, time.Now())
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); f.GetName() == "procaas_stage_seconds" && n != 2*(mostTook+1) {
			t.Errorf("want %d series, have %d", 2*(mostTook+1), n)
		}
	}
}

// A node keeps the slowest runs, and not more of them the more there are.
func TestSlowRunsAreBounded(t *testing.T) {
	t.Parallel()
	s := &Stats{Metrics: NewMetrics(prometheus.NewRegistry())}
	now := time.Unix(1_000_000, 0)
	for i := range 1000 {
		took := time.Duration(i*7919%1000) * time.Millisecond
		s.Took(Took{Pipeline: "work", Accepted: took}, now)
		s.Slow(SlowRun{Run: fmt.Sprint(i), Pipeline: "work", Ended: now, TookMS: took.Milliseconds()}, now)
	}
	all := s.SlowRuns("", now.Add(-time.Hour))
	if len(all) != slowMost {
		t.Fatalf("want %d runs, have %d", slowMost, len(all))
	}
	for i, r := range all {
		if want := int64(999 - i); r.TookMS != want {
			t.Errorf("run %d: want %d ms, have %d", i, want, r.TookMS)
		}
	}
}

// Statistics keep the series that they have found. A pipeline that comes back after it was forgotten needs new ones.
func TestAForgottenPipelineCountsAnew(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := &Stats{Metrics: NewMetrics(registry)}
	now := time.Now()
	count := func() {
		s.Took(Took{Pipeline: "work", Accepted: time.Second, Begun: time.Second}, now)
		s.Called("work/stage/call", time.Second, 10, 20, now)
		s.Left("work", 30, now)
	}
	count()
	count()
	s.pipelines = map[string]time.Time{"work": now.Add(-forgetAfter)}
	s.Follow(new(definitions.Definition), now)
	count()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			have[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"procaas_run_seconds":                 2, // from the acceptance and from the begin
		"procaas_pipeline_call_seconds_total": 1, "procaas_pipeline_request_bytes_total": 10, "procaas_pipeline_reply_bytes_total": 20,
		"procaas_pipeline_stored_bytes_total": 30,
	} {
		if have[name] != want {
			t.Errorf("%s: want %g since it came back, have %g", name, want, have[name])
		}
	}
	if runs := s.SlowRuns("work", now.Add(-time.Hour)); len(runs) != 0 {
		t.Errorf("want no slow run of before, have %v", runs)
	}
}
