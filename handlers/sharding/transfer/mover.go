package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Mover does the steps of one transfer. It is not safe for concurrent use.
type Mover struct {
	sides

	apply    *applier
	prepared map[string]string // on the target's connection
}

// A Claim is the map's grant to the coordinator of a transfer.
type Claim struct {
	Owner string // token; a later claim of the same transfer has another one
	Epoch int64  // current epoch of the key
	Next  int64  // next epoch; higher than any before
}

// ErrBusy reports that another process works on the transfer.
var ErrBusy = errors.New("another process works on this transfer")

// Open connects to both shards and takes the transfer's lock. Close releases it.
func Open(ctx context.Context, spec Spec, claim Claim) (*Mover, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	return open(ctx, spec, claim, false)
}

// OpenBack is [Open] for the way back over the stream that Cutover has prepared. spec is that of
// the transfer to undo.
func OpenBack(ctx context.Context, spec Spec, claim Claim) (*Mover, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	spec.Source, spec.Target = spec.Target, spec.Source
	spec.SourceShard, spec.TargetShard = spec.TargetShard, spec.SourceShard
	return open(ctx, spec, claim, true)
}

func open(ctx context.Context, spec Spec, claim Claim, back bool) (*Mover, error) {
	spec.Epoch = claim.Epoch
	m := &Mover{
		sides:    sides{spec: spec, limits: spec.Limits.filled(), next: claim.Next, owner: claim.Owner, back: back},
		prepared: map[string]string{},
	}
	var err error
	if m.source, err = connect(ctx, spec.Source, spec.SourceShard); err == nil {
		m.target, err = connect(ctx, spec.Target, spec.TargetShard)
	}
	if err == nil {
		err = m.lock(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close closes the connections. The progress of the steps stays.
func (m *Mover) Close() error {
	if m.apply != nil {
		m.apply.stream.close()
		m.apply = nil
	}
	// Not with the caller's context, which may have ended. The servers release the rest when they
	// notice.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var err error
	for _, c := range []*pgx.Conn{m.source, m.target} {
		if c == nil {
			continue
		}
		if !c.IsClosed() { // the server ends the session and its lock some time later
			_, _ = c.Exec(ctx, "select pg_advisory_unlock_all()")
		}
		err = errors.Join(err, c.Close(ctx))
	}
	return err
}
