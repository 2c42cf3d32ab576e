package guard

import (
	"fmt"
	"sync"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/core"
	"procaas/engine/store"
)

// Limits by value are in the store, because the runs of a value may come to any node. A call takes its token before it waits
// for anything else, so that a flood of one value keeps no place from others. A token that has become old meanwhile is
// exchanged: calls must start when their tokens are taken, or too many would start at once.

// Tokens are the tokens of limits by value.
type Tokens interface {
	// AskToken asks for a token. It calls told once, maybe before it returns.
	AskToken(ask store.TokenAsk, told func(store.Token))

	// ReturnToken returns a token that no call has used.
	ReturnToken(ask store.TokenAsk)
}

const (
	// longestDebt bounds the time until a bucket is full again, so that its sums fit an int64.
	longestDebt = int64(1) << 60

	// oldestSlack bounds how often the age of a token may double. See [Pass.slack].
	oldestSlack = 6
)

// A token is the request of a call for a token, and its answer.
type token struct {
	from  Tokens
	ask   store.TokenAsk
	until time.Time // when to ask again; zero before somebody has looked at the answer

	mu   sync.Mutex // guards the following
	got  *store.Token
	at   time.Time // when the answer came
	left bool      // the call needs it no more
}

// tell sets the answer.
func (t *token) tell(got store.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got, t.at = &got, time.Now()
	if t.left {
		t.giveBack()
	}
}

// leave returns the token, now or when it comes.
func (t *token) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	if t.got != nil {
		t.giveBack()
	}
}

// giveBack returns the token if it was granted. The caller holds the lock.
func (t *token) giveBack() {
	if t.got.Until != 0 {
		back := t.ask
		back.Back = t.got.Until
		t.from.ReturnToken(back)
	}
}

// answer returns the answer, or nil before it has come.
func (t *token) answer() *store.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.got
}

// old reports whether a token was granted too long ago for a call to start with it.
func (t *token) old(p *Pass) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.got != nil && t.got.Until != 0 && time.Since(t.at) > ShortHold<<min(p.slack, oldestSlack)
}

// hasOwnValue reports whether the handler has a limit by value.
func hasOwnValue(r *tree.RateLimit) bool { return r != nil && r.Per != nil }

// request asks for a token of a call.
func (p *Pass) request(a core.Ask, waited bool) *token {
	r := a.Step.Handler.RateLimit
	step := max(1, int64(float64(time.Second)/r.Rate.PerSecond()))
	t := &token{from: p.Tokens, ask: store.TokenAsk{
		Limit: a.Step.Path, Value: a.Value, Step: time.Duration(step), Burst: max(1, min(int64(burstOf(r)), longestDebt/step)), Waited: waited,
		Skips: r.Over == overSkip && !a.Step.Handler.IsCritical(),
	}}
	if p.tokens == nil {
		p.tokens = map[string]*token{}
	}
	p.tokens[a.Ref] = t
	wake := p.Wake
	p.Tokens.AskToken(t.ask, func(got store.Token) {
		t.tell(got)
		wake()
	})
	return t
}

// token takes the token of a call. ok is false if the call may not start now.
func (g *Guard) token(a core.Ask, p *Pass, now time.Time) (v core.Verdict, ok bool) {
	r := a.Step.Handler.RateLimit
	if !hasOwnValue(r) || p.Tokens == nil {
		return core.Verdict{}, true
	}
	t := p.tokens[a.Ref]
	if t == nil {
		t = p.request(a, a.Waited)
	}
	got := t.answer()
	if got != nil && got.Until == 0 && !t.until.IsZero() && !t.until.After(now) {
		t = p.request(a, true)
		got = t.answer()
	}
	switch {
	case got == nil:
		v = core.Verdict{Hold: now.Add(ShortHold), Turn: true}
		if a.Waited {
			v.Reason = rateReason(r)
		}
		return v, false
	case got.Until != 0:
		return core.Verdict{}, true
	}
	reason := rateReason(r)
	if got.Full {
		reason += fmt.Sprintf(", and %d values use up theirs already", store.LimitRows)
	}
	p.leavePlace(a.Ref, now)
	if t.ask.Skips {
		delete(p.tokens, a.Ref)
		return core.Verdict{Skip: true, Reason: reason}, false
	}
	if t.until.IsZero() {
		t.until = now.Add(max(got.Wait, 1) + time.Millisecond - 1).Truncate(time.Millisecond) // as the store keeps it, and not earlier
	}
	return core.Verdict{Hold: t.until, Cause: a.Step.Path + causeRate, Reason: reason, Turn: true}, false
}

// exchange replaces the token of a call that has waited too long for other things. It reports whether the call has to wait for
// the answer.
func (g *Guard) exchange(a core.Ask, p *Pass, now time.Time) (v core.Verdict, waits bool) {
	t := p.tokens[a.Ref]
	switch {
	case t == nil:
		return core.Verdict{}, false
	case t.old(p):
		t.leave()
		p.request(a, true)
		return g.token(a, p, now)
	case a.Step.Computes() || a.Step.Handler.Await != nil || a.Step.Callee != nil:
		delete(p.tokens, a.Ref) // used: nothing is called that Begin would hear of
	}
	return core.Verdict{}, false
}

// Begin notes that a call starts. It returns false if its token is too old: saving has taken too long. Then the caller must not
// start the call, but leave its places. Each time, the next token may be twice as old, because a slow store must not keep calls
// back for ever.
func (p *Pass) Begin(ref string) bool {
	t := p.tokens[ref]
	if t == nil {
		return true
	}
	if t.old(p) {
		p.slack++
		return false
	}
	delete(p.tokens, ref)
	return true
}

// Asks reports whether a call waits for the answer of the store about its token.
func (p *Pass) Asks(ref string) bool {
	t := p.tokens[ref]
	return t != nil && t.answer() == nil
}

// leaveToken returns the token of a call that does not start.
func (p *Pass) leaveToken(ref string) {
	if t := p.tokens[ref]; t != nil {
		delete(p.tokens, ref)
		t.leave()
	}
}

// rateReason describes for people why a handler waits or is skipped. It names no value of a limit by value, because the value
// may be personal.
func rateReason(r *tree.RateLimit) string {
	return "over its rate limit of " + r.Text()
}
