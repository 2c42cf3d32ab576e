package sharding_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

// These are the rows of a new key, about 140 kB, and those that come to each key on a day.
const (
	monthRows = 400
	dayRows   = 30
)

// A month is days of usage of two shards. Time is virtual, and so are transfers. Rows, statistics and what the
// handlers measure and choose are real.
type month struct {
	*rig
	t       *testing.T
	keys    int
	pending []map[string]any // moves that wait for the night
	moved   map[string]int   // how often a key has moved
	rows    map[string]int   // of each key
	empty   int64            // bytes of a shard without keys, which would hide them here
	conns   map[string]*pgx.Conn
	curve   strings.Builder
}

// exec runs SQL over one connection to each database.
func (m *month) exec(shard, sql string) {
	m.t.Helper()
	if m.conns[shard] == nil {
		m.conns[shard] = m.dial(shard)
	}
	// The second statement makes the server count at once. Otherwise it does so within a second or more.
	for _, sql := range []string{sql, "select pg_stat_force_next_flush()"} {
		if _, err := m.conns[shard].Exec(m.t.Context(), sql); err != nil {
			m.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// measure measures the shards, and closes or opens them.
func (m *month) measure() {
	m.t.Helper()
	m.must("shard.usage", nil)
	m.exec("map", fmt.Sprintf("update shards set used = greatest(used - %d, 0)", m.empty))
	m.must("shard.close", nil)
}

// day lets keys come to the open shards, and looks after them at noon. Another round finds nothing more to choose.
func (m *month) day(day, keys int, reason map[string]any) (chosen int) {
	m.t.Helper()
	m.now = time.Date(2026, 5, day, 12, 0, 0, 0, time.UTC)
	views, err := m.Shards(m.t.Context(), "mail")
	if err != nil {
		m.t.Fatal(err)
	}
	var open []string
	for _, v := range views {
		if v.Registration {
			open = append(open, v.ID)
		}
	}
	for i := 0; i < keys && len(open) > 0; i++ {
		m.keys++
		shard, key := open[i%len(open)], fmt.Sprint(m.keys)
		if _, err := m.themap("mail").Place(m.t.Context(), key, shard, nil); err != nil {
			m.t.Fatal(err)
		}
		m.fill(shard, key, monthRows)
	}
	for _, shard := range []string{"s1", "s2"} {
		m.exec(shard, fmt.Sprintf(`insert into messages select user_id, max(id) + n, '', repeat('x', 300)
			from messages, generate_series(1, %d) n group by user_id, n`, dayRows))
	}
	for key := range m.rows {
		m.rows[key] += dayRows
	}
	m.measure()
	m.draw(day)
	m.pending = m.choose(reason)
	for _, move := range m.pending {
		m.transfer(m.as(move, transfers.TransferWaiting))
	}
	if len(m.pending) > 0 {
		m.measure()
		if again := m.choose(reason); len(again) > 0 {
			m.t.Errorf("day %d: another round chooses %v, although the first one has chosen enough", day, again)
		}
	}
	chosen = len(m.pending)
	fmt.Fprintf(&m.curve, "   %d moves", chosen)
	m.night()
	return chosen
}

func (m *month) as(move map[string]any, state string) transfers.ShardTransfer {
	return transfers.ShardTransfer{
		ID: "t" + move["key"].(string), Key: move["key"].(string), Source: move["source"].(string), Target: move["target"].(string),
		Size: int64(move["size"].(int)), State: state,
	}
}

func (m *month) fill(shard, key string, rows int) {
	m.rows[key] = rows
	m.exec(shard, fmt.Sprintf("insert into messages select %s, n, '', repeat('x', 300) from generate_series(1, %d) n", key, rows))
}

// night does the transfers, and vacuums like the server.
func (m *month) night() {
	m.t.Helper()
	for _, move := range m.pending {
		t := m.as(move, transfers.TransferDone)
		m.fill(t.Target, t.Key, m.rows[t.Key])
		m.exec(t.Source, "delete from messages where user_id = "+t.Key)
		m.exec("map", fmt.Sprintf("update shard_placements set shard = '%s', epoch = epoch + 1 where key = '%s'", t.Target, t.Key))
		m.transfer(t)
		m.moved[t.Key]++
	}
	if len(m.pending) > 0 || m.keys < 10 { // as the server does after many changes
		m.exec("s1", "vacuum (analyze, truncate false) messages")
		m.exec("s2", "vacuum (analyze, truncate false) messages")
	}
}

// draw adds a line to the curve.
func (m *month) draw(day int) {
	m.t.Helper()
	fmt.Fprintf(&m.curve, "\n%2d:", day)
	for _, v := range m.views() {
		fmt.Fprintf(&m.curve, "   %s %3.0f %% of %2d keys %-6v", v.ID, 100*v.Usage, v.Placements,
			map[bool]string{true: "open", false: "closed"}[v.Registration])
		if v.Usage > 0.95 {
			m.t.Errorf("day %d: shard %s is at %.0f %%", day, v.ID, 100*v.Usage)
		}
	}
}

func (m *month) choose(reason map[string]any) []map[string]any {
	m.t.Helper()
	var moves []map[string]any
	for _, move := range m.must("shard.moves", reason).(map[string]any)["moves"].([]any) {
		moves = append(moves, move.(map[string]any))
	}
	return moves
}

func (m *month) views() []transfers.ShardView {
	m.t.Helper()
	views, err := m.Shards(m.t.Context(), "mail")
	if err != nil {
		m.t.Fatal(err)
	}
	return views
}

func (m *month) drain(shard, why string) {
	m.t.Helper()
	if _, err := m.SetShard(m.t.Context(), "mail", shard, transfers.ShardChange{Draining: &why}, store.Actor{}); err != nil {
		m.t.Fatal(err)
	}
}

// A shard fills up and closes, a new one takes keys from it, it opens again, is drained, and takes new keys.
func TestMonthOfUsageDrainsAndNewShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	r.docs = enginetest.NewMemory()
	r.enroll("mail")
	m := &month{rig: r, t: t, moved: map[string]int{}, rows: map[string]int{}, conns: map[string]*pgx.Conn{}}
	r.must("shard.usage", nil)
	r.ask("map", "select max(used) from shards", &m.empty)
	m.exec("map", "update shards set capacity = case id when 's1' then 5 else 40 end * 1000000")
	m.drain("s2", "it is not there yet")
	usage := map[string]any{"reason": "usage", "at": 0.85, "until": 0.68, "fill": 0.8, "smallest": 0, "largest": 1}
	closed, opened := 0, 0
	for day := 1; day <= 20; day++ {
		if day == 8 {
			m.drain("s2", "") // the new shard
		}
		if chosen := m.day(day, 3, usage); chosen > 0 && day < 8 {
			t.Errorf("day %d: %d moves without a target", day, chosen)
		}
		switch v := m.views()[0]; {
		case !v.Registration && closed == 0:
			closed = day
		case v.Registration && closed > 0 && opened == 0:
			opened = day
		}
	}
	for key, n := range m.moved {
		if n > 1 {
			t.Errorf("key %s has moved %d times", key, n)
		}
	}
	if closed == 0 || opened <= closed {
		t.Errorf("the full shard was closed on day %d and open again on day %d", closed, opened)
	}
	m.drain("s1", "new disks")
	for day := 21; day <= 23; day++ { // the sizes of keys are estimates, so the last ones may go later
		m.day(day, 0, map[string]any{"reason": "drain", "until": 0.9, "limit": 100})
	}
	if v := m.views()[0]; v.Placements != 0 {
		t.Errorf("%d keys are left on a drained shard", v.Placements)
	}
	m.drain("s1", "")
	for day := 24; day <= 30; day++ {
		m.day(day, 3, usage)
	}
	if v := m.views()[0]; v.Placements < 8 {
		t.Errorf("the shard with new disks has only %d keys after a week", v.Placements)
	}
	t.Log(m.curve.String())
}
