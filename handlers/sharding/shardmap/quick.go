package shardmap

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"procaas/engine/model"
	"procaas/handlers/sharding/transfers"
)

var _ transfers.QuickShardMaps = (*Service)(nil)

// AppendAnswer implements [transfers.QuickShardMaps]. It appends the answer of [Service.Resolve] as
// JSON if memory has everything.
func (s *Service) AppendAnswer(to []byte, shardMap, key, mode, dc string) ([]byte, bool) {
	m, err := s.Map(shardMap)
	if err != nil {
		return to, false
	}
	return m.AppendAnswer(to, key, mode, dc)
}

// AppendAnswer appends the answer of [Map.Resolve] to a buffer, as JSON with a line break, without
// any I/O. It returns the unchanged buffer and false if memory lacks something, or if the key would
// need escaping. Then use Resolve.
func (m *Map) AppendAnswer(to []byte, key, mode, dc string) ([]byte, bool) {
	if !m.layout.plain(key) {
		return to, false
	}
	p, ok := m.index.find(key)
	if !ok || p.State != Ready || !plainText(p.Key) {
		return to, false
	}
	s := m.shards[p.Shard]
	if s == nil {
		return to, false
	}
	v := s.view.Load()
	// A stale answer must be marked, which this function cannot do.
	if v == nil || time.Since(v.at) > staleAfter {
		return to, false
	}
	first, err := v.first(transfers.ShardQuestion{Mode: mode, DC: dc}, rand.IntN)
	if err != nil {
		return to, false
	}
	m.note(p.Key)
	to = append(append(to, m.head...), key...)
	to = append(append(to, `","placement":"`...), p.Key...)
	to = append(to, s.middle...)
	to = strconv.AppendInt(to, p.Epoch, 10)
	to = append(to, v.tail(m, s, mode, first)...)
	if p.Owned {
		to = append(to, `,"moving":true`...)
	}
	return append(to, "}\n"...), true
}

// plain reports whether a text certainly is a key of the map that needs no escaping in JSON.
func (l layout) plain(key string) bool {
	if len(key) > maxKey || !plainText(key) {
		return false
	}
	parts, begun := 1, false
	for i := range len(key) {
		switch key[i] {
		case '/':
			if !begun {
				return false
			}
			parts, begun = parts+1, false
		case '#', '[':
			return false
		default:
			begun = true
		}
	}
	return begun && parts <= l.parts && (!l.ints || plainNumber(key))
}

// plainNumber reports whether the first part of a key is a whole number in the form of the map.
func plainNumber(key string) bool {
	const surely = 18 // digits that certainly fit into 64 bits
	for i := 0; ; i++ {
		if i == len(key) || key[i] == '/' {
			return i > 0 && i <= surely && (key[0] != '0' || i == 1)
		}
		if key[i] < '0' || key[i] > '9' {
			return false
		}
	}
}

// plainText reports whether a text needs no escaping in JSON or in a key.
func plainText(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '%' {
			return false
		}
	}
	return true
}

// spellAnswers writes the parts of answers that are the same for all keys of a map or of a shard.
func (m *Map) spellAnswers() {
	m.head = []byte(fmt.Sprintf(`{"map":%s,"key":"`, model.EncodeJSON(m.ID)))
	for id, s := range m.shards {
		s.middle = []byte(fmt.Sprintf(`","shard":%s,"class":%s,"epoch":`, model.EncodeJSON(id), model.EncodeJSON(s.declared.Class)))
	}
}

// tail returns the end of answers with this first host. It is written once per view.
func (v *view) tail(m *Map, s *shard, mode string, first int) []byte {
	at := &v.tails[first]
	if mode == transfers.ShardReplica {
		at = &v.tails[len(v.hosts)+first]
	} else if mode == transfers.ShardAny {
		at = &v.tails[2*len(v.hosts)+first]
	}
	if known := at.Load(); known != nil {
		return *known
	}
	hosts, dsn := v.answer(m, s, mode, v.withRest([]int{first}))
	text := []byte(fmt.Sprintf(`,"hosts":%s,"dsn":%s`, model.EncodeJSON(hosts), model.EncodeJSON(dsn)))
	at.Store(&text)
	return text
}

// answer returns hosts in an order, with their connection string.
func (v *view) answer(m *Map, s *shard, mode string, order []int) ([]transfers.ShardHostBrief, string) {
	hosts := make([]transfers.ShardHostBrief, len(order))
	for i, n := range order {
		h := &v.hosts[n]
		hosts[i] = transfers.ShardHostBrief{Address: h.address, DC: h.dc, Role: v.role(n), LagMS: v.lags[n].Milliseconds()}
	}
	return hosts, s.dsn(m, mode, order)
}
