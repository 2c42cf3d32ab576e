package stats

import (
	"sync/atomic"
	"time"

	"procaas/engine/guard"
	"procaas/engine/model"

	"github.com/prometheus/client_golang/prometheus"
)

// liveGauges are gauges that are read when somebody looks, and not kept up to date
// meanwhile. So they show what there is now: what a definition has dropped is
// gone.
type liveGauges[T any] struct {
	read   atomic.Pointer[func() []T] // nil: nothing is shown
	labels func(*T) []string
	gauges []liveGauge[T]
}

// A liveGauge is one of them; of is false for what has no value.
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
	for _, v := range (*read)() {
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
				"Share of the handler's attempts of the last minute on this node that succeeded; absent without attempts.",
				func(h *HandlerInfo) (float64, bool) {
					if h.SuccessRatio == nil {
						return 0, false
					}
					return *h.SuccessRatio, true
				}),
			gauge("procaas_handler_in_flight", "Calls of the handler that are under way on this node.",
				func(h *HandlerInfo) (float64, bool) { return float64(h.InFlight), true }),
			gauge("procaas_handler_waiting", "Runs in this node's memory that may not call the handler yet: a limit lets them wait.",
				func(h *HandlerInfo) (float64, bool) { return float64(h.Waiting), true }),
			gauge("procaas_handler_fallback", "Whether the handler is out of the flow by itself, wholly or in part: 1, else 0.",
				func(h *HandlerInfo) (float64, bool) { return oneIf(h.Fallback.IsOut()), true }),
			gauge("procaas_switch_off", "Whether an operator has switched the handler off, or holds its runs: 1, else 0.",
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
			gauge("procaas_service_limit", "Calls of the service that this node lets be under way at once; absent without a bound.",
				func(s *guard.ServiceInfo) (float64, bool) {
					if s.Limit == nil {
						return 0, false
					}
					return float64(*s.Limit), true
				}),
			gauge("procaas_service_in_flight", "Calls of the service that this node has under way.",
				func(s *guard.ServiceInfo) (float64, bool) { return float64(s.InFlight), true }),
			gauge("procaas_service_waiting", "Runs of this node that stand in line to call the service.",
				func(s *guard.ServiceInfo) (float64, bool) { return float64(s.Waiting), true }),
			gauge("procaas_service_parked", "Runs of all nodes that are parked until the service can be called.",
				func(s *guard.ServiceInfo) (float64, bool) { return float64(s.Parked), true }),
			gauge("procaas_service_failing_seconds", "For how long hardly any call of the service has succeeded on this node, or it has wanted "+
				"none; 0 while it answers.",
				func(s *guard.ServiceInfo) (float64, bool) {
					if s.FailingSince == nil {
						return 0, true
					}
					return max(time.Since(*s.FailingSince).Seconds(), 0), true
				}),
			gauge("procaas_service_down", "Whether hardly any call of the service succeeds, so that this node calls it once at a time to find "+
				"out when it is back: 1, else 0.",
				func(s *guard.ServiceInfo) (float64, bool) { return oneIf(s.Down), true }),
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
			gauge("procaas_runs_parked", "Runs of all nodes that have begun and stand still, or have failed and nobody has decided about, by "+
				"what they wait for: "+
				"service, hold, lifted, loop, limit, retry, unserved, time, event, state, operator, blocking or failed. All nodes count the same.",
				func(p *ParkedRuns) (float64, bool) { return float64(p.Runs), true }),
			gauge("procaas_runs_parked_oldest_seconds", "For how long the first of these runs has waited for that.",
				func(p *ParkedRuns) (float64, bool) { return p.AgeS, true }),
		},
	}
}
