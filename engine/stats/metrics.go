package stats

import (
	"time"

	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the engine's metrics. Their names and labels are part of the contract.
type Metrics struct {
	// Of handlers, by pipeline, stage and handler. Calls are also counted by outcome. A skipped
	// handler is a call without a duration.
	HandlerCalls   *prometheus.CounterVec
	HandlerGivenUp *prometheus.CounterVec
	HandlerLeftOut *prometheus.CounterVec // also by reason
	HandlerSeconds *prometheus.HistogramVec

	// Of events: those that this node took in, and by reason those that it did not.
	Accepted  prometheus.Counter
	Passed    prometheus.Counter // began past runs that wait, in a place that the node keeps free
	Shed      *prometheus.CounterVec
	Untaken   *prometheus.CounterVec // events kept for a run, or to be kept, that no run will take; by one of the reasons below
	Tokens    *prometheus.CounterVec // requests for access tokens, by service and outcome
	OverQuota *prometheus.CounterVec // by the token of who sent them

	TriggerTimes *prometheus.CounterVec // due times of triggers, by trigger and outcome

	// Of runs, by pipeline and status. The inbox is that of all nodes, so do not sum its gauges
	// over nodes.
	Runs         *prometheus.CounterVec
	RunSeconds   *prometheus.HistogramVec // also by where the duration begins
	StageSeconds *prometheus.HistogramVec // by pipeline and stage, and by where the duration begins
	LateTotal    *prometheus.CounterVec   // by pipeline and stage, which is empty for a run

	// What pipelines cost on this node.
	CallSeconds, CPUSeconds, RequestBytes, ReplyBytes, StoredBytes *prometheus.CounterVec

	Quarantined  prometheus.Counter
	Damaged      prometheus.Counter
	NotUndone    prometheus.Counter
	InboxWaiting prometheus.Gauge
	InboxOldest  prometheus.Gauge // in seconds

	// Of replays with a version in the shadow, by pipeline; also by outcome or kind of difference.
	ShadowRuns        *prometheus.CounterVec
	ShadowDifferences *prometheus.CounterVec
	ShadowCalls       prometheus.Counter

	// Of limits by value: values with a row, by handler, and requests that found no room for one.
	limitValues *prometheus.GaugeVec
	LimitFull   prometheus.Counter

	// Of the store: seconds until a step is durable, and failures by operation.
	Checkpoint  prometheus.Histogram
	StoreErrors *prometheus.CounterVec
	StoreLost   prometheus.Gauge
	Stalled     prometheus.Gauge // in seconds

	archive  archive
	handlers *liveGauges[HandlerInfo]
	services *liveGauges[guard.ServiceInfo]
	parked   *liveGauges[ParkedRuns]
	behind   *liveGauges[BehindRuns]
	handled  *liveGauges[tolerance] // of handlers
	piped    *liveGauges[tolerance] // of pipelines
	targets  *liveGauges[Target]
}

// These are the reasons why events are not accepted.
const (
	ShedOverload = "overload"    // the store is too slow for them
	ShedLeft     = "client_left" // nobody waits for the answer
)

// observe counts a duration. The exemplar of its bucket names the trace, if there is one.
func observe(in prometheus.Observer, seconds float64, trace string) {
	if trace == "" {
		in.Observe(seconds)
		return
	}
	in.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace})
}

// handlerLabels are the labels of a handler.
func handlerLabels() []string { return []string{"pipeline", "stage", "handler"} }

