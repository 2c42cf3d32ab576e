package subscriptions

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/budget"
	"procaas/engine/intake"
	"procaas/engine/secrets"
	"procaas/engine/store"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/remote"
)

// An Engine is what subscriptions need of the engine.
type Engine interface {
	// Submit accepts events, see [intake.Acceptor.Submit].
	Submit(ctx context.Context, events []intake.Submission) ([]intake.Submitted, error)
	HeldAt(path string) (reason string, held bool)
	NodeNumber() int64

	Bundle() *tree.Bundle
	Reloaded() <-chan struct{} // to be called before Bundle
}

// Options are what the readers of a node use. All fields are required, but for Memory and Submitted.
type Options struct {
	Name    string // of the node
	Engine  Engine
	Store   store.Store
	Brokers map[string]broker.Kind
	Secrets func(secrets.Use) (string, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Memory  *budget.Memory
	Metrics *Metrics
	Now     func() time.Time
	Log     *slog.Logger

	// Submitted counts what programs have submitted to the store and nobody has taken yet, and removes it if remove is set.
	Submitted func(ctx context.Context, is func(*broker.Message) bool, remove bool) (int, error)
}

// Readers are the subscriptions of a node.
type Readers struct {
	Options
	letters letters

	mu  sync.Mutex // guards all
	all map[string]*reader
}

// New returns the readers of a node. They read nothing before Run.
func New(o Options) *Readers {
	return &Readers{Options: o, letters: letters{o.Store.Documents}, all: map[string]*reader{}}
}

func (m *Readers) declared() []*language.Subscription { return language.All(m.Engine.Bundle()) }

// Run reads the subscriptions of the present definition until ctx ends.
func (m *Readers) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := m.Engine.Reloaded()
		m.follow(ctx, m.declared())
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	m.follow(ctx, nil)
}

// follow starts and stops readers. One goes on if only its mapping has changed.
func (m *Readers) follow(ctx context.Context, want []*language.Subscription) {
	stopped := m.remove(want)
	for _, r := range stopped {
		r.stop()
	}
	for _, r := range stopped {
		<-r.done // without the mutex, which it may need to end
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range want {
		if m.all[s.ID] != nil {
			continue
		}
		r := &reader{m: m, done: make(chan struct{}), seen: seen{metrics: m.Metrics, id: s.ID}}
		r.sub.Store(s)
		var inner context.Context
		inner, r.stop = context.WithCancel(ctx)
		m.all[s.ID] = r
		go r.run(inner)
	}
}

// remove removes the readers that must stop, and gives the others their present definition.
func (m *Readers) remove(want []*language.Subscription) (stopped []*reader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.all {
		i := slices.IndexFunc(want, func(s *language.Subscription) bool { return s.ID == id })
		if i >= 0 && want[i].Reads() == r.sub.Load().Reads() {
			r.sub.Store(want[i])
			continue
		}
		stopped = append(stopped, r)
		delete(m.all, id)
	}
	return stopped
}

// patience is how long a reader waits before it looks again whether its subscription is free. A node that reads many waits longer, so
// that nodes that start together share them.
func (m *Readers) patience() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	owned := 0
	for _, r := range m.all {
		if r.seen.isOwned() {
			owned++
		}
	}
	return lookEvery + time.Duration(min(owned, 20))*lookEvery/10
}

// ErrUnknown reports a subscription or a dead letter that does not exist.
var ErrUnknown = errors.New("unknown")

