package shardmap

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/transfers"
)

// A shard is what a process knows of one shard.
type shard struct {
	declared  *tree.Shard
	addresses []string
	unseen    []transfers.ShardHostBrief // its hosts, while nobody has looked at them

	view      atomic.Pointer[view]
	comparing atomic.Bool // its fences with the map
	thawing   atomic.Bool // keys that were frozen for too long
	middle    []byte      // of answers; see AppendAnswer

	dsns sync.Map // connection strings of clients by the mode and the order of hosts

	mu      sync.Mutex // guards the following
	hosts   []host
	history []sample // of the master's log
	sampled int      // the master whose log that is; -1 before the first one
}

// newShard makes what is known before anybody has looked: addresses, in the order of the files.
func newShard(d *tree.Shard) *shard {
	s := &shard{declared: d, sampled: -1}
	for _, h := range d.Hosts {
		s.addresses = append(s.addresses, h.Full())
		s.hosts = append(s.hosts, host{address: h.Full(), dc: h.DC})
		s.unseen = append(s.unseen, transfers.ShardHostBrief{Address: h.Full(), DC: h.DC, Role: "unknown"})
	}
	return s
}

// take adds what a look at a host has found, and judges the shard anew. The samples are those of one
// master's log: they stay while it does not answer, since nothing is written then, and go when
// there is another one.
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
		master := s.hosts[v.master] // which another host's look may have shown to be one
		s.history = append(s.history, sample{master.seen, master.last.LSN})
		v = newView(s.hosts, s.history, now)
	}
	s.view.Store(v)
	return v
}

// dsn returns the connection string for hosts in an order, which is built once.
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

// lsnText writes a position of a log as PostgreSQL does.
func lsnText(lsn uint64) string {
	if lsn == 0 {
		return ""
	}
	return strconv.FormatUint(lsn>>32, 16) + "/" + strconv.FormatUint(lsn&0xffffffff, 16)
}
