package shardmap

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/transfers"
)

// A shard is a process's state of one shard.
type shard struct {
	declared  *language.Shard
	addresses []string
	unseen    []transfers.ShardHostBrief // its hosts before the first look

	view      atomic.Pointer[view]
	comparing atomic.Bool // a comparison of its fences is in progress
	thawing   atomic.Bool // a thaw of overdue freezes is in progress
	middle    []byte      // of answers; see AppendAnswer

	dsns sync.Map // connection strings for clients, by mode and order of hosts

	mu      sync.Mutex // guards the following
	hosts   []host
	history []sample // positions of the master's log
	sampled int      // the master of history; -1 before the first one
}

// newShard returns the state before the first look: addresses in declared order.
func newShard(d *language.Shard) *shard {
	s := &shard{declared: d, sampled: -1}
	for _, h := range d.Hosts {
		s.addresses = append(s.addresses, h.Full())
		s.hosts = append(s.hosts, host{address: h.Full(), dc: h.DC})
		s.unseen = append(s.unseen, transfers.ShardHostBrief{Address: h.Full(), DC: h.DC, Role: "unknown"})
	}
	return s
}

// take applies the result of a look at a host, and judges the shard again. The samples belong to
// one master's log. They stay while it does not answer, because nothing is written then, and go
// when there is another master.
func (s *shard) take(i int, r Report, now time.Time) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[i].take(r, now)
	v := newView(s.hosts, s.history, now)
	changed := v.master >= 0 && v.master != s.sampled
	if changed {
		s.history, s.sampled = s.history[:0], v.master
	}
	if v.master >= 0 && (changed || v.master == i && r.Err == nil) {
		if len(s.history) >= samples {
			s.history = append(s.history[:0], s.history[1:]...)
		}
		master := s.hosts[v.master] // another host's look may have shown that it is the master
		s.history = append(s.history, sample{master.seen, master.last.LSN})
		v = newView(s.hosts, s.history, now)
	}
	s.view.Store(v)
	return v
}

// dsn returns the connection string for hosts in an order. It is built once.
func (s *shard) dsn(m *Map, mode string, order []int) string {
	key := mode
	for _, i := range order {
		key += "," + strconv.Itoa(i)
	}
	if known, ok := s.dsns.Load(key); ok {
		return known.(string)
	}
	hosts := make([]string, len(order))
	for n, i := range order {
		hosts[n] = s.addresses[i]
	}
	dsn := m.DSN(hosts, sessionAttrs(mode))
	s.dsns.Store(key, dsn)
	return dsn
}

// lsnText formats a log position like PostgreSQL.
func lsnText(lsn uint64) string {
	if lsn == 0 {
		return ""
	}
	return strconv.FormatUint(lsn>>32, 16) + "/" + strconv.FormatUint(lsn&0xffffffff, 16)
}
