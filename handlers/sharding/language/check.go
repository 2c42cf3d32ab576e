package language

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
)

// Section is the section shard-maps of files.
func Section() tree.Section {
	return tree.Section{
		Of: sectionSpec(), After: "triggers", Rules: readRules,
		Check: func(value any, c *tree.Checking) {
			for _, m := range value.([]*ShardMap) {
				Check(m, c, c.Reporter)
			}
		},
		Each: func(value any, visit func(tree.Declaration)) {
			for _, m := range value.([]*ShardMap) {
				x := tree.Declaration{
					Kind: "shard map", ID: m.ID, Span: m.Span, At: m.PlaceOf("id", m.Span),
					Owner: &m.Owner, OwnerAt: m.PlaceOf("owner", m.Span),
				}
				if m.Connect != nil {
					x.Secret = m.Connect.Secret
				}
				visit(x)
			}
		},
	}
}

// Check checks a shard map: keys and tables, slots or ranges, hosts, and rules of registration.
func Check(m *ShardMap, w *tree.Checking, r *diag.Reporter) {
	checkShardKeys(m, r)
	checkStays(m, r)
	checkShards(m, w, r)
	checkConnect(m, r)
	switch m.Strategy {
	case "slots":
		checkSlots(m, r)
	case "range":
		checkRanges(m, w, r)
	}
	checkRegistration(m, w, r)
}

// checkShardKeys checks the parts of keys, and that each table has a column for each.
func checkShardKeys(m *ShardMap, r *diag.Reporter) {
	seen := map[string]bool{}
	for i, part := range m.Key {
		if seen[part] {
			r.Errorf(m.PlaceOf(fmt.Sprintf("key[%d]", i), m.Span), rules.ShardKeys, "name each part of the key once",
				"shard map %q names the part %q twice", m.ID, part)
		}
		seen[part] = true
	}
	tables := map[string]bool{}
	for _, t := range m.Tables {
		at := t.PlaceOf("table", t.Span)
		full := fullTable(t.Table)
		if tables[full] { // its rows would be copied twice
			r.Errorf(at, rules.ShardKeys, "drop one of them", "shard map %q lists the table %q twice", m.ID, t.Table)
		}
		tables[full] = true
		checkTableName(t.Table, at, r)
		if len(t.Key) > len(m.Key) {
			r.Errorf(t.PlaceOf("key", t.Span), rules.ShardKeys, "name a column for each part of the key, or for its first parts",
				"table %q has %d columns of the key, whose parts are %s", t.Table, len(t.Key), strings.Join(m.Key, ", "))
		}
	}
}

// checkStays checks the tables whose rows stay.
func checkStays(m *ShardMap, r *diag.Reporter) {
	for i, name := range m.Stays {
		at := m.PlaceOf(fmt.Sprintf("stays[%d]", i), m.PlaceOf("stays", m.Span))
		checkTableName(name, at, r)
		if slices.ContainsFunc(m.Tables, func(t *ShardTable) bool { return fullTable(t.Table) == fullTable(name) }) {
			r.Errorf(at, rules.ShardKeys, "drop it from stays:, or from tables:", "the rows of the table %q cannot both move and stay", name)
		}
	}
}

func checkTableName(name string, at diag.Span, r *diag.Reporter) {
	if strings.Count(name, ".") > 1 || strings.ContainsAny(name, "\";") {
		r.Errorf(at, rules.ShardKeys, "want such as messages or mail.messages, without quotes", "%q is not the name of a table", name)
	}
}

// fullTable adds the schema to the name of a table.
func fullTable(name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return "public." + name
}

// checkShards checks the names of shards and the addresses of their hosts.
func checkShards(m *ShardMap, w *tree.Checking, r *diag.Reporter) {
	if len(m.Shards) == 0 && !w.Blamed(m.Span) {
		r.Errorf(m.PlaceOf("shards", m.Span), rules.ShardMap, "add a shard with its hosts", "shard map %q has no shards", m.ID)
	}
	owners := map[string]string{} // shards by the addresses of their hosts
	for _, s := range m.Shards {
		w.Declare("shard "+m.ID, s.ID, s.PlaceOf("id", s.Span), r)
		if len(s.Hosts) == 0 && !w.Blamed(s.Span) {
			r.Errorf(s.PlaceOf("hosts", s.Span), rules.ShardHosts, "add its master and its replicas", "shard %q has no hosts", s.ID)
		}
		for _, h := range s.Hosts {
			at := h.PlaceOf("address", h.Span)
			address, problem := CompleteAddress(h.Address)
			switch owner := owners[address]; {
			case h.Address == "":
			case problem != "":
				r.Errorf(at, rules.ShardHosts, "want host:port, such as db1.example.com:5432", "address %q: %s", h.Address, problem)
			case owner != "":
				r.Errorf(at, rules.ShardHosts, "use another cluster for each shard", "the host %s belongs to shard %q already", address, owner)
			default:
				owners[address] = s.ID
			}
		}
	}
}

