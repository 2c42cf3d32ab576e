package store

import (
	"context"
	"encoding/json"
	"time"

	"procaas/engine/model"
)

// This file has the port for automatic fallback. Nothing calls it while no definition has a
// fallback.

// Degradation stores what fallback needs to decide, for all nodes: the outcomes of calls and the
// resulting state. Only the store's clock counts.
type Degradation interface {
	// Report stores the outcomes of a node's calls since its last report. A node numbers its
	// reports. A report with a known number is not stored again.
	Report(ctx context.Context, node, number int64, tallies []model.Tally) error

	// Deliberate reads the input of a decision. Fresh are the tallies that no decision has used
	// yet. Every Deliberate returns them until a Conclude has taken them. Past are the used tallies
	// that were reported within keep. With 0 there are none.
	Deliberate(ctx context.Context, keep time.Duration) (Deliberation, error)

	// Conclude writes a decision with its audit records in one transaction. The error is
	// [ErrConflict] if another decision was written since Deliberate.
	Conclude(ctx context.Context, c Conclusion) error

	// Outages reads the state and its revision. The state is empty before the first decision.
	Outages(ctx context.Context) (state []byte, revision int64, err error)

	// TakeProbe takes the turn to test whether an outage is over. It returns false if any node took
	// the turn less than gap ago.
	TakeProbe(ctx context.Context, outage string, gap time.Duration) (bool, error)
}

// A Deliberation is the input of a decision.
type Deliberation struct {
	Now      time.Time
	Turn     int64     // of the state; every Conclude sets a new one
	Decider  int64     // the node that decided last; 0 for none
	Decided  time.Time // time of the last decision
	State    []byte    // JSON; empty before the first decision
	Taken    int64     // reports up to this one have been used
	Reported int64     // reports up to this one are in Fresh
	Fresh    []model.Tally
	Past     []model.Tally
}

// A Conclusion is a decision.
type Conclusion struct {
	Turn  int64 // the turn that it is based on
	Node  int64 // the node that decided; 0 for an operator
	Taken int64 // reports up to this one have been used now

	// State replaces the state and gives it the next revision. Nil keeps both.
	State []byte

	// Serve chooses the versions that new runs begin with, as long as its old version is current.
	// The zero Split keeps the choice.
	Serve model.Split

	// Forget is the age from which reports are no longer needed. 0 keeps all.
	Forget time.Duration

	Audits []Audited
}

// EncodeTallies encodes tallies for a store: path → [second, good, bad].
func EncodeTallies(tallies []model.Tally) []byte {
	byPath := map[string][][3]int64{}
	for _, t := range tallies {
		byPath[t.Path] = append(byPath[t.Path], [3]int64{t.Second, int64(t.Good), int64(t.Bad)})
	}
	return model.EncodeJSON(byPath)
}

// DecodeTallies decodes what [EncodeTallies] wrote, and appends it.
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
