package preflight

import "slices"

// A Map says what a shard map needs of a shard.
type Map struct {
	ID       string
	Tables   []Table
	Ints     bool // the first part of keys is a whole number
	Filtered bool // its publications filter rows by the first part of keys
	TwoPhase bool // it registers keys in two phases
	Place    int  // of the shard in the map, from 0

	// Stays are tables whose rows stay on purpose, and Elsewhere those that other maps move.
	Stays, Elsewhere []string

	// Publications are the names of its publications on a shard.
	Publications []string
}

// A Table is a table that the map lists.
type Table struct {
	Name string   // with its schema; public by default
	Key  []string // columns of the parts of keys, in order
}

// Facts describe a shard.
type Facts struct {
	Server Server
	Tables []TableFacts // of [Map.Tables], in their order

	// Publications are those with a name of the map's, and those that contain one of its tables.
	Publications []Publication

	// Neighbours are tables that the map does not list, and that have to do with one that it lists.
	Neighbours []Neighbour

	// Missing are those of [Map.Stays] that do not exist.
	Missing []string
}

// A Server describes the server of a shard.
type Server struct {
	Version               int // such as 150004
	WALLevel              string
	Slots, SlotsInUse     int // of max_replication_slots
	Senders, SendersInUse int // of max_wal_senders
	PreparedMax, Dangling int // prepared transactions; Dangling are older than a minute
	Replicates            bool
}

// TableFacts describe a table. There is none if Kind is empty.
type TableFacts struct {
	Kind        string   // relkind of pg_class
	Persistence string   // relpersistence
	Identity    string   // relreplident
	Children    []string // up to four partitions or inheriting tables
	Owned       bool     // the role has the rights of its owner
	Hidden      bool     // row security is active for the role
	Columns     []Column
	Indexes     []Index

	// Triggers are those that also fire for rows of transfers: ENABLE ALWAYS and ENABLE REPLICA.
	Triggers []string
}

// A Column is a column of a table.
type Column struct {
	Name      string
	Type      string // without modifiers; of a domain its name
	Base      string // of a domain its base type; else empty
	Generated bool   // always from other columns
	Sequence  string // of its defaults, if the sequence has the same range on all shards; else empty
	Most      int64  // the end of that range
	Collation string // name, unless it is one of the server's own
	Folds     bool   // its collation takes different texts for equal
}

// An Index is a unique index.
type Index struct {
	Name       string
	Columns    []string // of the index; without expressions
	Primary    bool
	Deferrable bool
	Partial    bool
	Expression bool
}

// A Publication is a publication on the shard.
type Publication struct {
	Name      string
	AllTables bool
	Owned     bool     // the role has the rights of its owner
	Tables    []string // of the map
}

// These are the kinds of neighbours.
const (
	partition = "partition" // another partition of the same table
	child     = "child"     // it refers to a listed table, perhaps by others
	parent    = "parent"    // a listed table refers to it
	keyed     = "keyed"     // it has a column with the name of the key's first one
)

// A Neighbour is a table that the map does not list.
type Neighbour struct {
	Table string
	Kind  string // partition, child, parent or keyed
	Of    string // the table that the map lists, or the column for keyed
	Stays bool   // its rows stay on purpose
}

func (t *TableFacts) column(name string) *Column {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Columns[i]
}

// primary returns the index of the primary key, or nil.
func (t *TableFacts) primary() *Index {
	i := slices.IndexFunc(t.Indexes, func(x Index) bool { return x.Primary })
	if i < 0 {
		return nil
	}
	return &t.Indexes[i]
}
