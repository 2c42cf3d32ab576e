package engine

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what the engine counts. Names and labels are the contract's.
type Metrics struct {
	HandlerCalls    *prometheus.CounterVec   // pipeline, stage, handler, outcome
	HandlerGivenUp  *prometheus.CounterVec   // pipeline, stage, handler
	HandlerSeconds  *prometheus.HistogramVec // pipeline, stage, handler
	ServiceLimit    *prometheus.GaugeVec     // service
	ServiceInFlight *prometheus.GaugeVec     // service
	ServiceWaiting  *prometheus.GaugeVec     // service
	ServiceDown     *prometheus.GaugeVec     // service
	Accepted        prometheus.Counter
	Shed            *prometheus.CounterVec // reason
	Runs            *prometheus.CounterVec // pipeline, status
	InboxWaiting    prometheus.Gauge
	InboxOldest     prometheus.Gauge
	Checkpoint      prometheus.Histogram
	StoreErrors     *prometheus.CounterVec // operation

	handlers handlerGauges
}

// handlerLabels say to which handler something belongs.
func handlerLabels() []string { return []string{"pipeline", "stage", "handler"} }

// NewMetrics makes the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	handler := handlerLabels()
	m := &Metrics{
		HandlerCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_handler_calls_total",
			Help: "Attempts of handlers that ended, and handlers that were skipped, by outcome.",
		}, append(handler[:3:3], "outcome")),
		HandlerGivenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_handler_given_up_total",
			Help: "Handlers that failed for good: their runs go on without them, or fail when they are critical.",
		}, handler),
		HandlerSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "procaas_handler_seconds",
			Help:    "Duration of one attempt of a handler.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 13), // 1 ms to 1 min
		}, handler),
		Accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "procaas_events_accepted_total",
			Help: "Events that this node accepted, without repetitions.",
		}),
		Runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_runs_total",
			Help: "Runs that ended on this node, by status.",
		}, []string{"pipeline", "status"}),
		InboxWaiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "procaas_inbox_waiting",
			Help: "Runs of all nodes that wait for their turn, their time or a node.",
		}),
		InboxOldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "procaas_inbox_oldest_seconds",
			Help: "For how long the oldest run that is due has waited; 0 when none has.",
		}),
		Checkpoint: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "procaas_checkpoint_seconds",
			Help:    "Time until a run's step is durable, waiting for the shared commit included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
		}),
	}
	m.Shed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_events_shed_total",
		Help: "Events that this node has not taken in, by reason: overload, when they come faster than the store writes, where a request that is refused unread counts as one, or client_left, when nobody waits for the answer any more.",
	}, []string{"reason"})
	m.Shed.WithLabelValues(shedOverload)
	m.Shed.WithLabelValues(shedLeft)
	r.MustRegister(m.Shed)
	service := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"service"})
		r.MustRegister(v)
		return v
	}
	m.ServiceLimit = service("procaas_service_limit", "Calls of the service that this node lets be under way at once.")
	m.ServiceInFlight = service("procaas_service_in_flight", "Calls of the service that this node has under way.")
	m.ServiceWaiting = service("procaas_service_waiting", "Runs of this node that stand in line to call the service.")
	m.ServiceDown = service("procaas_service_down", "Whether hardly any call of the service succeeds, so that this node calls it once at a time to find out when it is back: 1, else 0.")
	m.StoreErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_store_errors_total",
		Help: "Calls of the store that failed and are tried again, by operation.",
	}, []string{"operation"})
	for _, operation := range []string{"accept", "beat", "claim", "commit", "decide", "join", "leave", "outages", "probe", "read", "report", "trim"} {
		m.StoreErrors.WithLabelValues(operation)
	}
	r.MustRegister(m.HandlerCalls, m.HandlerGivenUp, m.HandlerSeconds, m.Accepted,
		m.Runs, m.InboxWaiting, m.InboxOldest, m.Checkpoint, m.StoreErrors, &m.handlers)
	return m
}

// inbox sets the gauges of the inbox.
func (m *Metrics) inbox(waiting int, oldest, now time.Time) {
	m.InboxWaiting.Set(float64(waiting))
	age := 0.0
	if !oldest.IsZero() {
		age = max(now.Sub(oldest).Seconds(), 0)
	}
	m.InboxOldest.Set(age)
}

// failed counts a call of the store that failed.
func (m *Metrics) failed(operation string) { m.StoreErrors.WithLabelValues(operation).Inc() }

// forget drops the series of a handler.
func (m *Metrics) forget(path [3]string) {
	m.HandlerGivenUp.DeleteLabelValues(path[:]...)
	m.HandlerSeconds.DeleteLabelValues(path[:]...)
	m.HandlerCalls.DeletePartialMatch(prometheus.Labels{"pipeline": path[0], "stage": path[1], "handler": path[2]})
}

// handlerGauges are what is read of the handlers when somebody looks: it is not
// kept up to date meanwhile.
type handlerGauges struct {
	read atomic.Pointer[func() []HandlerInfo]
}

// A handlerGauge is one of them; of is false for a handler that has no value.
type handlerGauge struct {
	desc *prometheus.Desc
	of   func(*HandlerInfo) (value float64, ok bool)
}

func newHandlerGauge(name, help string, of func(*HandlerInfo) (float64, bool)) handlerGauge {
	return handlerGauge{prometheus.NewDesc(name, help, handlerLabels(), nil), of}
}

// list gives them all.
func (*handlerGauges) list() []handlerGauge {
	return []handlerGauge{
		newHandlerGauge("procaas_handler_success_ratio",
			"Share of the handler's attempts of the last minute on this node that succeeded; absent without attempts.",
			func(h *HandlerInfo) (float64, bool) {
				if h.SuccessRatio == nil {
					return 0, false
				}
				return *h.SuccessRatio, true
			}),
		newHandlerGauge("procaas_handler_in_flight", "Calls of the handler that are under way on this node.",
			func(h *HandlerInfo) (float64, bool) { return float64(h.InFlight), true }),
		newHandlerGauge("procaas_handler_waiting", "Runs in this node's memory that may not call the handler yet: a limit lets them wait.",
			func(h *HandlerInfo) (float64, bool) { return float64(h.Waiting), true }),
		newHandlerGauge("procaas_handler_fallback", "Whether the handler is out of the flow by itself, wholly or in part: 1, else 0.",
			func(h *HandlerInfo) (float64, bool) { return oneIf(h.Fallback.IsOut()), true }),
		newHandlerGauge("procaas_switch_off", "Whether an operator has switched the handler off, or holds its runs: 1, else 0.",
			func(h *HandlerInfo) (float64, bool) { return oneIf(h.Switch != "on"), true }),
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements [prometheus.Collector].
func (g *handlerGauges) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range g.list() {
		out <- gauge.desc
	}
}

// Collect implements [prometheus.Collector].
func (g *handlerGauges) Collect(out chan<- prometheus.Metric) {
	read := g.read.Load()
	if read == nil {
		return
	}
	gauges := g.list()
	for _, h := range (*read)() {
		path := splitPath(h.Path)
		for _, gauge := range gauges {
			if value, ok := gauge.of(&h); ok {
				out <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, value, path[:]...)
			}
		}
	}
}
