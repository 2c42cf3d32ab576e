package subscriptions

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/budget"
	"procaas/engine/clock"
	"procaas/engine/intake"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/remote"
)

// A reader reads one subscription, as long as this node owns it and nobody holds it.
//
// What it promises: a message is acknowledged when its event, or its dead letter, is durable. Events have the place of their message as
// id, so a repeated delivery is a duplicate. Messages are stored in their order. One batch is stored while the next one is fetched,
// and nothing more.
type reader struct {
	m    *Readers
	sub  atomic.Pointer[language.Subscription] // the present definition; its connection never changes
	seen seen

	stop context.CancelFunc
	done chan struct{} // closed when run has returned
}

// These bound the work of a reader.
const (
	lookEvery = 500 * time.Millisecond // how often it looks whether it may read
	tellEvery = 2 * time.Second        // how often it asks for the lag, and tells other nodes
)

// The causes for which a reader stops to read without an error.
var errHeld = errors.New("operators hold the subscription")

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	defer close(r.done)
	defer r.release(context.WithoutCancel(ctx))
	backoff := clock.Backoff{First: lookEvery / 2, Most: 10 * time.Second}
	for ctx.Err() == nil {
		read, err := r.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		if read {
			backoff.Reset()
		}
		if err != nil && !errors.Is(err, errHeld) && !errors.Is(err, broker.ErrMoved) {
			r.trouble(ctx, err)
			backoff.Pause(ctx)
		}
	}
}

// turn reads until it may not, or something fails. read reports that it got messages.
func (r *reader) turn(ctx context.Context) (read bool, err error) {
	s := r.sub.Load()
	if why, held := r.m.Engine.HeldAt(s.Path()); held {
		r.tell(ctx, remote.Held, why)
		clock.Pause(ctx, lookEvery)
		return false, nil
	}
	mine, err := r.claim(ctx)
	if err != nil || !mine {
		if !mine {
			clock.Pause(ctx, r.m.patience())
		}
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source, err := r.open(ctx)
	if err != nil {
		return false, err
	}
	defer source.Close()
	r.connected(ctx)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return r.watch(ctx, source) })
	batches := make(chan batch) // one is stored, and the next one fetched
	work.Go(func() error {
		defer close(batches)
		return r.fetch(ctx, source, batches, &read)
	})
	work.Go(func() error {
		for b := range batches {
			err := r.settle(ctx, source, b.messages)
			b.memory.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
	err = work.Wait()
	return read, err
}

// A batch has messages, and the memory that they take.
type batch struct {
	messages []broker.Message
	memory   *budget.Holder
}

// decoded is how many times its size a message may take when it is decoded.
const decoded = 4

// fetch fetches batches, each when there is memory for it.
func (r *reader) fetch(ctx context.Context, source broker.Source, out chan<- batch, read *bool) error {
	memory := r.m.Memory.Hold(budget.Messages)
	defer func() { memory.Close() }()
	if err := memory.Take(ctx, max(broker.MaxBytes, source.Most())); err != nil {
		return err
	}
	for {
		messages, err := source.Fetch(ctx)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			continue
		}
		*read = true
		size := 0
		for i := range messages {
			size += decoded * messages[i].Size()
		}
		memory.Set(size)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case out <- batch{messages, memory}:
		}
		memory = r.m.Memory.Hold(budget.Messages)
		if err := memory.Take(ctx, max(broker.MaxBytes, source.Most())); err != nil {
			return err
		}
	}
}

// watch ends the reading when operators hold the subscription or another node owns it. It tells the others how it goes.
func (r *reader) watch(ctx context.Context, source broker.Source) error {
	var told time.Time
	for clock.Pause(ctx, lookEvery) {
		if why, held := r.m.Engine.HeldAt(r.sub.Load().Path()); held {
			r.tell(ctx, remote.Held, why)
			return errHeld
		}
		if time.Since(told) < tellEvery {
			continue
		}
		told = time.Now()
		if mine, err := r.owns(ctx); err == nil && !mine {
			return broker.ErrMoved
		}
		lag, err := source.Lag(ctx)
		if err != nil {
			return fmt.Errorf("ask for the lag: %w", err)
		}
		r.seen.lag(lag)
		r.tell(ctx, "", "")
	}
	return nil
}

