package shardmap

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"procaas/handlers/sharding/language"
)

// A Placement says where a key, a slot or a stretch of keys lives.
type Placement struct {
	Key   string // in the form that the package comment describes
	Shard string
	Epoch int64 // grows with each move
	Map   string
	State State

	Transfer string // the last transfer that had it; empty for none
	Owned    bool   // a transfer has it
	Target   string // of the transfer; empty for none
}

// covers reports whether the placement may contain a key. The caller knows that slots and stretches
// are those of the key's first part.
func (p Placement) covers(key string) bool {
	return p.Key == key || strings.HasPrefix(key, p.Key+"/") || p.Key != "" && (p.Key[0] == '#' || p.Key[0] == '[')
}

// A State says whether a placement can be used.
type State string

// These are the states of a placement.
const (
	// Creating is a key whose registration is unfinished: the shard may not know it.
	Creating State = "creating"

	// Ready is a key that can be written to.
	Ready State = "active"

	// Refused is a key that must not be registered.
	Refused State = "refused"

	// Merged is a part that belongs to a wider placement again, such as a stretch to the one before
	// it.
	Merged State = "merged"
)

// Callers test for these errors.
var (
	// ErrUnknownMap reports that no shard map has the name.
	ErrUnknownMap = errors.New("unknown shard map")

	// ErrUnknownShard reports that the map has no such shard.
	ErrUnknownShard = errors.New("unknown shard")

	// ErrUnknownKey reports that the key has no placement.
	ErrUnknownKey = errors.New("unknown key")

	// ErrBusy reports that a transfer has the placement, or that it is being registered.
	ErrBusy = errors.New("the key is busy")

	// ErrLost reports that a transfer no longer owns the placement: another coordinator has taken
	// it over, or it was aborted.
	ErrLost = errors.New("the transfer has lost the key")

	// ErrClosed reports that the target accepts no keys.
	ErrClosed = errors.New("the shard takes no keys")
)

// A Transfer is the right to move a placement.
type Transfer struct {
	Map, Key, ID   string
	Source, Target string
	Epoch          int64  // of the placement before the transfer
	Next           int64  // of the placement on the target
	Owner          string // token; beginning the same transfer again returns a new one

	// Switched says that the placement is on the target already.
	Switched bool
}

// A layout describes the keyspace of a map.
type layout struct {
	strategy string
	slots    int
	parts    int  // of a key
	ints     bool // the first part is a whole number
}

func layoutOf(m *language.ShardMap) layout {
	return layout{m.Strategy, m.Slots, len(m.Key), m.KeyType == "int"}
}

// check refuses a text that is not a key of the map.
func (l layout) check(key string) error {
	k, err := parseKey(key)
	if err != nil {
		return err
	}
	if len(k) > l.parts {
		return fmt.Errorf("%w: %q has %d parts, the keys of the map have %d", ErrKey, key, len(k), l.parts)
	}
	if l.ints {
		if n, err := strconv.ParseInt(k[0], 10, 64); err != nil || strconv.FormatInt(n, 10) != k[0] {
			return fmt.Errorf("%w: want a whole number, have %q", ErrKey, k[0])
		}
	}
	return nil
}

// hash returns the hash of a key's first part, as PostgreSQL computes it for the column.
func (l layout) hash(key string) uint64 {
	first := firstPart(key)
	if l.ints {
		n, _ := strconv.ParseInt(first, 10, 64) // check has parsed it
		return HashInt(n)
	}
	return Hash(first)
}

// slot returns the slot of a key's first part, so that all keys below it live together unless they
// have their own placements.
func (l layout) slot(key string) string {
	return "#" + strconv.FormatUint(l.hash(key)&uint64(l.slots-1), 10)
}

// below reports whether one lower bound of a stretch is less than another.
func (l layout) below(a, b string) bool {
	if !l.ints || a == "" || b == "" {
		return a < b
	}
	x, _ := strconv.ParseInt(a, 10, 64)
	y, _ := strconv.ParseInt(b, 10, 64)
	return x < y
}

// candidates lists the placements that a key may have, in order of precedence. The stretch of a
// range is not among them.
func (l layout) candidates(key string) []string {
	out := []string{key}
	for k, ok := cutLast(key); ok; k, ok = cutLast(k) {
		out = append(out, k)
	}
	if l.strategy == "slots" {
		out = append(out, l.slot(key))
	}
	return out
}

// overlap reports whether two placements may have rows in common, now or before one was split off
// the other.
func (l layout) overlap(a, b string) bool {
	if a[0] != '#' && a[0] != '[' {
		a, b = b, a
	}
	switch {
	case a == b:
		return true
	case b[0] == '#' || b[0] == '[':
		return false
	case a[0] == '#':
		return l.slot(b) == a
	case a[0] == '[':
		return !l.below(firstPart(b), a[1:])
	}
	return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// publications returns how many publications of the map a shard has.
func (l layout) publications() int {
	switch l.strategy {
	case "slots":
		return min(Buckets, l.slots)
	case "range":
		return 1
	}
	return Buckets
}

// bucket returns which publication has the rows of a placement.
func (l layout) bucket(placement string) int {
	n := l.publications()
	if slot, ok := strings.CutPrefix(placement, "#"); ok {
		i, _ := strconv.Atoi(slot)
		return i & (n - 1)
	}
	return int(l.hash(placement) & uint64(n-1))
}
