package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// A change of a map and its record in the audit are one: neither is there without the other. What
// is changed on a shard is announced there before, and told of afterwards.
func TestNothingChangesWithoutItsRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, rangeMap)
	r.enroll("mail")
	ctx, by := t.Context(), store.Actor{Name: "ann", Reason: "why"}
	full := errors.New("the disk of the audit is full")
	dumb, err := shardmap.Open(ctx, shardmap.Options{
		DSN: r.dsn, Maps: r.declared, Patience: time.Minute,
		Audit: func(context.Context, pgx.Tx, store.Audited) error { return full },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dumb.Close)
	number := func(shard, sql string) (n int64) {
		t.Helper()
		r.ask(shard, sql, &n)
		return n
	}
	reason := "disk at 78 %"
	levers := []struct {
		name  string
		pull  func(s *shardmap.Service) error
		state string // changes with the lever
		at    string // the database that has it
		wants []string
	}{
		{"close", func(s *shardmap.Service) error {
			_, err := s.SetShard(ctx, "mail", "s1", transfers.ShardChange{Closed: &reason}, by)
			return err
		}, "select count(*) from shards where closed is not null", "map", []string{`mail/s1 {"closed":"disk at 78 %"}`}},
		{"split", func(s *shardmap.Service) error {
			_, err := s.SplitShard(ctx, "mail", "500", false, by)
			return err
		}, "select count(*) from shard_placements", "map", []string{`mail/[500 {"from":"[","shard":"s1","split":"[500"}`}},
		{
			"merge", func(s *shardmap.Service) error {
				_, err := s.MergeShard(ctx, "mail", "500", false, by)
				return err
			}, "select count(*) from shard_placements where state = 'merged'", "map",
			[]string{`mail/[500 {"from":"[","merge":"[500","shard":"s1"}`},
		},
		{"enroll", func(s *shardmap.Service) error {
			r.exec("s1", "drop publication procaas_mail_0")
			_, err := s.EnrollShard(ctx, "mail", "s1", by)
			return err
		}, "select count(*) from pg_publication", "s1", []string{`mail/s1 {"enrolling":true}`, `mail/s1 {"enrolled":true,"fences":0}`}},
	}
	for _, l := range levers {
		before := number(l.at, l.state)
		if l.name == "enroll" {
			before-- // the lever drops one first
		}
		if err := l.pull(dumb); !errors.Is(err, full) {
			t.Errorf("%s: have %v, want what the audit says", l.name, err)
		}
		if have := number(l.at, l.state); have != before {
			t.Errorf("%s has changed something although the audit refused", l.name)
		}
		known := number("map", "select coalesce(max(revision), 0) from audit")
		if l.name == "enroll" {
			r.exec("s1", "create publication procaas_mail_0")
		}
		// Writers were held back for nothing; they may be again at once.
		if err := l.pull(r.Service); err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		if have := number(l.at, l.state); have == before {
			t.Errorf("%s has changed nothing", l.name)
		}
		var told []string
		r.collect("map", `select name || ' ' || convert_from(after, 'UTF8') from audit
			where kind = 'shard' and actor = 'ann' and reason = 'why' and revision > `+fmt.Sprint(known)+` order by revision`, &told)
		if !slices.Equal(told, l.wants) {
			t.Errorf("%s: the audit has %q, want %q", l.name, told, l.wants)
		}
	}
}
