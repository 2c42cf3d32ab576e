package handoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/engine/clock"
)

// A Move is a partition that is about to move to a worker of a [Map]. To is an index into its
// Workers.
type Move struct{ Partition, To int }

// A Preparation is the progress of the workers that will gain partitions.
type Preparation struct {
	Version int64    `json:"version"` // of the assignment before the move
	Warm    int      `json:"warm"`    // number of loaded partitions
	Cold    []int    `json:"cold"`    // partitions that were not loaded in time
	Silent  []string `json:"silent"`  // ids of workers that did not answer
}

// These are the pauses between questions whether partitions are warm.
const (
	firstPause = 10 * time.Millisecond
	mostPause  = 200 * time.Millisecond
)

// Prepare lets workers load what they will gain, for up to patience. The version is that of the
// assignment before the move. Workers that fail or do not answer do not prevent the move. The error
// is an [*OutdatedError] if a worker knows a newer assignment.
func (s Settler) Prepare(ctx context.Context, m Map, moves []Move, patience time.Duration) (Preparation, error) {
	r := s.round(m)
	gains := make([][]int, len(m.Workers))
	for _, move := range moves {
		if move.To < 0 || move.To >= len(gains) {
			return Preparation{}, fmt.Errorf("partition %d is to go to worker %d, and there are %d", move.Partition, move.To, len(gains))
		}
		gains[move.To] = append(gains[move.To], move.Partition)
	}
	for _, path := range []string{PathPrepare, PathWarm} {
		if err := r.order(ctx, path, gains, false); err != nil {
			return Preparation{}, err
		}
	}
	until, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := firstPause; r.warming(gains) && clock.Sleep(until, pause) == nil; pause = min(2*pause, mostPause) {
		r.ask(until, gains)
	}
	return r.preparation(moves), ctx.Err()
}

// warming reports whether an answering worker still loads what it gains.
func (r *round) warming(gains [][]int) bool {
	for w, list := range gains {
		for _, p := range list {
			if x, _ := r.states[w].find(p); !r.silent[w] && x.Phase == Warming {
				return true
			}
		}
	}
	return false
}

// ask asks the gaining workers for their states.
func (r *round) ask(ctx context.Context, gains [][]int) {
	r.each(func(w int) {
		if r.silent[w] || len(gains[w]) == 0 {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, r.Timeout)
		defer cancel()
		state, err := r.Caller.State(bounded, r.m.Workers[w].URL)
		switch {
		case err == nil:
			r.states[w] = state
		case !errors.Is(ctx.Err(), context.DeadlineExceeded): // then our patience is over
			r.silent[w] = true
		}
	})
}

// preparation counts by the workers' last answers. What a new worker already holds is warm, too.
func (r *round) preparation(moves []Move) Preparation {
	done := Preparation{Version: r.m.Version, Cold: []int{}, Silent: []string{}}
	for _, move := range moves {
		x, _ := r.states[move.To].find(move.Partition)
		if x.Phase == Warm || x.Phase == Held {
			done.Warm++
		} else {
			done.Cold = append(done.Cold, move.Partition)
		}
	}
	for w, silent := range r.silent {
		if silent {
			done.Silent = append(done.Silent, r.m.Workers[w].ID)
		}
	}
	return done
}
