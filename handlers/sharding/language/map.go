package language

import (
	"embed"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A ShardMap says which shard has the data of a key, such as a user. A shard is a PostgreSQL cluster of several hosts.
// Services ask for the shard over HTTP. Keys can move from shard to shard while services write to them.
type ShardMap struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the map.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Key names the parts of a key, the widest first, such as user, or [user, folder]. A placement may have fewer parts
	// than a key. Of several placements the one with the most parts applies.
	Key spec.Names `yaml:"key" required:"true" pattern:"id"`

	// KeyType is the type of the first part in the tables: text, or int for whole numbers of up to 64 bits. A range orders int by value.
	KeyType string `yaml:"key-type" enum:"text,int" default:"text"`

	// Strategy says how the map finds the shard of a key. directory has a placement for each key. slots spreads keys by
	// their hash over a fixed number of slots, and each slot has a placement. range has a placement for each range of
	// keys. With each strategy a single key may have a placement of its own.
	Strategy string `yaml:"strategy" enum:"directory,slots,range" default:"directory"`

	// Slots is the number of slots of the strategy slots, a power of two. Never change it once there is data.
	Slots int `yaml:"slots" default:"4096" min:"2" max:"1048576"`

	// Tables lists the tables that move together with a key.
	Tables []*ShardTable `yaml:"tables"`

	// Stays lists tables whose rows stay on their shard on purpose when their key moves. A transfer fails if other tables
	// with a column of the key have rows of it. A partitioned table stands for all its partitions.
	Stays spec.Names `yaml:"stays"`

	// Shards lists the shards of the map.
	Shards []*Shard `yaml:"shards" required:"true"`

	// Connect says how to connect to hosts.
	Connect *ShardConnect `yaml:"connect"`

	// Registration says how new keys get a placement. Without it, new keys are unknown.
	Registration *ShardRegistration `yaml:"registration"`

	// Owner is the team that looks after the map.
	Owner string `yaml:"owner"`
}

// A ShardTable is a table of which each shard has the rows of its keys.
type ShardTable struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Table is the name of the table. Without a schema it is in public.
	Table string `yaml:"table" required:"true"`

	// Key names the columns with the parts of the key, in their order. Its default is the names of the parts. All these
	// columns must belong to the primary key.
	Key spec.Names `yaml:"key"`
}

// A Shard is one PostgreSQL cluster: a master and its replicas.
type Shard struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the shard within its map.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Class is any label for rules, such as hot, warm or cold.
	Class string `yaml:"class" default:"hot" pattern:"id"`

	// Hosts lists the hosts of the shard. The server finds the master among them.
	Hosts []*ShardHost `yaml:"hosts" required:"true"`

	// Registration says whether the shard takes new keys.
	Registration bool `yaml:"registration" default:"true"`

	// Transfer says whether keys may move to the shard.
	Transfer bool `yaml:"transfer" default:"true"`

	// Capacity is how much data fits on the shard. usage is a share of it.
	Capacity datum.Bytes `yaml:"capacity" default:"100GiB" min:"1MiB"`

	// Slots lists the slots that start on this shard, such as 0-1023 or 7. If no shard lists any, all shards get equal parts.
	Slots spec.Names `yaml:"slots"`

	// From lists the lower bounds of the ranges of keys that start on this shard, for the strategy range. The empty
	// text is the bound below all keys.
	From []string `yaml:"from"`
}

// A ShardHost is one PostgreSQL server of a shard.
type ShardHost struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Address is host:port. The default port is 5432.
	Address string `yaml:"address" required:"true"`

	// DC is the data centre of the host.
	DC string `yaml:"dc"`
}

// A ShardConnect says how to connect to the hosts of a map.
type ShardConnect struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Database is the name of the database on each host.
	Database string `yaml:"database" default:"postgres"`

	// User is the database user of clients. Clients add the password themselves.
	User string `yaml:"user"`

	// Parameters are added to the connection string of clients, such as sslmode.
	Parameters map[string]string `yaml:"parameters" expr:"no"`

	// Admin is the database user of procaas, which watches hosts and moves keys. Its default is user.
	Admin string `yaml:"admin"`

	// Secret is the name of the secret with the password of admin, as in !secret. Without it procaas uses no password,
	// or finds one as libpq does.
	Secret string `yaml:"secret"`
}

// A ShardRegistration says how keys get their first placement.
type ShardRegistration struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Lazy places an unknown key when a service first asks for it.
	Lazy bool `yaml:"lazy" default:"true"`

	// Check is a URL that confirms new keys. The server adds key= to its query. 200 confirms the key, and the reply may
	// be a JSON object with attributes for rules. 404 refuses the key. Without it the map accepts every key.
	Check string `yaml:"check"`

	// CheckTimeout is the longest time of a call of check.
	CheckTimeout time.Duration `yaml:"check-timeout" default:"2s" min:"1ms" max:"1m"`

	// TwoPhase writes the row of the map and the row of the shard in one step, with prepared transactions in both. By
	// default the map makes a reservation, and any later request for the key completes it. Prepared transactions delay
	// transfers.
	TwoPhase bool `yaml:"two-phase" default:"false"`

	// Rules place new keys. The first rule whose when is true applies. If none is true, the map chooses an open shard
	// at random, and prefers emptier ones.
	Rules []*PlacementRule `yaml:"rules"`
}

// A PlacementRule says which shards may take a new key.
type PlacementRule struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// When says whether the rule is for a key. It may read event.key and the attributes in event.payload. Without it
	// the rule is for all keys.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Shards lists shards by name. A named shard takes keys even if its registration is closed.
	Shards spec.Names `yaml:"shards" pattern:"id"`

	// Class chooses the open shards of a class.
	Class string `yaml:"class" pattern:"id"`
}

// Shard returns a shard of the map by its id, or nil.
func (m *ShardMap) Shard(id string) *Shard {
	for _, s := range m.Shards {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// MapOf returns a shard map of a bundle by its id, or nil.
func MapOf(b *tree.Bundle, id string) *ShardMap {
	for _, m := range ShardMapsOf(b) {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// ShardMapsOf lists the shard maps of a bundle.
func ShardMapsOf(b *tree.Bundle) []*ShardMap { return tree.In[*ShardMap](b, "shard-maps") }

// A shardMaps is the section of files.
type shardMaps struct {
	// ShardMaps say which shard has the data of a key.
	ShardMaps []*ShardMap `yaml:"shard-maps"`
}

//go:embed rules.yaml
var rulesFile embed.FS

func readRules() []rules.Rule { return rules.Read(rulesFile, "rules.yaml") }

//go:embed map.go
var source embed.FS

// sectionSpec describes the section.
var sectionSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[shardMaps](), spec.Read(source)) })

// Full returns the address with its port. It returns "" for an invalid address, which the check has reported.
func (h *ShardHost) Full() string {
	full, _ := CompleteAddress(h.Address)
	return full
}

// CompleteAddress adds the port of PostgreSQL, 5432, to an address without one. If the address is invalid, full
// is empty and problem says why. IPv6 addresses may have brackets.
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
