package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// A File has key-encryption keys, as a JSON keyset of Tink. Its primary key encrypts data keys, and all of them open data keys.
type File struct {
	Primary uint32
	IDs     []uint32 // of all keys

	path   string
	handle *keyset.Handle
	aead   tink.AEAD
}

// ReadFile reads a file of key-encryption keys.
func ReadFile(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, keyErrorf("there is no file %s with key-encryption keys: procaas store keys new %[1]s makes one", path)
	}
	if err != nil {
		return nil, keyErrorf("key-encryption keys: %v", err)
	}
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(data)))
	if err != nil {
		return nil, keyErrorf("%s: want a JSON keyset of Tink, as procaas store keys new makes it: %v", path, err)
	}
	return newFile(path, h)
}

func newFile(path string, h *keyset.Handle) (*File, error) {
	f := &File{path: path, handle: h}
	primary, err := h.Primary()
	if err == nil {
		f.Primary = primary.KeyID()
		f.aead, err = aead.New(h)
	}
	if err != nil {
		return nil, keyErrorf("%s: want keys for authenticated encryption (AEAD): %v", path, err)
	}
	for i := range h.Len() {
		e, err := h.Entry(i)
		if err != nil {
			return nil, keyErrorf("%s: %v", path, err)
		}
		f.IDs = append(f.IDs, e.KeyID())
	}
	return f, nil
}

// NewKey adds a key-encryption key to a file, as its primary one. It makes a file that is not there, for its owner alone.
func NewKey(path string) (*File, error) {
	m := keyset.NewManager()
	old, err := ReadFile(path)
	if err == nil {
		m = keyset.NewManagerFromHandle(old.handle)
	} else if _, missing := os.Stat(path); !errors.Is(missing, fs.ErrNotExist) {
		return nil, err
	}
	id, err := m.Add(aead.AES256GCMKeyTemplate())
	if err == nil {
		err = m.SetPrimary(id)
	}
	return write(path, m, err)
}

// RemoveKey removes a key-encryption key from a file. The caller has looked that no data key needs it.
func RemoveKey(path string, id uint32) (*File, error) {
	f, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	if id == f.Primary {
		return nil, keyErrorf("%s: %d is the primary key; make another one first with procaas store keys new %[1]s", path, id)
	}
	m := keyset.NewManagerFromHandle(f.handle)
	return write(path, m, m.Delete(id))
}

// write replaces a file as a whole.
func write(path string, m *keyset.Manager, err error) (*File, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := m.Handle()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // for its owner alone
	if err != nil {
		return nil, err
	}
	err = insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(out))
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(out.Name()))
	}
	return newFile(path, h)
}
