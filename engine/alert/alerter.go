package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	sweepGap   = 100 * time.Millisecond // at least, however much happens
	maxPending = 4096                   // notices between two sweeps
	checkMost  = 20                     // runs that are looked at in one sweep
	adoptMost  = 100                    // runs of each kind that are looked at when the node starts
	adoptAgain = 10 * time.Second       // when the store could not be asked
	askTime    = 5 * time.Second        // of one question to the engine
)

// Options says who is told, and what.
type Options struct {
	Alertmanagers []string          // URLs; each is told everything
	Webhooks      []string          // URLs
	Labels        map[string]string // that all alerts get, such as the name of the cluster

	Server  string                // where people reach the API: links and commands name it
	Node    string                // the name of this node
	Log     *slog.Logger          // nothing is logged when nil
	Metrics prometheus.Registerer // nothing is counted when nil

	// Breakers keep requests from receivers that do not answer; the alerter has its own when nil.
	Breakers *outbound.Breakers
}

// An Engine is what an [Alerter] asks.
type Engine interface {
	Handler(path string) (stats.HandlerInfo, bool)
	Handlers() []stats.HandlerInfo
	Services() []guard.ServiceInfo
	Backlog() stats.BacklogView
	Canary() *canary.State
	Healthy(ctx context.Context) error
	Degraded() error
	RunByID(ctx context.Context, id string) (checkpoint.RunView, error)
	List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error)
	Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error)
}

var _ Engine = (*engine.Engine)(nil)

// An Alerter takes notices in and tells people. It may be nil, which tells nobody.
type Alerter struct {
	o       Options
	senders []*sender
	dropped prometheus.Counter
	wake    chan struct{}

	mu      sync.Mutex // guards pending
	pending []model.Notice
}

// New makes an alerter; nil when nobody is to be told. Nothing is told before Run.
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

// parseURL reads where somebody is told. Errors do not repeat the URL: it may hold
// a password, and that of a webhook is one as a whole.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("want an absolute URL, such as http://alertmanager:9093, have one that cannot be read")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("want an absolute URL, such as http://alertmanager:9093, have one of the scheme %q and the host %q", u.Scheme,
			u.Host)
	}
	return u, nil
}

// Notice takes a notice in. It returns at once: it is for [engine.Options].Notify.
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

// take returns the notices that have come since it was called last.
func (a *Alerter) take() []model.Notice {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.pending
	a.pending = nil
	return list
}

// Run tells people what happens until ctx ends. What it then could not tell yet it
// tries to tell once more. Alerts that fire are not ended by that: the next
// process continues with those that it can see. When stopping is closed, the node
// need not be healthy any more.
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
			b.health(nil, nil, time.Now())
		default:
			b.health(e.Healthy(ctx), e.Degraded(), time.Now())
		}
		a.check(ctx, b, e)
		a.sweep(b, e)
	}
	a.sweep(b, e) // what has happened at the very end
}

// sweep brings the book up to date and hands out what has changed.
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

// check finds out which runs do not wait for an operator any more.
func (a *Alerter) check(ctx context.Context, b *book, e Engine) {
	now := time.Now()
	for _, run := range b.due(now, checkMost) {
		limited, cancel := context.WithTimeout(ctx, askTime)
		v, err := e.RunByID(limited, run)
		cancel()
		away := errors.Is(err, store.ErrAway) // only where this run is: it must not keep the others from being looked at
		if err != nil && !away && !errors.Is(err, store.ErrNotFound) {
			return // the store is away; next time
		}
		waits := away || err == nil && (v.Status == model.Failed || v.Status == model.Parked && v.Due == nil)
		b.found(run, waits, now)
	}
}

// adopt looks for keys that are blocked and runs that stand still since before this
// process began, and takes them in as if they had been told. It is false when the
// store could not be asked.
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

// stuckAt is the path of the handler at which a run has failed or stands still.
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
