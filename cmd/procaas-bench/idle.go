package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"

	"procaas/engine"
	"procaas/engine/model"
)

// measureIdle measures the cost of a transaction that stays open elsewhere in the cluster, such as a report or
// a forgotten console. Rows updated or deleted since then cannot be cleaned up, so queries must read past them.
func measureIdle(ctx context.Context, b *bench) error {
	fmt.Fprintf(b.out, "with a transaction left open before, %d rounds\n", b.rounds)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\twithout\twith it\tof that\t")
	worst := 1.0
	for _, way := range []struct {
		name    string
		measure func(context.Context, *bench, *idler) (sample, error)
	}{
		{fmt.Sprintf("%d flows, 64 in flight", 4*b.flows), idleFlows(plain)},
		{fmt.Sprintf("%d flows with ids and keys", 4*b.flows), idleFlows(keyed)},
		{fmt.Sprintf("drain of %d events", b.backlog), func(ctx context.Context, b *bench, _ *idler) (sample, error) {
			return b.drain(ctx, b.backlog, 0)
		}},
		{fmt.Sprintf("%d flows after %d beats", b.flows, idleBeats), idleAfterBeats},
	} {
		var without, with []sample
		for range b.rounds {
			for _, into := range []*[]sample{&without, &with} {
				idler := &idler{dsn: b.server.dsn, wanted: into == &with}
				if err := idler.begin(ctx); err != nil {
					return err
				}
				s, err := way.measure(ctx, b, idler)
				if err := errors.Join(err, idler.end()); err != nil {
					return fmt.Errorf("%s: %w", way.name, err)
				}
				*into = append(*into, s)
			}
		}
		ratio := median(ratios(with, without))
		worst = min(worst, ratio)
		fmt.Fprintf(w, "%s\t%.0f/s\t%.0f/s\t%.2f\t\n", way.name, medianOf(without, sample.getRate), medianOf(with, sample.getRate), ratio)
	}
	w.Flush()
	b.judge("the worst of these", worst, 0.8, true)
	return nil
}

// An idler leaves a transaction open.
type idler struct {
	dsn    string
	wanted bool
	conn   *pgx.Conn
}

func (i *idler) begin(ctx context.Context) error {
	if !i.wanted {
		return nil
	}
	var err error
	if i.conn, err = pgx.Connect(ctx, i.dsn); err != nil {
		return err
	}
	_, err = i.conn.Exec(ctx, "begin isolation level repeatable read; select from pg_class limit 1")
	return err
}

func (i *idler) end() error {
	if i.conn == nil {
		return nil
	}
	return i.conn.Close(context.Background())
}

// idleFlows runs flows on one system, so that dead rows accumulate.
func idleFlows(event func(id string) model.Event) func(context.Context, *bench, *idler) (sample, error) {
	return func(ctx context.Context, b *bench, _ *idler) (s sample, err error) {
		c, err := openProcaas("idle", event)(ctx, b)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		if err := b.server.settle(ctx); err != nil {
			return s, err
		}
		return b.saturate(ctx, c, 4*b.flows, 64, "idle")
	}
}

// idleBeats is the number of lease renewals of a node per hour.
const idleBeats = 4500

// idleAfterBeats runs flows after the lease renewals of an hour.
func idleAfterBeats(ctx context.Context, b *bench, _ *idler) (s sample, err error) {
	c, err := openProcaas("idle", plain)(ctx, b)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	store := c.(*entrant).store
	nodes, err := store.Ledger.Nodes(ctx)
	if err != nil {
		return s, err
	}
	for range idleBeats {
		if _, err := store.Ledger.Beat(ctx, nodes[0].Node, engine.DefaultOptions().Lease, ""); err != nil {
			return s, err
		}
	}
	if err := b.server.settle(ctx); err != nil {
		return s, err
	}
	return b.saturate(ctx, c, b.flows, 64, "idle")
}
