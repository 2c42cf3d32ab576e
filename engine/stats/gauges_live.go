package stats

import (
	"sync/atomic"
	"time"

	"procaas/engine/guard"
	"procaas/engine/model"

	"github.com/prometheus/client_golang/prometheus"
)

// liveGauges are gauges that are computed when they are read. So they show the current state,
// without things that a definition has dropped.
type liveGauges[T any] struct {
	read   atomic.Pointer[func() []T] // nil: no values
	labels func(*T) []string
	gauges []liveGauge[T]
}

// A liveGauge is one of them. of returns false for something without a value.
type liveGauge[T any] struct {
	desc *prometheus.Desc
	of   func(*T) (value float64, ok bool)
}

// Describe implements [prometheus.Collector].
func (g *liveGauges[T]) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range g.gauges {
		out <- gauge.desc
	}
}

// Collect implements [prometheus.Collector].
func (g *liveGauges[T]) Collect(out chan<- prometheus.Metric) {
	read := g.read.Load()
	if read == nil {
		return
	}
	all := (*read)()
	for _, v := range all[:min(len(all), MostNamed)] {
		labels := g.labels(&v)
		for _, gauge := range g.gauges {
			if value, ok := gauge.of(&v); ok {
				out <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, value, labels...)
			}
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func newHandlerGauges() *liveGauges[HandlerInfo] {
	gauge := func(name, help string, of func(*HandlerInfo) (float64, bool)) liveGauge[HandlerInfo] {
		return liveGauge[HandlerInfo]{prometheus.NewDesc(name, help, handlerLabels(), nil), of}
	}
	return &liveGauges[HandlerInfo]{
		labels: func(h *HandlerInfo) []string { path := model.SplitPath(h.Path); return path[:] },
		gauges: []liveGauge[HandlerInfo]{
			gauge("procaas_handler_success_ratio",
				"Share of the handler's attempts that succeeded in the last minute on this node; absent without attempts.",
				func(h *HandlerInfo) (float64, bool) {
					if h.SuccessRatio == nil {
						return 0, false
					}
					return *h.SuccessRatio, true
				}),
			gauge("procaas_handler_in_flight", "Calls of the handler in flight on this node.",
				func(h *HandlerInfo) (float64, bool) { return float64(h.InFlight), true }),
			gauge("procaas_handler_waiting", "Runs in the memory of this node that wait for a limit before they call the handler.",
				func(h *HandlerInfo) (float64, bool) { return float64(h.Waiting), true }),
			gauge("procaas_handler_fallback", "1 while a fallback keeps the handler out of the flow, fully or partly; else 0.",
				func(h *HandlerInfo) (float64, bool) { return oneIf(h.Fallback.IsOut()), true }),
			gauge("procaas_switch_off", "1 while an operator has switched the handler off or holds its runs; else 0.",
				func(h *HandlerInfo) (float64, bool) { return oneIf(h.Switch != "on"), true }),
		},
	}
}

func newServiceGauges() *liveGauges[guard.ServiceInfo] {
	gauge := func(name, help string, of func(*guard.ServiceInfo) (float64, bool)) liveGauge[guard.ServiceInfo] {
		return liveGauge[guard.ServiceInfo]{prometheus.NewDesc(name, help, []string{"service"}, nil), of}
	}
	return &liveGauges[guard.ServiceInfo]{
		labels: func(s *guard.ServiceInfo) []string { return []string{s.ID} },
		gauges: []liveGauge[guard.ServiceInfo]{
			gauge("procaas_service_limit", "Highest number of calls of the service in flight on this node; absent without a limit.",
				func(s *guard.ServiceInfo) (float64, bool) {
					if s.Limit == nil {
						return 0, false
					}
					return float64(*s.Limit), true
				}),
			gauge("procaas_service_in_flight", "Calls of the service in flight on this node.",
				func(s *guard.ServiceInfo) (float64, bool) { return float64(s.InFlight), true }),
			gauge("procaas_service_waiting", "Runs of this node that queue for a call of the service.",
				func(s *guard.ServiceInfo) (float64, bool) { return float64(s.Waiting), true }),
			gauge("procaas_service_parked", "Runs of all nodes that are parked until the service is available.",
				func(s *guard.ServiceInfo) (float64, bool) { return float64(s.Parked), true }),
			gauge("procaas_service_failing_seconds", "How long hardly any call of the service has succeeded on this node, or the service "+
				"is paused; 0 while it answers.",
				func(s *guard.ServiceInfo) (float64, bool) {
					if s.FailingSince == nil {
						return 0, true
					}
					return max(time.Since(*s.FailingSince).Seconds(), 0), true
				}),
			gauge("procaas_service_down", "1 while hardly any call of the service succeeds, and one call at a time tries whether it is "+
				"back; else 0.",
				func(s *guard.ServiceInfo) (float64, bool) { return oneIf(s.Down), true }),
			gauge("procaas_service_certificate_seconds", "Time until the end of the certificate that this node shows to the service; absent without one.",
				func(s *guard.ServiceInfo) (float64, bool) {
					if s.Certificate == nil {
						return 0, false
					}
					return time.Until(s.Certificate.Until).Seconds(), true
				}),
			gauge("procaas_service_certificate_ends_soon", "1 when it is time to renew that certificate, else 0; absent without one.",
				func(s *guard.ServiceInfo) (float64, bool) {
					return oneIf(s.Certificate != nil && s.Certificate.EndsSoon(time.Now())), s.Certificate != nil
				}),
		},
	}
}

func newParkedGauges() *liveGauges[ParkedRuns] {
	gauge := func(name, help string, of func(*ParkedRuns) (float64, bool)) liveGauge[ParkedRuns] {
		return liveGauge[ParkedRuns]{prometheus.NewDesc(name, help, []string{"pipeline", "reason"}, nil), of}
	}
	return &liveGauges[ParkedRuns]{
		labels: func(p *ParkedRuns) []string { return []string{p.Pipeline, p.Reason} },
		gauges: []liveGauge[ParkedRuns]{
			gauge("procaas_runs_parked", "Runs of all nodes that stand still, or that failed and wait for a decision, by cause: service, "+
				"hold, lifted, loop, memory, limit, retry, unserved, time, event, state, kept, operator, blocking or failed. All nodes report the same number.",
				func(p *ParkedRuns) (float64, bool) { return float64(p.Runs), true }),
			gauge("procaas_runs_parked_oldest_seconds", "How long the oldest of these runs has waited.",
				func(p *ParkedRuns) (float64, bool) { return p.AgeS, true }),
		},
	}
}

func newBehindGauges() *liveGauges[BehindRuns] {
	return &liveGauges[BehindRuns]{
		labels: func(b *BehindRuns) []string { return []string{b.Pipeline} },
		gauges: []liveGauge[BehindRuns]{{
			prometheus.NewDesc("procaas_runs_behind", "About how many runs that this node accepted let those of other pipelines pass by, "+
				"since more of their pipeline came than its part of busy nodes.", []string{"pipeline"}, nil),
			func(b *BehindRuns) (float64, bool) { return float64(b.Runs), true },
		}},
	}
}
