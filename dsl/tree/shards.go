package tree

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// A ShardMap says which shard, a PostgreSQL cluster of several hosts, keeps the data
// of a key, such as a user. Services ask for it over HTTP; keys move from shard to
// shard while they are written to.
type ShardMap struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the map.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Key names the parts of a key, the widest first, such as user, or [user, folder].
	// A key may be placed with fewer parts; of several placements the longest counts.
	Key spec.Names `yaml:"key" required:"true" pattern:"id"`

	// KeyType is what the first part is in the tables: text, or int for whole numbers
	// of up to 64 bits, which a range orders by their value.
	KeyType string `yaml:"key-type" enum:"text,int" default:"text"`

	// Strategy says where a key lives. directory has a placement for each key; slots
	// divides keys by their hash among a fixed number of slots, each of which has a
	// placement; range has one for each stretch of keys. A key may have a placement of
	// its own in all of them.
	Strategy string `yaml:"strategy" enum:"directory,slots,range" default:"directory"`

	// Slots is the number of slots of the strategy slots, a power of two. It never
	// changes once there is data.
	Slots int `yaml:"slots" default:"4096" min:"2" max:"1048576"`

	// Tables lists the tables that move together with a key.
	Tables []*ShardTable `yaml:"tables"`

	// Shards lists where keys live.
	Shards []*Shard `yaml:"shards" required:"true"`

	// Connect says how hosts are connected to.
	Connect *ShardConnect `yaml:"connect"`

	// Registration says how keys that have no placement yet get one. Without it they
	// are unknown.
	Registration *ShardRegistration `yaml:"registration"`

	// Owner says who looks after the map.
	Owner string `yaml:"owner"`
}

// A ShardTable is a table of which each shard has the rows of its keys.
type ShardTable struct {
	Span diag.Span `yaml:"-"`

	places

	// Table is its name, with the schema or without: public then.
	Table string `yaml:"table" required:"true"`

	// Key names the columns that hold the parts of the key, in their order; the names
	// of the parts when it is left out. All belong to the primary key.
	Key spec.Names `yaml:"key"`
}

// A Shard is one PostgreSQL cluster: a master and its replicas.
type Shard struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the shard within its map.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Class is any label that rules tell shards by, such as hot, warm or cold.
	Class string `yaml:"class" default:"hot" pattern:"id"`

	// Hosts lists the hosts of the shard. Which of them is the master is found out.
	Hosts []*ShardHost `yaml:"hosts" required:"true"`

	// Registration says whether new keys may be placed here.
	Registration bool `yaml:"registration" default:"true"`

	// Transfer says whether keys may be moved here.
	Transfer bool `yaml:"transfer" default:"true"`

	// Capacity is how much data the shard bears; usage is a share of it.
	Capacity datum.Bytes `yaml:"capacity" default:"100GiB" min:"1MiB"`

	// Slots lists the slots that begin here, such as 0-1023 or 7. When no shard of the
	// map says any, all get equal parts.
	Slots spec.Names `yaml:"slots"`

	// From lists the lower bounds of the stretches of keys that begin here, of the
	// strategy range; the empty text is the bound below all keys.
	From []string `yaml:"from"`
}

// A ShardHost is one PostgreSQL server of a shard.
type ShardHost struct {
	Span diag.Span `yaml:"-"`

	places

	// Address is host:port; the port is 5432 when it is left out.
	Address string `yaml:"address" required:"true"`

	// DC names the data centre that the host is in.
	DC string `yaml:"dc"`
}

// A ShardConnect says how the hosts of a map are connected to.
type ShardConnect struct {
	Span diag.Span `yaml:"-"`

	places

	// Database is the name of the database on each host.
	Database string `yaml:"database" default:"postgres"`

	// User is who clients connect as; they add the password themselves.
	User string `yaml:"user"`

	// Parameters are added to the connection string of clients, such as sslmode.
	Parameters map[string]string `yaml:"parameters" expr:"no"`

	// Admin is who procaas connects as, to watch hosts and to move keys; user when it
	// is left out.
	Admin string `yaml:"admin"`

	// Secret is the name of the secret with the password of admin; it is resolved as a
	// !secret is. Without it there is none, or the server finds it as libpq does.
	Secret string `yaml:"secret"`
}

// A ShardRegistration says how keys get their first placement.
type ShardRegistration struct {
	Span diag.Span `yaml:"-"`

	places

	// Lazy lets the first question for an unknown key place it.
	Lazy bool `yaml:"lazy" default:"true"`

	// Check is the URL that is asked before, with key= added to its query. 200
	// confirms the key, and a JSON object in the reply gives attributes, which rules
	// read; 404 refuses the key. Without it every key may be placed.
	Check string `yaml:"check"`

	// CheckTimeout bounds the call of check.
	CheckTimeout time.Duration `yaml:"check-timeout" default:"2s" min:"1ms" max:"1m"`

	// TwoPhase makes the row of the map and that of the shard in one step, by
	// prepared transactions in both. The default is a reservation in the map that any
	// later question completes: prepared transactions hold transfers up.
	TwoPhase bool `yaml:"two-phase" default:"false"`

	// Rules are tried in order; the first whose when is true places the key. Without
	// any, and when none is true, a shard that is open is drawn, the less full the
	// likelier.
	Rules []*PlacementRule `yaml:"rules"`
}

// A PlacementRule says which shards a new key may be placed on.
type PlacementRule struct {
	Span diag.Span `yaml:"-"`

	places

	// When tells whether the rule is for a key, from event.key and the attributes in
	// event.payload. It always is when it is left out.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Shards lists shards by name; one that is named takes keys although its
	// registration is closed.
	Shards spec.Names `yaml:"shards" pattern:"id"`

	// Class takes the open shards of a class.
	Class string `yaml:"class" pattern:"id"`
}

// Shard finds a shard of the map by its id; nil when there is none.
func (m *ShardMap) Shard(id string) *Shard {
	for _, s := range m.Shards {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// ShardMap finds a shard map by its id; nil when there is none.
func (b *Bundle) ShardMap(id string) *ShardMap {
	for _, m := range b.ShardMaps {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// Full is the address with its port; empty for one that cannot be read, which the check has
// reported.
func (h *ShardHost) Full() string {
	full, _ := CompleteAddress(h.Address)
	return full
}

// CompleteAddress completes an address by the port of PostgreSQL, 5432, and says what is wrong with
// it; full is empty then. Addresses of IPv6 come with brackets or without.
func CompleteAddress(address string) (full, problem string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), "5432"
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", "it has more than one port"
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Sprintf("the port %q is not a number from 1 to 65535", port)
	}
	if host == "" || strings.ContainsAny(host, "/@?, ") {
		return "", "it names no host"
	}
	return net.JoinHostPort(host, port), ""
}