func (m *Readers) find(id string) (*language.Subscription, error) {
	s := language.Of(m.Engine.Bundle(), id)
	if s == nil {
		var known []string
		for _, s := range m.declared() {
			known = append(known, s.ID)
		}
		hint := "procaas subscriptions list shows those that are declared"
		if near := diag.Suggest(id, known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return nil, fmt.Errorf("%w subscription %q, which no file declares; %s", ErrUnknown, id, hint)
	}
	return s, nil
}

// DeadLetters lists the dead letters of a subscription, oldest first.
func (m *Readers) DeadLetters(ctx context.Context, id string) ([]remote.DeadLetter, error) {
	if _, err := m.find(id); err != nil {
		return nil, err
	}
	all, _, err := m.letters.list(ctx, id)
	out := []remote.DeadLetter{}
	for _, x := range all {
		out = append(out, x.DeadLetter)
	}
	return out, err
}

// DeadLetter reads a dead letter with its message.
func (m *Readers) DeadLetter(ctx context.Context, id, letter string) (out remote.Message, err error) {
	if _, err := m.find(id); err != nil {
		return out, err
	}
	chosen, err := m.chosen(ctx, id, remote.Choice{IDs: []string{letter}})
	if err != nil {
		return out, err
	}
	message, err := m.letters.message(ctx, id, chosen[0])
	out = remote.Message{DeadLetter: chosen[0].DeadLetter, Headers: message.Headers, Body: string(message.Body)}
	if !utf8.Valid(message.Body) {
		out.Body, out.Base64 = base64.StdEncoding.EncodeToString(message.Body), true
	}
	return out, err
}

// chosen returns the dead letters that an operator has chosen.
func (m *Readers) chosen(ctx context.Context, id string, c remote.Choice) ([]listed, error) {
	all, _, err := m.letters.list(ctx, id)
	if err != nil || c.All {
		return all, err
	}
	var out []listed
	for _, letter := range c.IDs {
		i := slices.IndexFunc(all, func(x listed) bool { return x.ID == letter })
		if i < 0 {
			return nil, fmt.Errorf("%w dead letter %q of subscription %s; procaas subscriptions dead-letters %s lists them", ErrUnknown, letter, id, id)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// Discard forgets dead letters.
func (m *Readers) Discard(ctx context.Context, id string, c remote.Choice, by store.Actor) (done remote.Changed, err error) {
	s, err := m.find(id)
	if err != nil {
		return done, err
	}
	chosen, err := m.chosen(ctx, id, c)
	if err != nil || len(chosen) == 0 {
		return done, err
	}
	return remote.Changed{Changed: len(chosen)}, m.settle(ctx, s, "discarded", chosen, nil, by)
}

// settle removes dead letters, notes why others stay, and audits what was done with the first.
func (m *Readers) settle(ctx context.Context, s *language.Subscription, what string, gone []listed, stay map[string]string, by store.Actor) error {
	if len(gone) == 0 && len(stay) == 0 {
		return nil
	}
	ids := make([]string, len(gone))
	for i, x := range gone {
		ids[i] = x.ID
	}
	var audits []store.Audited
	if len(ids) > 0 {
		text := fmt.Sprintf("%s %d: %s", what, len(ids), ids[0])
		if len(ids) > 1 {
			text += " to " + ids[len(ids)-1]
		}
		audits = []store.Audited{{Kind: store.AuditDeadLetter, Name: s.Path(), By: by, After: store.AuditText(text)}}
	}
	return m.letters.settle(ctx, s.ID, ids, stay, audits)
}

// shownReasons is how many reasons an answer has.
const shownReasons = 10

// Retry submits dead letters again, in their order, by the present definition. One that became an event is one no longer. Another one
// has the new reason why it did not.
func (m *Readers) Retry(ctx context.Context, id string, c remote.Choice, by store.Actor) (done remote.Changed, err error) {
	s, err := m.find(id)
	if err != nil {
		return done, err
	}
	chosen, err := m.chosen(ctx, id, c)
	if err != nil {
		return done, err
	}
	var gone []listed
	stay := map[string]string{}
	for _, x := range chosen {
		outcome, why, err := m.again(ctx, s, x)
		if err != nil {
			return done, errors.Join(err, m.settle(ctx, s, "retried", gone, stay, by))
		}
		if why == "" {
			gone = append(gone, x)
			m.retried(ctx, id, outcome)
			continue
		}
		stay[x.ID] = why
		done.Left++
		if len(done.Reasons) < shownReasons {
			done.Reasons = append(done.Reasons, x.ID+": "+why)
		}
	}
	done.Changed = len(gone)
	return done, m.settle(ctx, s, "retried", gone, stay, by)
}

// retried counts a dead letter that was retried on this node. The list shows the count if this node reads the subscription.
func (m *Readers) retried(ctx context.Context, id, outcome string) {
	m.mu.Lock()
	r := m.all[id]
	m.mu.Unlock()
	if r != nil {
		r.seen.count(outcome, 1)
		r.publish(ctx)
	}
}

// again submits a dead letter. It returns what became of it, or why that is no event.
func (m *Readers) again(ctx context.Context, s *language.Subscription, x listed) (outcome, why string, err error) {
	if x.Cut {
		return "", x.Reason, nil
	}
	message, err := m.letters.message(ctx, s.ID, x)
	if err != nil {
		return "", "", err
	}
	in, wanted, err := Map(s, &message)
	if err != nil {
		return "", err.Error(), nil
	}
	if !wanted {
		return outcomeIgnored, "", nil
	}
	results, err := m.Engine.Submit(ctx, []intake.Submission{in})
	if err != nil {
		return "", "", err
	}
	result := results[0]
	if refused, ok := errors.AsType[*intake.Error](result.Err); ok {
		return "", refused.Message, nil
	}
	if result.Receipt.Duplicate {
		return outcomeDuplicate, "", result.Err
	}
	return outcomeAccepted, "", result.Err
}