// An item is a message on its way to an event.
type item struct {
	message broker.Message
	in      intake.Submission
}

// settle stores what a batch has, and acknowledges it.
func (r *reader) settle(ctx context.Context, source broker.Source, messages []broker.Message) error {
	s := r.sub.Load()
	parts := make([][]item, s.Parallelism)
	var lost []dead
	ignored := 0
	for _, m := range messages {
		in, wanted, err := Map(s, &m)
		switch {
		case err != nil:
			lost = append(lost, dead{m, err.Error()})
		case !wanted:
			ignored++
		default:
			i := partOf(in.Event.Key, len(parts))
			parts[i] = append(parts[i], item{m, in})
		}
	}
	done := make([]stored, len(parts))
	work, inner := errgroup.WithContext(ctx)
	for i, part := range parts {
		work.Go(func() (err error) {
			done[i], err = r.store(inner, part)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	var again []string
	for _, part := range done {
		lost, again = append(lost, part.refused...), append(again, part.again...)
	}
	r.repeated(ctx, again)
	if err := r.bury(ctx, s, lost); err != nil {
		return err
	}
	r.seen.count(outcomeIgnored, ignored)
	r.recovered(ctx)
	return source.Done(ctx, messages)
}

// partOf returns the part of a key. Messages of a key are stored one after the other.
func partOf(key string, parts int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(parts))
}

// storePause is the longest pause between tries to store a batch.
const storePause = 2 * time.Second

// A stored says which events of a part are not new.
type stored struct {
	refused []dead   // for good
	again   []string // ids of events that were there already
}

// store stores events in order, however long the store needs. The order is kept also when it tries again: what was refused for a while is
// refused together for a key.
func (r *reader) store(ctx context.Context, items []item) (out stored, err error) {
	backoff := clock.Backoff{First: 20 * time.Millisecond, Most: storePause}
	for len(items) > 0 {
		all := make([]intake.Submission, len(items))
		for i, x := range items {
			all[i] = x.in
		}
		results, err := r.m.Engine.Submit(ctx, all)
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if over, ok := errors.AsType[*intake.OverloadError](err); ok {
			clock.Pause(ctx, over.After)
			continue
		}
		var left []item
		for i, result := range results {
			why, final := errors.AsType[*intake.Error](result.Err)
			switch {
			case final:
				out.refused = append(out.refused, dead{items[i].message, why.Message})
			case result.Err != nil:
				left, err = append(left, items[i]), result.Err
			case result.Receipt.Duplicate:
				r.seen.count(outcomeDuplicate, 1)
				out.again = append(out.again, items[i].in.Event.ID)
			default:
				r.seen.count(outcomeAccepted, 1)
			}
		}
		if results != nil {
			items = left
		}
		if err != nil {
			r.trouble(ctx, fmt.Errorf("store events: %w", err))
			backoff.Pause(ctx)
		}
	}
	return out, nil
}

// bury keeps dead letters. It waits while there is no room for them: nothing is acknowledged that is nowhere.
func (r *reader) bury(ctx context.Context, s *language.Subscription, lost []dead) error {
	if len(lost) == 0 {
		return nil
	}
	backoff := clock.Backoff{First: 20 * time.Millisecond, Most: storePause}
	for {
		kept, err := r.m.letters.add(ctx, s.ID, r.sub.Load().DeadLetters, lost, r.m.Now())
		if err == nil {
			r.seen.count(outcomeDead, len(lost))
			r.seen.letters(kept)
			r.m.Log.Warn("messages could not become events; procaas subscriptions dead-letters "+s.ID+" lists them",
				"subscription", s.ID, "messages", len(lost), "first", lost[0].message.ID, "error", lost[0].why)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.trouble(ctx, err)
		backoff.Pause(ctx)
	}
}
