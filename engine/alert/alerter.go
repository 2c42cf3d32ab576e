package alert

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/urls"
	"procaas/engine"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/stats"
	"procaas/engine/store"
)

const (
	sweepEvery = time.Second
	sweepGap   = 100 * time.Millisecond // the shortest time between two sweeps
	maxPending = 4096                   // notices between two sweeps
	checkMost  = 20                     // runs that one sweep checks
	adoptMost  = 100                    // runs of each kind that are checked when the node starts
	adoptAgain = 10 * time.Second       // pause if the store cannot be reached
	askTime    = 5 * time.Second        // timeout of one question to the engine
)

// Options says where alerts go, and what they contain.
type Options struct {
	Alertmanagers []string          // URLs; each gets all alerts
	Webhooks      []string          // URLs
	Labels        map[string]string // added to all alerts, such as the name of the cluster

	Server  string                // address of the API for links and commands
	Node    string                // the name of this node
	Log     *slog.Logger          // nil logs nothing
	Metrics prometheus.Registerer // nil counts nothing

	// Breakers stop requests to receivers that do not answer. Nil means the alerter's own.
	Breakers *outbound.Breakers
}

// An Engine answers an [Alerter]'s questions.
type Engine interface {
	Handler(path string) (stats.HandlerInfo, bool)
	Handlers() []stats.HandlerInfo
	Services() []guard.ServiceInfo
	Backlog() stats.BacklogView
	Late() []stats.LateRuns
	Canary() *canary.State
	Healthy(ctx context.Context) error
	Degraded() error
	Damaged() error
	RunByID(ctx context.Context, id string) (checkpoint.RunView, error)
	List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error)
	Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error)
}

var _ Engine = (*engine.Engine)(nil)

// An Alerter turns notices into alerts. A nil Alerter sends nothing.
type Alerter struct {
	o       Options
	senders []*sender
	dropped prometheus.Counter
	wake    chan struct{}

	mu      sync.Mutex // guards pending
	pending []model.Notice
}

// New makes an alerter, or returns nil if there are no receivers. It sends nothing before Run.
func New(o Options) (*Alerter, error) {
	if len(o.Alertmanagers)+len(o.Webhooks) == 0 {
		return nil, nil
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Breakers == nil {
		o.Breakers = new(outbound.Breakers)
	}
	a := &Alerter{o: o, wake: make(chan struct{}, 1)}
	counts := newCounts(o.Metrics)
	a.dropped = counts.dropped
	for kind, list := range map[string][]string{kindAlertmanager: o.Alertmanagers, kindWebhook: o.Webhooks} {
		for _, text := range list {
			u, err := parseURL(text)
			if err != nil {
				return nil, err
			}
			a.senders = append(a.senders, newSender(kind, u, &a.o, counts))
		}
	}
	return a, nil
}

// parseURL parses the URL of a receiver. Errors do not contain the URL, because it may have a
// password, and that of a webhook is a secret as a whole.
func parseURL(text string) (*url.URL, error) {
	u, err := urls.Parse(text)
	if err != nil {
		return nil, errors.New("want an absolute http or https URL of a host that can exist, such as http://alertmanager:9093")
	}
	return u, nil
}

// Notice accepts a notice. It returns at once: use it for [engine.Options].Notify.
func (a *Alerter) Notice(n model.Notice) {
	a.mu.Lock()
	if len(a.pending) < maxPending {
		a.pending = append(a.pending, n)
	} else {
		a.dropped.Inc()
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take returns the notices since its last call.
func (a *Alerter) take() []model.Notice {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.pending
	a.pending = nil
	return list
}

// Run sends alerts until ctx ends. Then it tries once more to send what is left. Firing alerts
// stay: the next process continues with those that it can see. After stopping is closed, the node
// need not be healthy.
func (a *Alerter) Run(ctx context.Context, stopping <-chan struct{}, e Engine) {
	if a == nil {
		return
	}
	var senders sync.WaitGroup
	defer senders.Wait()
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop() // after the last sweep
	for _, s := range a.senders {
		senders.Go(func() { s.run(sending) })
	}
	b := newBook()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	adopted, adopt := false, time.Now()
	for clock.Pause(ctx, sweepGap) {
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-tick.C:
		}
		if !adopted && !time.Now().Before(adopt) {
			adopted, adopt = a.adopt(ctx, e), time.Now().Add(adoptAgain)
		}
		select {
		case <-stopping:
			b.health(nil, nil, nil, time.Now())
		default:
			behind := e.Degraded()
			if errors.Is(behind, store.ErrDamaged) {
				behind = nil // it has an alert of its own
			}
			b.health(e.Healthy(ctx), behind, e.Damaged(), time.Now())
		}
		a.check(ctx, b, e)
		a.sweep(b, e)
	}
	a.sweep(b, e) // for the last notices
}

// sweep updates the book and passes on what has changed.
func (a *Alerter) sweep(b *book, e Engine) {
	now := time.Now()
	for _, n := range a.take() {
		b.heed(n, now)
	}
	for _, alert := range b.sweep(a.o.Node, e, now) {
		for _, s := range a.senders {
			s.put(alert)
		}
	}
}

// check finds runs that no longer wait for an operator.
func (a *Alerter) check(ctx context.Context, b *book, e Engine) {
	now := time.Now()
	for _, run := range b.due(now, checkMost) {
		limited, cancel := context.WithTimeout(ctx, askTime)
		v, err := e.RunByID(limited, run)
		cancel()
		away := errors.Is(err, store.ErrAway) // only the part of the store with this run: check the others
		if err != nil && !away && !errors.Is(err, store.ErrNotFound) {
			return // the store is unreachable; next time
		}
		stands := v.Status == model.Failed || v.Status == model.Parked && v.Due == nil
		b.found(run, away || err == nil && stands, now)
	}
}

// adopt reads blocked keys and waiting runs from before this process, as if there had been notices.
// It returns false if the store could not be read.
func (a *Alerter) adopt(ctx context.Context, e Engine) bool {
	ctx, cancel := context.WithTimeout(ctx, 4*askTime)
	defer cancel()
	for _, status := range []model.Status{model.Failed, model.Parked} {
		runs, _, err := e.List(ctx, store.RunFilter{Status: status, Limit: adoptMost})
		if err != nil {
			return false
		}
		for _, v := range runs {
			if status == model.Parked && v.Due != nil {
				continue
			}
			n := model.Notice{Kind: model.NoticeRunParked, Path: stuckAt(v), Error: v.Error, Run: v.ID, Flow: v.Flow, Key: v.Key}
			if status == model.Parked {
				n.Error = v.Reason
				a.Notice(n)
			}
			if model.IsUndo(v.FailedPath) {
				n.Kind = model.NoticeRunFailed
				a.Notice(n)
			}
			entity, err := e.Entity(ctx, v.Flow, v.Key)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return false
			}
			if entity.BlockedBy == v.ID {
				n.Kind = model.NoticeKeyBlocked
				a.Notice(n)
			}
		}
	}
	return true
}

// stuckAt returns the path of the handler at which a run has failed or waits.
func stuckAt(v checkpoint.RunView) string {
	if v.FailedPath != "" {
		return v.FailedPath
	}
	for _, h := range v.Handlers {
		if h.Outcome == model.OutcomeUnknown {
			return h.Path
		}
	}
	return v.Pipeline
}
