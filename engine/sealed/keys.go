package sealed

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"procaas/engine/model"
	"procaas/engine/store"
)

// The document of the data keys. It is the only one that is never sealed.
const (
	documentKind = store.EncryptionKind
	documentName = "keys"
)

// idLength is the length of the id of a data key.
const idLength = 16

// lookAgain is how old the knowledge of a process about the active data key may be when it seals.
const lookAgain = 10 * time.Second

// A DataKey is a key of a store, encrypted with a key-encryption key.
type DataKey struct {
	ID      string    `json:"id"`
	Use     string    `json:"use"` // [UseData] or [UseHashes]
	Created time.Time `json:"created"`
	KEK     uint32    `json:"key_encryption_key"`
	Wrapped []byte    `json:"wrapped"`
}

// These are the uses of data keys.
const (
	UseData   = "data"
	UseHashes = "hashes" // of events, by which duplicates are found; never replaced, since old hashes must stay comparable
)

// state is the document. Keys are in the order of their creation.
type state struct {
	// Since is when the first key was written, by the clock of the store. The first version of the document leaves it out.
	Since  time.Time `json:"since,omitzero"`
	Active string    `json:"active,omitempty"` // the key for new data; empty: new data is not sealed
	// Stopped is since when it is not, by the clock of the operator who stopped it.
	Stopped time.Time `json:"stopped,omitzero"`
	Keys    []DataKey `json:"keys"`
}

// keys is what a process knows of a state.
type keys struct {
	state   state
	version int64     // of the document; 0 if there is none
	looked  time.Time // when the document was read
	begun   bool      // the process has seen data keys
	active  tink.AEAD // nil if new data is not sealed
	byID    map[string]tink.AEAD
	hashes  []hashKey // newest first

	// listed are the ids in the document as it was read last. A process whose file lacks a key-encryption key keeps the keys that it has, which
	// may be others.
	listed map[string]bool
}

// A hashKey makes hashes that nobody without it can compare with guesses.
type hashKey struct {
	id  string
	set *prf.Set
}

// A Vault has the keys of one database.
type Vault struct {
	docs   store.Documents // of the store, not sealed
	ledger store.Ledger    // of the store, not sealed
	file   string
	log    *slog.Logger

	mu   sync.Mutex // held while the keys are read anew
	have atomic.Pointer[keys]
}

// NewVault makes a vault for the documents of a store, with a file of key-encryption keys.
func NewVault(docs store.Documents, file string, log *slog.Logger) *Vault {
	v := &Vault{docs: docs, file: file, log: log}
	v.have.Store(&keys{byID: map[string]tink.AEAD{}})
	return v
}

// Refresh reads the data keys of the store, and opens those that are new with the file. A process that has opened keys keeps
// them if the file lacks the key-encryption key of a new one.
func (v *Vault) Refresh(ctx context.Context) (*keys, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.have.Load()
	d, err := v.docs.Document(ctx, documentKind, documentName)
	if errors.Is(err, store.ErrNotFound) {
		d, err = store.Document{Value: []byte("{}")}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the data keys: %w", err)
	}
	k := &keys{version: d.Version, looked: time.Now(), byID: map[string]tink.AEAD{}}
	if err := json.Unmarshal(d.Value, &k.state); err != nil {
		return nil, fmt.Errorf("%w: the document with the data keys: %w", store.ErrDamaged, err)
	}
	k.begun = old.begun || len(k.state.Keys) > 0
	k.listed = make(map[string]bool, len(k.state.Keys))
	for _, one := range k.state.Keys {
		k.listed[one.ID] = true
	}
	if len(k.state.Keys) > 0 && k.state.Since.IsZero() {
		k.state.Since = d.Changed
	}
	if v.file == "" {
		return k, nil
	}
	if k.version == old.version {
		return v.keep(old, k), nil
	}
	if err := v.unwrap(k); err != nil {
		if !old.begun {
			return nil, err
		}
		v.log.Error("the data keys of the store have changed, and this node cannot use the new ones", "error", err)
		return v.keep(old, k), nil
	}
	v.have.Store(k)
	return k, nil
}

// keep keeps the keys that a process has, with what it has read meanwhile. The caller holds the lock.
func (v *Vault) keep(old, read *keys) *keys {
	again := *old
	again.looked, again.listed = read.looked, read.listed
	v.have.Store(&again)
	return &again
}

