package store

import (
	"context"
	"encoding/json"
	"time"

	"procaas/engine/model"
)

// This file is the part of the ports that speaks of handlers that go out of the
// flow by themselves. Nothing of it is asked while no definition has a fallback.

// Degradation keeps what decides which handlers are out of the flow, for all nodes:
// what their calls came to, and the state that follows. The store's clock is the
// one that counts.
type Degradation interface {
	// Report stores what calls came to on a node since its last report. A node
	// numbers its reports: one with a number that is known is not stored again.
	Report(ctx context.Context, node, number int64, tallies []model.Tally) error

	// Deliberate reads what a decision needs. Fresh are the tallies that no
	// decision has taken in; each is given by every Deliberate until a Conclude
	// has taken it in. Past are those that one has, handed in during the last
	// keep; none with 0.
	Deliberate(ctx context.Context, keep time.Duration) (Deliberation, error)

	// Conclude writes what was decided, with its audit records, in one
	// transaction; [ErrConflict] when somebody else has since Deliberate.
	Conclude(ctx context.Context, c Conclusion) error

	// Outages reads the state and its revision; empty before there is one.
	Outages(ctx context.Context) (state []byte, revision int64, err error)

	// TakeProbe takes the turn to try whether an outage is over; false when it
	// was taken less than gap ago, on any node.
	TakeProbe(ctx context.Context, outage string, gap time.Duration) (bool, error)
}

// A Deliberation is what a decision is made from.
type Deliberation struct {
	Now      time.Time
	Turn     int64     // of the state; every Conclude makes another one
	Decider  int64     // the node that decided last; 0 for none
	Decided  time.Time // when it did
	State    []byte    // JSON; empty before there is one
	Taken    int64     // up to here reports have been taken in
	Reported int64     // up to here they are in Fresh
	Fresh    []model.Tally
	Past     []model.Tally
}

// A Conclusion is what came of a decision.
type Conclusion struct {
	Turn  int64 // that it builds on
	Node  int64 // that decided; 0 when an operator did, who is no decider
	Taken int64 // up to here reports have been taken in now

	// State replaces the one before and gives it the next revision; nil leaves
	// both.
	State []byte

	// Serve is by which versions new runs begin from now on, as long as its old one is current; none leaves that.
	Serve model.Split

	// Forget is how long ago reports were handed in that are not needed any
	// more; 0 keeps all.
	Forget time.Duration

	Audits []Audited
}

// EncodeTallies writes tallies as stores keep them: path → [second, good, bad].
func EncodeTallies(tallies []model.Tally) []byte {
	byPath := map[string][][3]int64{}
	for _, t := range tallies {
		byPath[t.Path] = append(byPath[t.Path], [3]int64{t.Second, int64(t.Good), int64(t.Bad)})
	}
	return model.EncodeJSON(byPath)
}

// DecodeTallies reads what [EncodeTallies] wrote, and adds it to some.
func DecodeTallies(to []model.Tally, data []byte) ([]model.Tally, error) {
	var byPath map[string][][3]int64
	if err := json.Unmarshal(data, &byPath); err != nil {
		return nil, err
	}
	for path, counts := range byPath {
		for _, c := range counts {
			to = append(to, model.Tally{Path: path, Second: c[0], Good: int(c[1]), Bad: int(c[2])})
		}
	}
	return to, nil
}
