package transfer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// This file refuses transfers that are impossible.

// Plan returns a [*RefusedError] with all reasons if the transfer is impossible. It changes
// nothing.
func (m *Mover) Plan(ctx context.Context) error { return final(m.plan(ctx)) }

func (m *Mover) plan(ctx context.Context) error {
	reasons, err := m.misfits(ctx, (*shape).refusals)
	if err != nil {
		return err
	}
	more, err := m.serverRefusals(ctx)
	if err != nil {
		return err
	}
	reasons = append(reasons, more...)
	if len(reasons) > 0 {
		return &RefusedError{reasons}
	}
	if err := m.crowded(ctx); err != nil {
		return err
	}
	if err := m.load(ctx); err != nil {
		return err
	}
	if err := m.nothingLeft(ctx); err != nil {
		return err
	}
	return m.tryPublish(ctx)
}

// misfits returns why the tables cannot be moved. more adds reasons for those of the source.
func (m *sides) misfits(ctx context.Context, more func(*shape) []string) (reasons []string, err error) {
	for _, t := range m.spec.Tables {
		source, err := readShape(ctx, m.source, t)
		if err != nil {
			return nil, err
		}
		target, err := readShape(ctx, m.target, t)
		if err != nil {
			return nil, err
		}
		switch {
		case source == nil:
			reasons = append(reasons, fmt.Sprintf("shard %s has no table %s", m.spec.SourceShard, t.Name))
		case target == nil:
			reasons = append(reasons, fmt.Sprintf("shard %s has no table %s", m.spec.TargetShard, t.Name))
		case source.odd != "" || target.odd != "":
			for i, s := range []*shape{source, target} {
				if s.odd != "" {
					shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
					reasons = append(reasons, fmt.Sprintf("table %s of shard %s %s", s.title(), shard, s.odd))
				}
			}
		default:
			reasons = append(append(reasons, more(source)...), source.differences(target)...)
		}
	}
	return reasons, nil
}

// fenceThere reports whether a shard has the fences that transfers need, and its encoding.
const fenceThere = "select to_regprocedure('procaas.overdue()') is not null, current_setting('server_encoding')"

// enrolled returns why the fences cannot be used, or rows cannot be compared: their hashes are those
// of the bytes that a server stores.
func (m *sides) enrolled(ctx context.Context) ([]string, error) {
	var out, encodings []string
	for i, c := range []*pgx.Conn{m.source, m.target} {
		shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
		var there bool
		var encoding string
		if err := c.QueryRow(ctx, fenceThere).Scan(&there, &encoding); err != nil {
			return nil, fmt.Errorf("shard %s: %w", shard, err)
		}
		if !there {
			out = append(out, fmt.Sprintf("shard %s has no fence, or an old one: enroll it", shard))
		}
		encodings = append(encodings, encoding)
	}
	if encodings[0] != encodings[1] {
		out = append(out, fmt.Sprintf("the encodings differ: %s in the source and %s in the target; make both databases with the same one",
			encodings[0], encodings[1]))
	}
	return out, nil
}

const readServer = `select current_setting('server_version_num')::int / 10000, current_setting('wal_level'),
	current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int, 
	(select count(*) from pg_prepared_xacts where prepared < now() - interval '1 minute')::int,
	(select rolreplication or rolsuper from pg_roles where rolname = current_user), pg_is_in_recovery()`

func (m *sides) serverRefusals(ctx context.Context) ([]string, error) {
	out, err := m.enrolled(ctx)
	if err != nil {
		return nil, err
	}
	for i, c := range []*pgx.Conn{m.source, m.target} {
		shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
		var version, slots, senders, prepared int
		var level string
		var replicates, recovers bool
		if err := c.QueryRow(ctx, readServer).Scan(&version, &level, &slots, &senders, &prepared, &replicates, &recovers); err != nil {
			return nil, fmt.Errorf("shard %s: %w", shard, err)
		}
		refuse := func(bad bool, format string, args ...any) {
			if bad {
				out = append(out, "shard "+shard+" "+fmt.Sprintf(format, args...))
			}
		}
		refuse(recovers, "is reached at a replica, not at its master")
		refuse(version < 15, "runs PostgreSQL %d, whose publications do not filter rows: want 15 or newer", version)
		refuse(level != "logical", "has wal_level = %s: set it to logical and restart, or use the method lock-copy-switch", level)
		const room = needsSlots + keptSlots
		refuse(slots < room, "has max_replication_slots = %d: want %d or more, of which %d are left to standbys", slots, room, keptSlots)
		refuse(senders < room, "has max_wal_senders = %d: want %d or more, of which %d are left to standbys", senders, room, keptSlots)
		refuse(!replicates, "lets its user not replicate: alter role … replication")
		// Only dangling ones: a younger one may end while the slot waits for it.
		refuse(prepared > 0, "has %d prepared transactions older than a minute, for which a slot would wait: commit them or roll them back",
			prepared)
	}
	return out, nil
}

// A transfer uses one slot, and another one briefly when it compares rows. Some slots and senders are
// left to standbys, so that one can always return, and another one can be made.
const (
	needsSlots = 2
	keptSlots  = 2
	readUse    = `select (select count(*) from pg_replication_slots)::int, current_setting('max_replication_slots')::int,
	(select count(*) from pg_stat_replication)::int, current_setting('max_wal_senders')::int`
)

// crowded returns which shard has no room for a transfer now. That is not a refusal, because others
// end.
func (m *sides) crowded(ctx context.Context) error {
	both := []*pgx.Conn{m.source, m.target}
	if m.spec.OneWay {
		both = both[:1] // the target has only rows written to it
	}
	for i, c := range both {
		shard := []string{m.spec.SourceShard, m.spec.TargetShard}[i]
		var slots, most, senders, mostSenders int
		if err := c.QueryRow(ctx, readUse).Scan(&slots, &most, &senders, &mostSenders); err != nil {
			return fmt.Errorf("shard %s: %w", shard, err)
		}
		if most-slots < needsSlots+keptSlots || mostSenders-senders < needsSlots+keptSlots {
			return fmt.Errorf("it waits for room: shard %s has %d of %d replication slots in use, and %d of %d senders of its log, and %d "+
				"are left to standbys; tell transfers that are observed to finish, or raise max_replication_slots and max_wal_senders", shard,
				slots, most, senders, mostSenders, keptSlots)
		}
	}
	return nil
}
