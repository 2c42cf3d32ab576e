package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/budget"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file keeps runs within the memory of the node. A run holds memory from the time when the node
// takes it. It waits for the memory that its state takes decoded, before it is decoded. A reply waits
// before it is read. A run that grows while there is no memory makes its calls wait. When none of its
// calls is in flight, it is parked: it leaves the memory, and comes back later.

const (
	jobMemory   = 4 << 10  // of a small run, in bytes
	smallGrowth = 64 << 10 // bytes that a run may grow without asking
	growthPart  = 4        // a run that is loaded gets this part of its size in addition, so that it gets on
	memoryHold  = 2 * guard.ShortHold

	replyPatience = 10 * time.Second // how long a reply keeps its place at the service while it waits for memory
)

// holdMemory counts what the node has of the run already.
func (j *job) holdMemory() {
	if j.n.d.Memory == nil {
		return
	}
	c := j.claimed
	j.mem = j.n.d.Memory.Hold(budget.Runs)
	j.mem.Set(jobMemory + c.Bytes() + len(c.Entity.Shared) + len(c.Event.Start) + datum.Size(c.Event.Payload))
}

// load waits for the memory that the state of the run takes when it is decoded. It returns false if the
// run does not fit into this node, or the node stops first.
func (j *job) load() bool {
	c := j.claimed
	texts := [][]byte{c.Stored, c.Checkpoint, c.Entity.Shared, c.Event.Start}
	length := 0
	for _, text := range texts {
		length += len(text)
	}
	if j.mem != nil && length >= smallGrowth/8 && !j.waitToLoad(texts) {
		return false
	}
	if err := c.Unfold(); err != nil {
		return j.setAside(store.DamagedRun(c.ID, "the column runs.event", err))
	}
	return true
}

// waitToLoad waits for the memory that texts take decoded.
func (j *job) waitToLoad(texts [][]byte) bool {
	need := 0
	for _, text := range texts {
		need += datum.DecodedSize(text) + 2*len(text)
	}
	if j.mem.Try(need + need/growthPart) {
		return true
	}
	ctx, cancel := context.WithCancel(j.n.ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-j.n.draining:
			cancel()
		case <-stop:
		}
	}()
	err := j.mem.Take(ctx, need)
	if errors.As(err, new(*budget.TooLargeError)) {
		j.fail("", fmt.Errorf("the run does not fit into the memory of this node: %w", err))
	}
	return err == nil
}

// weigh counts what the run keeps now.
func (j *job) weigh() {
	if j.mem != nil && j.run != nil {
		j.mem.Set(jobMemory + j.run.Held())
	}
}

// computes lets a run compute. Only as many runs as there are processors do that at once, because
// a run counts what it has added only afterwards. Call the result at the end.
func (j *job) computes() (done func()) {
	if j.mem == nil {
		return func() {}
	}
	j.n.steppers <- struct{}{}
	return func() {
		j.weigh()
		<-j.n.steppers
	}
}

// memoryRule returns the rule of [core.Live].Memory, or nil if there is no bound.
func (j *job) memoryRule() func(held int) core.Verdict {
	if j.mem == nil {
		return nil
	}
	return func(held int) core.Verdict {
		more := jobMemory + held - j.mem.Has()
		if more < smallGrowth || j.mem.Try(more) {
			return core.Verdict{}
		}
		return core.Verdict{
			Hold: j.last.Add(memoryHold + rand.N(memoryHold)), Cause: core.CauseMemory, People: true,
			Reason: "this node has no memory for the run to grow",
		}
	}
}

// reserving returns [Call].Reserve for a reply. The time that it waits is not that of the service.
//
// A small reply never waits, and a large one does not wait for ever. A call that waits keeps its place
// at the service, and the run that has the reserve may need that place to go on: then each would wait
// for the other. A reply that has waited for too long is dropped, and its handler tries again.
func reserving(calls context.Context, mem *budget.Holder) func(ctx context.Context, bytes int, most bool) error {
	if mem == nil {
		return nil
	}
	return func(ctx context.Context, bytes int, most bool) error {
		more := bytes - mem.Has()
		if mem.Try(more) {
			return nil
		}
		if bytes < smallGrowth { // it is there already, and its call must not keep others from the service
			mem.Set(bytes)
			return nil
		}
		defer clock.Suspend(ctx)()
		patient, cancel := context.WithTimeoutCause(calls, replyPatience, guard.ErrNoMemory)
		defer cancel()
		err := mem.Take(patient, more)
		if errors.Is(err, guard.ErrNoMemory) {
			return model.After(rand.N(memoryHold), err)
		}
		var large *budget.TooLargeError
		if !errors.As(err, &large) {
			return err
		}
		if left := large.Most - large.Has; most && left > 0 {
			return mem.Take(patient, left)
		}
		return model.Permanent(err)
	}
}