// unwrap opens the data keys of a state with the file.
func (v *Vault) unwrap(k *keys) error {
	if len(k.state.Keys) == 0 {
		return nil
	}
	file, err := ReadFile(v.file)
	if err != nil {
		return err
	}
	for _, one := range k.state.Keys {
		h, err := file.unwrap(one)
		if err != nil {
			return err
		}
		if one.Use == UseHashes {
			set, err := prf.NewPRFSet(h)
			if err != nil {
				return fmt.Errorf("data key %s: %w", one.ID, err)
			}
			k.hashes = append([]hashKey{{one.ID, set}}, k.hashes...)
			continue
		}
		if k.byID[one.ID], err = aead.New(h); err != nil {
			return fmt.Errorf("data key %s: %w", one.ID, err)
		}
	}
	if k.state.Active != "" {
		k.active = k.byID[k.state.Active]
	}
	return nil
}

// now returns the keys to seal with. The first write of a process to a store without keys makes them.
func (v *Vault) now(ctx context.Context) (*keys, error) {
	old := v.have.Load()
	if old.begun && time.Since(old.looked) < lookAgain {
		return old, old.removed(v.file)
	}
	k, err := v.Refresh(ctx)
	switch {
	case err != nil && old.begun:
		return old, old.removed(v.file) // the write itself finds out what is wrong with the store
	case err != nil:
		return k, err
	case k.begun:
		return k, k.removed(v.file)
	}
	return v.begin(ctx)
}

// removed returns an error if nobody else could open what this process seals.
func (k *keys) removed(file string) error {
	if k.active == nil || k.listed[k.state.Active] {
		return nil
	}
	return keyErrorf("the data key %s, with which this node seals, was removed from the store, and %s does not open the others: give the node the "+
		"file that the other nodes have", k.state.Active, file)
}

// begin makes the first data keys of a store.
func (v *Vault) begin(ctx context.Context) (*keys, error) {
	if err := v.refuseOthers(ctx, time.Time{}); err != nil {
		return nil, err
	}
	k, err := v.Rotate(ctx, store.Actor{})
	if errors.Is(err, store.ErrConflict) {
		k, err = v.Refresh(ctx) // another node was first
	}
	return k, err
}

// newKey makes a data key.
func (f *File) newKey(use string, kind *tinkpb.KeyTemplate) (DataKey, error) {
	id := make([]byte, idLength/2)
	_, _ = rand.Read(id) // it never fails
	one := DataKey{ID: hex.EncodeToString(id), Use: use, Created: time.Now().UTC().Truncate(time.Second)}
	h, err := keyset.NewHandle(kind)
	if err == nil {
		err = f.wrap(&one, h)
	}
	return one, err
}

// Rotate makes a new data key for new data, and encrypts all data keys with the primary key of the file. The error is
// [store.ErrConflict] if somebody else has changed them meanwhile.
func (v *Vault) Rotate(ctx context.Context, by store.Actor) (*keys, error) {
	return v.change(ctx, "rotate", by, func(s *state) error {
		file, err := ReadFile(v.file)
		if err != nil {
			return err
		}
		hashes := slices.ContainsFunc(s.Keys, func(k DataKey) bool { return k.Use == UseHashes })
		for i := range s.Keys {
			h, err := file.unwrap(s.Keys[i])
			if err == nil {
				err = file.wrap(&s.Keys[i], h)
			}
			if err != nil {
				return err
			}
		}
		if !hashes {
			one, err := file.newKey(UseHashes, prf.HMACSHA256PRFKeyTemplate())
			if err != nil {
				return err
			}
			s.Keys = append(s.Keys, one)
		}
		// Its nonces are long enough to be random however much is sealed.
		one, err := file.newKey(UseData, aead.XChaCha20Poly1305KeyTemplate())
		s.Keys, s.Active, s.Stopped = append(s.Keys, one), one.ID, time.Time{}
		return err
	})
}

// Stop lets nodes write new data as it is. What is sealed stays readable with the keys.
func (v *Vault) Stop(ctx context.Context, by store.Actor) error {
	_, err := v.change(ctx, "stop", by, func(s *state) error {
		s.Active, s.Stopped = "", time.Now().UTC().Truncate(time.Second)
		return nil
	})
	return err
}

// Remove removes a data key that is not active. The caller has looked that nothing needs it.
func (v *Vault) Remove(ctx context.Context, id string, by store.Actor) error {
	_, err := v.change(ctx, "remove", by, func(s *state) error {
		s.Keys = slices.DeleteFunc(s.Keys, func(k DataKey) bool { return k.ID == id })
		if len(s.Keys) == 0 {
			s.Since = time.Time{} // encryption may begin anew
		}
		return nil
	})
	return err
}