// checkSlots checks that each slot belongs to exactly one shard.
func checkSlots(m *ShardMap, r *diag.Reporter) {
	if bits.OnesCount(uint(m.Slots)) != 1 {
		r.Errorf(m.PlaceOf("slots", m.Span), rules.ShardMap, "take a power of two, such as 1024 or 4096", "%d slots are no power of two",
			m.Slots)
		return
	}
	owner, said := make([]string, m.Slots), false // said: a shard lists slots
	for _, s := range m.Shards {
		for i, text := range s.Slots {
			said = true
			at := s.PlaceOf(fmt.Sprintf("slots[%d]", i), s.PlaceOf("slots", s.Span))
			first, last, ok := SlotRange(text)
			if !ok || first > last || last >= m.Slots {
				r.Errorf(at, rules.ShardMap, fmt.Sprintf("want such as 0-%d", m.Slots-1), "%q is no stretch of slots from 0 to %d", text, m.Slots-1)
				return
			}
			for slot := first; slot <= last; slot++ {
				if owner[slot] != "" {
					r.Errorf(at, rules.ShardMap, "put each slot on one shard", "slot %d begins on shard %q already", slot, owner[slot])
					return
				}
				owner[slot] = s.ID
			}
		}
	}
	for slot, id := range owner {
		if said && id == "" {
			r.Errorf(m.PlaceOf("shards", m.Span), rules.ShardMap, "put it on a shard, or drop slots from all shards for equal parts",
				"slot %d begins nowhere", slot)
			return
		}
	}
}

// SlotRange parses a range of slots, such as 0-1023 or 7, both ends inclusive. It does not check their order or
// the number of slots.
func SlotRange(text string) (first, last int, ok bool) {
	low, high, stretch := strings.Cut(text, "-")
	if !stretch {
		high = low
	}
	first, err := strconv.Atoi(low)
	last, err2 := strconv.Atoi(high)
	return first, last, err == nil && err2 == nil && first >= 0
}

// checkRanges checks that ranges of keys cover all keys and start at different bounds. Each ends at the next
// bound, so they cover all if one starts below all keys.
func checkRanges(m *ShardMap, w *tree.Checking, r *diag.Reporter) {
	owner := map[string]string{}
	for _, s := range m.Shards {
		for i, low := range s.From {
			at := s.PlaceOf(fmt.Sprintf("from[%d]", i), s.Span)
			if _, err := strconv.ParseInt(low, 10, 64); low != "" && m.KeyType == "int" && err != nil {
				r.Errorf(at, rules.ShardMap, "want a whole number, or the empty text for the bound below all", "%q is no bound of whole numbers", low)
			}
			if other, taken := owner[low]; taken {
				r.Errorf(at, rules.ShardMap, "put each range on one shard", "the stretch from %q begins on shard %q already", low, other)
			}
			owner[low] = s.ID
		}
	}
	if _, below := owner[""]; !below && !w.Blamed(m.Span) {
		r.Errorf(m.PlaceOf("shards", m.Span), rules.ShardMap, `add from: [""] to the shard of the lowest keys`,
			"no shard of map %q has the keys below all bounds", m.ID)
	}
}

// checkConnect refuses passwords in connection strings, which are public.
func checkConnect(m *ShardMap, r *diag.Reporter) {
	if m.Connect == nil {
		return
	}
	for _, name := range []string{"password", "sslpassword"} {
		if _, found := m.Connect.Parameters[name]; found {
			r.Errorf(m.Connect.PlaceOf("parameters", m.Connect.Span), rules.ShardHosts,
				"name a secret as secret:, and let clients add theirs themselves",
				"the parameter %s of shard map %q would be shown to every client that looks up a key", name, m.ID)
		}
	}
}

// checkRegistration checks the services and shards of registration rules.
func checkRegistration(m *ShardMap, w *tree.Checking, r *diag.Reporter) {
	reg := m.Registration
	if reg == nil {
		return
	}
	if _, err := urls.ParsePublic(reg.Check); reg.Check != "" && err != nil {
		r.Errorf(reg.PlaceOf("check", reg.Span), rules.ShardRules, "want such as http://127.0.0.1:9081/v1/users, without a password",
			"check %v", err)
	}
	if m.Strategy != "directory" {
		r.Errorf(m.PlaceOf("registration", reg.Span), rules.ShardRules, "drop it: hashes and ranges place all keys",
			"keys of the strategy %s need no registration", m.Strategy)
	}
	for _, rule := range reg.Rules {
		checkPlacementRule(m, rule, w, r)
	}
}

// checkPlacementRule checks that a rule names exactly one target for its keys, and that the map has its shards.
func checkPlacementRule(m *ShardMap, rule *PlacementRule, w *tree.Checking, r *diag.Reporter) {
	if e := rule.When.Expr(); e != nil {
		e.Compile(&expr.Scope{Roots: []string{"event"}}, datum.BoolKind, r)
	}
	if (len(rule.Shards) > 0) == (rule.Class != "") {
		r.Errorf(rule.Span, rules.ShardRules, "write either shards: or class:", "a rule of shard map %q needs either shards or class", m.ID)
	}
	classes, ids := map[string]bool{}, map[string]bool{}
	for _, s := range m.Shards {
		classes[s.Class], ids[s.ID] = true, true
	}
	for i, id := range rule.Shards {
		if !ids[id] && !w.Partial {
			r.Errorf(rule.PlaceOf(fmt.Sprintf("shards[%d]", i), rule.PlaceOf("shards", rule.Span)), rules.ShardRules,
				r.DidYouMean(id, diag.NamesIn(ids)), "unknown shard %q", id)
		}
	}
	if rule.Class != "" && !classes[rule.Class] && !w.Partial {
		r.Errorf(rule.PlaceOf("class", rule.Span), rules.ShardRules, r.DidYouMean(rule.Class, diag.NamesIn(classes)),
			"unknown class of shards %q", rule.Class)
	}
}
