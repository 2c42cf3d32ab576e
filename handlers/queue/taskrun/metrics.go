package taskrun

import (
	"context"
	"strconv"
	"sync"
	"time"

	"procaas/engine/store"

	"github.com/prometheus/client_golang/prometheus"
)

// measuredTasks counts claimed and waiting tasks of a store.
type measuredTasks struct {
	store.TaskWork
	admin   store.TaskAdmin
	started *prometheus.CounterVec

	mu     sync.Mutex // guards the following
	at     time.Time
	stats  []store.TaskTypeStats
	tables []store.TaskTable

	naming sync.Mutex      // guards types
	types  map[string]bool // reported types; the store may have any number
}

// These bound what metrics read from a store.
const (
	taskStatsAge  = 5 * time.Second // how long counts are cached
	taskStatsTime = 3 * time.Second
	taskTypesMost = 200
)

var (
	taskLag = prometheus.NewDesc("procaas_queue_lag_seconds",
		"How long the most urgent ready task of a type has waited beyond its tolerance.", []string{"type"}, nil)
	taskCount = prometheus.NewDesc("procaas_queue_tasks", "Tasks of a type by state; failed ones are dead letters.",
		[]string{"type", "state"}, nil)
	taskGuess = prometheus.NewDesc("procaas_queue_tasks_estimated", "1 for each procaas_queue_tasks that is an estimate, from a sample of "+
		"a large table.", []string{"type", "state"}, nil)
	taskAsked = prometheus.NewDesc("procaas_queue_asked_timestamp_seconds", "When a worker last asked for tasks of a type; 0 if none "+
		"has within a month.", []string{"type"}, nil)
	taskRaise = prometheus.NewDesc("procaas_queue_raised_total", "Tasks of a type that waited longer than max-wait and went before "+
		"others, on all nodes.", []string{"type"}, nil)
)

var (
	taskDead = prometheus.NewDesc("procaas_queue_dead_rows", "Rows of a table of the queue that wait for a vacuum, as the server's "+
		"statistics have them.", []string{"table"}, nil)
	taskLive  = prometheus.NewDesc("procaas_queue_live_rows", "Rows of a table of the queue that are in use.", []string{"table"}, nil)
	taskBytes = prometheus.NewDesc("procaas_queue_table_bytes", "Size of a table of the queue with its indexes.", []string{"table"}, nil)
)

// MeasureTasks adds metrics to a task store: those of [store.TaskTypeStats] for each type, and
// procaas_queue_started_total, which distinguishes tasks that were taken within their tolerance
// from others. A task that is taken again counts again.
func MeasureTasks(db *store.TaskStore, registry prometheus.Registerer) *store.TaskStore {
	m := &measuredTasks{TaskWork: db.Work, admin: db.Admin, types: map[string]bool{}, started: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_queue_started_total", Help: "Tasks that were taken on this node, by whether that was within their tolerance.",
	}, []string{"type", "within"})}
	registry.MustRegister(m.started, m)
	measured := *db
	measured.Work = m
	return &measured
}

// ClaimTasks implements [store.TaskWork].
func (m *measuredTasks) ClaimTasks(ctx context.Context, c store.TaskClaim) ([]store.QueuedTask, error) {
	tasks, err := m.TaskWork.ClaimTasks(ctx, c)
	m.count(tasks)
	return tasks, err
}

// ExchangeTasks implements [store.TaskWork].
func (m *measuredTasks) ExchangeTasks(ctx context.Context, r store.TaskReport,
	c store.TaskClaim,
) ([]store.QueuedTask, []store.TaskRef, error) {
	tasks, lost, err := m.TaskWork.ExchangeTasks(ctx, r, c)
	m.count(tasks)
	return tasks, lost, err
}

// taskGrace is how long a task without tolerance may wait, because claims take time.
const taskGrace = time.Second

func (m *measuredTasks) count(tasks []store.QueuedTask) {
	for len(tasks) > 0 {
		n := alike(tasks)
		m.naming.Lock()
		m.started.WithLabelValues(m.label(tasks[0].Type), strconv.FormatBool(isWithin(&tasks[0]))).Add(float64(n))
		m.naming.Unlock()
		tasks = tasks[n:]
	}
}

// alike returns how many of the first tasks have the same labels, since a claim may take a thousand.
func alike(tasks []store.QueuedTask) int {
	first := &tasks[0]
	for i := range tasks {
		if t := &tasks[i]; t.Type != first.Type || isWithin(t) != isWithin(first) {
			return i
		}
	}
	return len(tasks)
}

// isWithin reports whether a task was taken within its tolerance.
func isWithin(t *store.QueuedTask) bool { return !t.Begun.After(t.Deadline.Add(taskGrace)) }

// otherTypes is the label of all types beyond the first ones.
const otherTypes = "other types"

// label returns the label of a type, and bounds their number. The caller holds naming.
func (m *measuredTasks) label(name string) string {
	if !m.types[name] {
		if len(m.types) == taskTypesMost {
			return otherTypes
		}
		m.types[name] = true
	}
	return name
}

// Describe implements [prometheus.Collector].
func (m *measuredTasks) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{taskLag, taskCount, taskGuess, taskAsked, taskRaise, taskDead, taskLive, taskBytes} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *measuredTasks) Collect(out chan<- prometheus.Metric) {
	types, tables := m.counts()
	for _, t := range tables {
		out <- prometheus.MustNewConstMetric(taskDead, prometheus.GaugeValue, float64(t.Dead), t.Name)
		out <- prometheus.MustNewConstMetric(taskLive, prometheus.GaugeValue, float64(t.Live), t.Name)
		out <- prometheus.MustNewConstMetric(taskBytes, prometheus.GaugeValue, float64(t.Bytes), t.Name)
	}
	for _, t := range types {
		out <- prometheus.MustNewConstMetric(taskLag, prometheus.GaugeValue, t.Lag.Seconds(), t.Type)
		for state, n := range map[store.TaskState]int64{
			store.TaskReady: t.Ready, store.TaskWaiting: t.Waiting, store.TaskStarting: t.Starting, store.TaskRunning: t.Running,
			store.TaskScheduled: t.Scheduled,
			store.TaskFailed:    t.Failed,
		} {
			out <- prometheus.MustNewConstMetric(taskCount, prometheus.GaugeValue, float64(n), t.Type, string(state))
		}
		for _, state := range t.Estimated {
			out <- prometheus.MustNewConstMetric(taskGuess, prometheus.GaugeValue, 1, t.Type, string(state))
		}
		asked := 0.0 // a time long ago, so that rules need not distinguish never from rarely
		if !t.Asked.IsZero() {
			asked = float64(t.Asked.UnixMilli()) / 1000
		}
		out <- prometheus.MustNewConstMetric(taskAsked, prometheus.GaugeValue, asked, t.Type)
		out <- prometheus.MustNewConstMetric(taskRaise, prometheus.CounterValue, float64(t.Raised), t.Type)
	}
}

// counts reads the counts, at most once in a while. It omits what cannot be counted now.
func (m *measuredTasks) counts() ([]store.TaskTypeStats, []store.TaskTable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) < taskStatsAge {
		return m.stats, m.tables
	}
	ctx, cancel := context.WithTimeout(context.Background(), taskStatsTime)
	defer cancel()
	stats, err := m.admin.TaskStats(ctx)
	m.at = time.Now()
	if err != nil {
		stats = nil
	}
	m.stats = stats[:min(len(stats), taskTypesMost)]
	if m.tables, err = m.admin.TaskTables(ctx); err != nil {
		m.tables = nil
	}
	return m.stats, m.tables
}