// change changes the data keys, with an audit record if an operator does it.
func (v *Vault) change(ctx context.Context, what string, by store.Actor, do func(*state) error) (*keys, error) {
	k, err := v.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	s := k.state
	s.Keys = slices.Clone(s.Keys)
	before := auditOf(&s)
	if err := do(&s); err != nil {
		return nil, err
	}
	var audits []store.Audited
	if by.Name != "" {
		audits = []store.Audited{{Kind: store.AuditKeys, Name: what, By: by, Before: before, After: auditOf(&s)}}
	}
	write := store.DocumentWrite{Kind: documentKind, Name: documentName, Version: k.version, Value: model.EncodeJSON(s)}
	if _, err := v.docs.WriteDocuments(ctx, 0, []store.DocumentWrite{write}, audits); err != nil {
		return nil, fmt.Errorf("write the data keys: %w", err)
	}
	return v.Refresh(ctx)
}

// auditOf is a state without the keys themselves.
func auditOf(s *state) []byte {
	type audited struct {
		Active string   `json:"active"`
		Keys   []string `json:"keys"`
		KEKs   []uint32 `json:"key_encryption_keys"`
	}
	a := audited{Active: s.Active, Keys: []string{}, KEKs: []uint32{}}
	for _, k := range s.Keys {
		a.Keys = append(a.Keys, k.ID)
		if !slices.Contains(a.KEKs, k.KEK) {
			a.KEKs = append(a.KEKs, k.KEK)
		}
	}
	return model.EncodeJSON(a)
}

// Settled returns since when nodes have had to seal with the active key, or with none. Until they have read it, they may seal with another one.
func (v *Vault) Settled(ctx context.Context) (since time.Time, err error) {
	k, err := NewVault(v.docs, "", v.log).Refresh(ctx)
	if err != nil {
		return since, err
	}
	since = k.state.Stopped
	for _, one := range k.state.Keys {
		if one.Created.After(since) {
			since = one.Created
		}
	}
	return since, nil
}

// List returns the data keys of the store, oldest first, and the id of the active one. It needs no file.
func (v *Vault) List(ctx context.Context) (all []DataKey, active string, err error) {
	bare := NewVault(v.docs, "", v.log)
	k, err := bare.Refresh(ctx)
	if err != nil {
		return nil, "", err
	}
	return k.state.Keys, k.state.Active, nil
}

// adopt adds data keys of another database, whose rows come here.
func (v *Vault) adopt(ctx context.Context, others []DataKey) error {
	has := func(s *state, id string) bool {
		return slices.ContainsFunc(s.Keys, func(k DataKey) bool { return k.ID == id })
	}
	missing := func(s *state) bool {
		return slices.ContainsFunc(others, func(k DataKey) bool { return !has(s, k.ID) })
	}
	k, err := v.now(ctx)
	for err == nil && missing(&k.state) {
		k, err = v.change(ctx, "adopt", store.Actor{}, func(s *state) error {
			for _, one := range others {
				if !has(s, one.ID) {
					s.Keys = append([]DataKey{one}, s.Keys...)
				}
			}
			return nil
		})
		if errors.Is(err, store.ErrConflict) {
			k, err = v.Refresh(ctx)
		}
	}
	return err
}

// wrap encrypts a data key with the primary key of the file.
func (f *File) wrap(one *DataKey, h *keyset.Handle) error {
	var out bytes.Buffer
	if err := h.WriteWithAssociatedData(keyset.NewBinaryWriter(&out), f.aead, []byte(one.ID)); err != nil {
		return fmt.Errorf("encrypt data key %s: %w", one.ID, err)
	}
	one.KEK, one.Wrapped = f.Primary, out.Bytes()
	return nil
}

// unwrap opens a data key.
func (f *File) unwrap(one DataKey) (*keyset.Handle, error) {
	if !slices.Contains(f.IDs, one.KEK) {
		return nil, keyErrorf("data key %s of the store needs the key-encryption key %d, and %s has only %v: use the file that has it",
			one.ID, one.KEK, f.path, f.IDs)
	}
	h, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(one.Wrapped)), f.aead, []byte(one.ID))
	if err != nil {
		return nil, keyErrorf("%v: data key %s does not open with the key-encryption key %d of %s: %v", store.ErrDamaged, one.ID, one.KEK, f.path, err)
	}
	return h, nil
}