// NewMetrics makes the metrics and registers them. It panics if r has them already.
func NewMetrics(r prometheus.Registerer) *Metrics {
	handler := handlerLabels()
	m := &Metrics{
		handlers: newHandlerGauges(), services: newServiceGauges(), parked: newParkedGauges(), behind: newBehindGauges(),
		handled: newHandlerTolerance(), piped: newPipelineTolerance(), targets: newTargetGauges(), archive: newArchive(r),
		HandlerCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_handler_calls_total",
			Help: "Attempts of handlers that ended, and skipped handlers, by outcome.",
		}, append(handler[:3:3], "outcome")), // a copy: the others have no outcome
		HandlerGivenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_handler_given_up_total",
			Help: "Handlers that failed for good. Their runs continue without them, or fail if they are critical.",
		}, handler),
		HandlerLeftOut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_handler_left_out_total",
			Help: "Runs that left the handler out for another reason than its conditions, by reason: switch, fallback, limit, wait or " +
				"failed. procaas runs list --left-out lists them. procaas runs make-up makes the calls.",
		}, append(handler[:3:3], "reason")),
		HandlerSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "procaas_handler_seconds",
			Help:    "Duration of one attempt of a handler.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 13), // 1 ms to 1 min
		}, handler),
		Accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "procaas_events_accepted_total",
			Help: "Events that this node accepted, without duplicates.",
		}),
		Runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_runs_total",
			Help: "Runs that ended on this node, by status.",
		}, []string{"pipeline", "status"}),
		RunSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "procaas_run_seconds",
			Help: "Duration of runs that succeeded on this node, by where it begins: accepted, with the acceptance of the event, or begun, " +
				"with the run.",
			Buckets: tookBuckets(),
		}, []string{"pipeline", "from"}),
		StageSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "procaas_stage_seconds",
			Help: "Duration of stages that are complete, by where it begins: accepted, with the acceptance of the event, or begun, with the " +
				"end of the stage before.",
			Buckets: tookBuckets(),
		}, []string{"pipeline", "stage", "from"}),
		InboxWaiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "procaas_inbox_waiting",
			Help: "Runs of all nodes that wait for their turn, their time or a node.",
		}),
		InboxOldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "procaas_inbox_oldest_seconds",
			Help: "How long the oldest due run has waited; 0 if none waits.",
		}),
		Checkpoint: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "procaas_checkpoint_seconds",
			Help:    "Time until a step of a run is durable, including the wait for the shared commit.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
		}),
	}
	m.LateTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_late_total",
		Help: "Runs that succeeded on this node later than the target of their pipeline, and stages that took longer than theirs. The stage is " +
			"empty for a run.",
	}, []string{"pipeline", "stage"})
	r.MustRegister(m.LateTotal, m.targets)
	cost := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"pipeline"})
		r.MustRegister(c)
		return c
	}
	m.CallSeconds = cost("procaas_pipeline_call_seconds_total", "Seconds of the calls of handlers on this node, added up.")
	m.CPUSeconds = cost("procaas_pipeline_cpu_seconds_total",
		"Processor time of this node, divided by calls, so it is an estimate. The pipeline is empty for the time in which nothing was called.")
	m.CPUSeconds.WithLabelValues("")
	m.RequestBytes = cost("procaas_pipeline_request_bytes_total", "Bytes of the bodies that calls sent to services.")
	m.ReplyBytes = cost("procaas_pipeline_reply_bytes_total", "Bytes that the replies of services took in the memory of this node.")
	m.StoredBytes = cost("procaas_pipeline_stored_bytes_total", "Bytes of the checkpoints that runs which ended on this node left in the store.")
	m.Passed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "procaas_runs_passed_total",
		Help: "Runs that began at once while others waited, in a place that this node keeps free for pipelines below their part.",
	})
	m.Quarantined = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "procaas_runs_quarantined_total",
		Help: "Runs that this node quarantined, because several nodes in a row died while they had the run.",
	})
	m.NotUndone = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "procaas_runs_not_undone_total",
		Help: "Runs that failed on this node with a compensation that failed for good, so what they have done is not undone.",
	})
	m.Damaged = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "procaas_runs_damaged_total",
		Help: "Runs that this node found damaged in the store and set aside. The others continue.",
	})
	m.Stalled = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "procaas_claims_stalled_seconds",
		Help: "How long this node has been unable to take any run from the store although runs are due; 0 if it can.",
	})
	m.Shed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_events_shed_total",
		Help: "Events that this node did not accept, by reason. overload: they arrive faster than the store writes; a request that is " +
			"refused unread counts as one event. client_left: the client no longer waits.",
	}, []string{"reason"})
	// Series that exist from the start, at 0, so that the first event is an increase. Otherwise an
	// alert by rate() would miss it.
	m.Shed.WithLabelValues(ShedOverload)
	m.Shed.WithLabelValues(ShedLeft)
	r.MustRegister(m.Shed)
	m.Untaken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_events_untaken_total",
		Help: "Events for an await with buffered: true that no run took, by reason. expired: one was kept for max-age, and ended as ignored. " +
			"full: its key already kept too many, and it ended as ignored. refused: the same, and its sender got buffer_full.",
	}, []string{"reason"})
	for _, reason := range []string{UntakenExpired, UntakenFull, UntakenRefused} {
		m.Untaken.WithLabelValues(reason)
	}
	r.MustRegister(m.Untaken)
	m.OverQuota = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_quota_refused_total",
		Help: "Events and tasks that this node refused because the quota of the submitter's token was used up.",
	}, []string{"token"})
	r.MustRegister(m.OverQuota)
	m.Tokens = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_token_requests_total",
		Help: "Requests of this node for access tokens of services with oauth2, by outcome: granted, refused, or failed, which the node repeats.",
	}, []string{"service", "outcome"})
	r.MustRegister(m.Tokens)
	m.ShadowRuns = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_shadow_runs_total",
		Help: "Ended runs in the share of a version in the shadow, by outcome: same, different, or skipped if the node could not compare it.",
	}, []string{"pipeline", "outcome"})
	m.ShadowDifferences = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_shadow_differences_total",
		Help: "Differences of runs in the shadow, by kind, such as request or slower. At most 8 of each run count.",
	}, []string{"pipeline", "kind"})
	m.ShadowCalls = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "procaas_shadow_calls_total",
		Help: "Calls that replays with a version in the shadow made for real.",
	})
	r.MustRegister(m.ShadowRuns, m.ShadowDifferences, m.ShadowCalls)
	m.limitValues = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "procaas_limit_values",
		Help: "Values that use a rate-limit with per now, such as customers, of all nodes. Each has a row in the store.",
	}, handler)
	m.LimitFull = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "procaas_limit_values_full_total",
		Help: "Calls that this node made wait because the store keeps no further value for their rate-limit with per.",
	})
	r.MustRegister(m.limitValues, m.LimitFull)
	m.TriggerTimes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_trigger_times_total",
		Help: "Due times of triggers that this node handled, by outcome: fired, refused if no pipeline takes the event, paused by operators, " +
			"running if overlap does not allow another run, or missed if no node ran.",
	}, []string{"trigger", "outcome"})
	r.MustRegister(m.TriggerTimes)
	m.StoreErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_store_errors_total",
		Help: "Failed calls of the store that the node retries, by operation.",
	}, []string{"operation"})
	for _, operation := range []string{
		"accept", "beat", "claim", "commit", "decide", "join", "leave", "limits", "outages", "probe", "read", "report",
		"trim", "usage",
	} {
		m.StoreErrors.WithLabelValues(operation)
	}
	m.StoreLost = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "procaas_store_lost",
		Help: "1 while this node refuses its store, because the store lost acknowledged data: it was set back, removed or replaced.",
	})
	r.MustRegister(m.StoreLost, m.HandlerCalls, m.HandlerGivenUp, m.HandlerLeftOut, m.HandlerSeconds, m.Accepted, m.Passed,
		m.Runs, m.RunSeconds, m.StageSeconds, m.Quarantined, m.NotUndone, m.Damaged, m.Stalled, m.InboxWaiting, m.InboxOldest, m.Checkpoint, m.StoreErrors, m.handlers, m.services, m.parked, m.behind, m.handled, m.piped)
	return m
}

