package shardmap

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A keyTable has the placements of keys in little memory: some 20 bytes for one of 7 digits. It
// has no pointers to keys, so the garbage collector does not look at them. Transfers and targets
// are not in it.
type keyTable struct {
	seed    maphash.Seed
	stripes [stripes]stripe
	count   atomic.Int64

	numbers sync.Map                 // of shards in records, by name
	shards  atomic.Pointer[[]string] // names by number; replaced by longer ones
	naming  sync.Mutex               // guards both against other writers
}

// stripes is how many parts the table has, so that writers hold readers up little, and little is
// copied when a part grows.
const stripes = 64

// A stripe has the keys with some hashes.
type stripe struct {
	mu      sync.RWMutex // guards the following
	slots   []uint32     // 0, or 1 plus the place of a record; linear probing
	used    int          // slots that are not 0: at most four fifths, so that probing ends
	records []byte
}

// A record begins with a header: two bytes with the length of the key and flags, three with the
// number of the shard, and five with the epoch. The key follows. If all of its characters are
// narrow, each takes half a byte. Records change in place, and stay.
const (
	headerSize = 10

	lengthBits = 10 // enough for maxKey
	lengthMask = 1<<lengthBits - 1
	stateMask  = 3 // of storedStates
	ownedFlag  = 1 << 12
	notedFlag  = 1 << 13
	narrowFlag = 1 << 14

	maxEpoch = 1<<40 - 1
	narrow   = "0123456789-/._:@"
)

// storedStates are the states by number, as in records.
var storedStates = [...]State{Ready, Merged, Creating, Refused}

// A record is a place in the records of a stripe.
type record []byte

func (r record) flags() uint16     { return binary.LittleEndian.Uint16(r) }
func (r record) setFlags(f uint16) { binary.LittleEndian.PutUint16(r, f) }

// size returns the length of the record.
func (r record) size() int { return headerSize + keySize(r.flags()) }

// keySize returns how many bytes the key of a record with these flags takes.
func keySize(flags uint16) int {
	n := int(flags & lengthMask)
	if flags&narrowFlag != 0 {
		return (n + 1) / 2
	}
	return n
}

// has reports whether the record is that of a key.
func (r record) has(key string) bool {
	f := r.flags()
	switch {
	case int(f&lengthMask) != len(key):
		return false
	case f&narrowFlag == 0:
		return string(r[headerSize:r.size()]) == key
	}
	for i := range len(key) {
		if r.narrowAt(i) != key[i] {
			return false
		}
	}
	return true
}

// narrowAt returns a character of a narrow key.
func (r record) narrowAt(i int) byte { return narrow[r[headerSize+i/2]>>(i%2*4)&15] }

// appendKey appends the key of the record.
func (r record) appendKey(to []byte) []byte {
	f := r.flags()
	if f&narrowFlag == 0 {
		return append(to, r[headerSize:r.size()]...)
	}
	for i := range int(f & lengthMask) {
		to = append(to, r.narrowAt(i))
	}
	return to
}

// setKey writes a key and its flags into a new record.
func (r record) setKey(key string, flags uint16) {
	r.setFlags(flags)
	if flags&narrowFlag == 0 {
		copy(r[headerSize:], key)
		return
	}
	for i := range len(key) {
		r[headerSize+i/2] |= byte(strings.IndexByte(narrow, key[i])) << (i % 2 * 4)
	}
}

// flagsOf returns the length of a key, and whether it is narrow.
func flagsOf(key string) uint16 {
	f := uint16(len(key))
	for i := range len(key) {
		if strings.IndexByte(narrow, key[i]) < 0 {
			return f
		}
	}
	return f | narrowFlag
}

// The shard and the epoch are the eight bytes behind the flags.
func (r record) place() (shard int, epoch int64) {
	v := binary.LittleEndian.Uint64(r[2:])
	return int(v & (1<<24 - 1)), int64(v >> 24)
}

func (r record) setPlace(shard int, epoch int64) {
	binary.LittleEndian.PutUint64(r[2:], uint64(shard)|uint64(epoch)<<24)
}

func newKeyTable() *keyTable {
	t := &keyTable{seed: maphash.MakeSeed()}
	t.shards.Store(&[]string{})
	return t
}

// stripe returns the stripe of a key and its hash there.
func (t *keyTable) stripe(key string) (*stripe, uint64) {
	h := maphash.String(t.seed, key)
	return &t.stripes[h%stripes], h
}

// begin returns the first slot of a hash.
func (s *stripe) begin(hash uint64) int { return int((hash >> 32) * uint64(len(s.slots)) >> 32) }

