package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"procaas/engine/clock"
	"procaas/engine/store"
)

const (
	tokensAtOnce = 500              // requests of one transaction
	sweepEvery   = 10 * time.Second // how often rows are removed that no request touches
)

// A tokenDesk asks the store for tokens of limits by value. While one transaction is under way, requests gather for the next.
type tokenDesk struct {
	n    *node
	kick chan struct{} // there are requests

	mu    sync.Mutex // guards the following
	queue []tokenRequest
}

// A tokenRequest is a request, and who hears of its answer. Nobody hears of a token that is returned.
type tokenRequest struct {
	ask  store.TokenAsk
	told func(store.Token)
}

func newTokenDesk(n *node) *tokenDesk { return &tokenDesk{n: n, kick: make(chan struct{}, 1)} }

// AskToken implements [guard.Tokens].
func (d *tokenDesk) AskToken(ask store.TokenAsk, told func(store.Token)) {
	d.add(tokenRequest{ask, told})
}

// ReturnToken implements [guard.Tokens].
func (d *tokenDesk) ReturnToken(ask store.TokenAsk) { d.add(tokenRequest{ask: ask}) }

func (d *tokenDesk) add(r tokenRequest) {
	d.mu.Lock()
	d.queue = append(d.queue, r)
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// next removes the requests of the next transaction from the queue.
func (d *tokenDesk) next() []tokenRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(d.queue), tokensAtOnce)
	out := d.queue[:n:n]
	d.queue = d.queue[n:]
	if len(d.queue) == 0 {
		d.queue = nil
	}
	return out
}

// run answers requests until the membership ends.
func (d *tokenDesk) run() {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-d.n.ctx.Done():
			d.close()
			return
		case <-sweep.C:
			d.sweep()
		case <-d.kick:
			for list := d.next(); len(list) > 0; list = d.next() {
				d.answer(list)
			}
		}
	}
}

// answer asks the store until it answers, or the membership ends. No call starts without a token.
func (d *tokenDesk) answer(list []tokenRequest) {
	for backoff := 10 * time.Millisecond; ; backoff = min(2*backoff, clock.MaxBackoff) {
		ctx, cancel := context.WithTimeout(d.n.ctx, clock.StoreTimeout)
		err := d.take(ctx, list)
		cancel()
		if err == nil || d.n.ctx.Err() != nil {
			return
		}
		d.n.d.Metrics.Failed("limits")
		d.n.log.Warn("tokens of limits cannot be taken, trying again", "error", err)
		if !clock.Pause(d.n.ctx, backoff) {
			return
		}
	}
}

// take asks the store once.
func (d *tokenDesk) take(ctx context.Context, list []tokenRequest) error {
	asks := make([]store.TokenAsk, len(list))
	for i := range list {
		asks[i] = list[i].ask
	}
	tokens, err := d.n.d.Store.Limits.TakeTokens(ctx, asks, store.LimitRows)
	if err != nil {
		return err
	}
	for i := range list {
		if tokens[i].Full {
			d.n.d.Metrics.LimitFull.Inc()
		}
		if told := list[i].told; told != nil {
			told(tokens[i])
		}
	}
	return nil
}

// sweep removes rows that no longer count, and counts the others.
func (d *tokenDesk) sweep() {
	ctx, cancel := context.WithTimeout(d.n.ctx, clock.StoreTimeout)
	defer cancel()
	rows, err := d.n.d.Store.Limits.SweepLimits(ctx)
	if err != nil {
		if d.n.ctx.Err() == nil {
			d.n.d.Metrics.Failed("limits")
		}
		return
	}
	d.n.d.Metrics.LimitValues(rows)
}

// close returns the tokens of calls that have not started, if the node has left. The runs may start them elsewhere.
func (d *tokenDesk) close() {
	if !errors.Is(context.Cause(d.n.ctx), errLeft) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.n.ctx), endGrace)
	defer cancel()
	var back []tokenRequest
	for list := d.next(); len(list) > 0; list = d.next() {
		for _, r := range list {
			if r.told == nil {
				back = append(back, r)
			}
		}
	}
	if len(back) > 0 && d.take(ctx, back) != nil {
		d.n.d.Metrics.Failed("limits")
	}
}

// promptTokens answers at once, for a node in virtual time.
type promptTokens struct{ n *node }

// AskToken implements [guard.Tokens].
func (p promptTokens) AskToken(ask store.TokenAsk, told func(store.Token)) {
	tokens, err := p.n.d.Store.Limits.TakeTokens(p.n.ctx, []store.TokenAsk{ask}, store.LimitRows)
	if err != nil { // only a store that ends
		tokens = []store.Token{{Wait: time.Second}}
	}
	told(tokens[0])
}

// ReturnToken implements [guard.Tokens].
func (p promptTokens) ReturnToken(ask store.TokenAsk) { p.AskToken(ask, func(store.Token) {}) }