// late counts what took longer than its target.
func (m *Metrics) late(t *Took) { m.LateTotal.WithLabelValues(t.Pipeline, t.Stage).Inc() }

// tookBuckets are the buckets of durations of runs and stages: from 5 ms to about 5 hours.
func tookBuckets() []float64 { return prometheus.ExponentialBuckets(tookFirst, tookFactor, tookBounds) }

const (
	tookFirst  = 0.005 // seconds
	tookFactor = 3.0
	tookBounds = 15
)

// Show makes the live gauges show the results of these functions.
func (m *Metrics) Show(handlers func() []HandlerInfo, services func() []guard.ServiceInfo, parked func() []ParkedRuns,
	behind func() []BehindRuns, present func() *definitions.Definition, targets func() []Target,
) {
	m.targets.read.Store(&targets)
	m.handlers.read.Store(&handlers)
	m.services.read.Store(&services)
	m.parked.read.Store(&parked)
	m.behind.read.Store(&behind)
	m.handled.read.Store(new(func() []tolerance { return handlerTolerances(present()) }))
	m.piped.read.Store(new(func() []tolerance { return pipelineTolerances(present()) }))
}

// Inbox sets the gauges of the inbox.
func (m *Metrics) Inbox(d store.Depth, now time.Time) {
	m.InboxWaiting.Set(float64(d.Waiting))
	m.InboxOldest.Set(age(d.Oldest, now))
}

// age returns how many seconds ago something was. It is 0 for the zero time and for a time in the
// near future.
func age(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(now.Sub(at).Seconds(), 0)
}

// The reasons of [Metrics].Untaken.
const (
	UntakenExpired = "expired"
	UntakenFull    = "full"
	UntakenRefused = "refused"
)

// Failed counts a failed call of the store.
func (m *Metrics) Failed(operation string) { m.StoreErrors.WithLabelValues(operation).Inc() }

// LimitValues sets how many values of limits the store keeps, by handler.
func (m *Metrics) LimitValues(rows map[string]int) {
	m.limitValues.Reset()
	for path, n := range rows {
		parts := model.SplitPath(path)
		m.limitValues.WithLabelValues(parts[:]...).Set(float64(n))
	}
}

// forget drops the series of a handler.
func (m *Metrics) forget(path [3]string) {
	m.HandlerGivenUp.DeleteLabelValues(path[:]...)
	m.HandlerSeconds.DeleteLabelValues(path[:]...)
	m.HandlerLeftOut.DeletePartialMatch(prometheus.Labels{"pipeline": path[0], "stage": path[1], "handler": path[2]})
	m.HandlerCalls.DeletePartialMatch(prometheus.Labels{"pipeline": path[0], "stage": path[1], "handler": path[2]})
}