// find returns the record of a key, or nil. The caller holds the lock.
func (s *stripe) find(hash uint64, key string) record {
	if len(s.slots) == 0 {
		return nil
	}
	for i := s.begin(hash); s.slots[i] != 0; i = s.after(i) {
		if r := record(s.records[s.slots[i]-1:]); r.has(key) {
			return r
		}
	}
	return nil
}

// after returns the slot that probing comes to next.
func (s *stripe) after(slot int) int {
	if slot+1 == len(s.slots) {
		return 0
	}
	return slot + 1
}

// get returns the placement of a key without its map. ok is false if the table does not have it.
func (t *keyTable) get(key string) (p Placement, ok bool) {
	s, hash := t.stripe(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.find(hash, key)
	if r == nil {
		return Placement{}, false
	}
	return t.placement(r, key), true
}

func (t *keyTable) placement(r record, key string) Placement {
	f := r.flags()
	shard, epoch := r.place()
	return Placement{
		Key: key, Shard: (*t.shards.Load())[shard], Epoch: epoch,
		State: storedStates[f>>lengthBits&stateMask], Owned: f&ownedFlag != 0,
	}
}

// put adds a placement, or replaces one by its news. It reports whether there were any. It keeps no
// epochs beyond maxEpoch, which are years of a transfer each millisecond.
func (t *keyTable) put(p Placement) bool {
	state := slices.Index(storedStates[:], p.State)
	if len(p.Key) > maxKey || p.Epoch < 0 || p.Epoch > maxEpoch || state < 0 {
		return false
	}
	shard := t.number(p.Shard)
	s, hash := t.stripe(p.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(hash, p.Key)
	if r == nil {
		r = t.add(s, hash, p.Key)
	} else if old := t.placement(r, p.Key); !newer(Placement{
		Key: p.Key, Shard: p.Shard, Epoch: p.Epoch, State: p.State, Owned: p.Owned,
	}, &old) {
		return false
	}
	f := r.flags()&(lengthMask|notedFlag|narrowFlag) | uint16(state)<<lengthBits
	if p.Owned {
		f |= ownedFlag
	}
	r.setFlags(f)
	r.setPlace(shard, p.Epoch)
	return true
}

// add makes a record for a new key.
func (t *keyTable) add(s *stripe, hash uint64, key string) record {
	if 5*(s.used+1) > 4*len(s.slots) {
		t.grow(s)
	}
	flags := flagsOf(key)
	at, size := len(s.records), headerSize+keySize(flags)
	if n := at + size; n > cap(s.records) {
		// Less than what append takes, because there are many stripes with many records.
		s.records = append(make([]byte, 0, n+n/8), s.records...)
	}
	s.records = append(s.records, make([]byte, size)...)
	r := record(s.records[at:])
	r.setKey(key, flags)
	s.occupy(hash, uint32(at)+1)
	s.used++
	t.count.Add(1)
	return r
}

// occupy sets the first free slot for a hash.
func (s *stripe) occupy(hash uint64, to uint32) {
	i := s.begin(hash)
	for s.slots[i] != 0 {
		i = s.after(i)
	}
	s.slots[i] = to
}

// grow makes a quarter more slots.
func (t *keyTable) grow(s *stripe) {
	old := s.slots
	s.slots = make([]uint32, max(8, len(old)*5/4))
	var key []byte
	for _, at := range old {
		if at != 0 {
			key = record(s.records[at-1:]).appendKey(key[:0])
			s.occupy(maphash.Bytes(t.seed, key), at)
		}
	}
}

// number returns the number of a shard in records.
func (t *keyTable) number(shard string) int {
	if n, ok := t.numbers.Load(shard); ok {
		return n.(int)
	}
	t.naming.Lock()
	defer t.naming.Unlock()
	known := *t.shards.Load()
	if n := slices.Index(known, shard); n >= 0 {
		return n
	}
	longer := append(slices.Clone(known), strings.Clone(shard))
	t.shards.Store(&longer) // first, so that a reader of a record finds its name
	t.numbers.Store(longer[len(known)], len(known))
	return len(known)
}

// noted reports whether a key is marked. known is false if the table does not have it.
func (t *keyTable) noted(key string) (noted, known bool) {
	s, hash := t.stripe(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.find(hash, key)
	return r != nil && r.flags()&notedFlag != 0, r != nil
}

// note marks a key. first reports whether it was not marked. known is false if the table does not have it.
func (t *keyTable) note(key string) (first, known bool) {
	s, hash := t.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(hash, key)
	if r == nil {
		return false, false
	}
	first = r.flags()&notedFlag == 0
	r.setFlags(r.flags() | notedFlag)
	return first, true
}

// forget removes all marks.
func (t *keyTable) forget() {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		for at := 0; at < len(s.records); {
			r := record(s.records[at:])
			r.setFlags(r.flags() &^ notedFlag)
			at += r.size()
		}
		s.mu.Unlock()
	}
}
