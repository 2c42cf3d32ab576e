package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

// This file has the port for documents. Handler types use documents for data that is not part of a
// run, such as the assignment of a cluster.

// AnyVersion lets a write replace any version.
const AnyVersion = -1

// EncryptionKind is the kind of the document with the keys of an encrypted store. A store in which it was written lets no programs work that know
// nothing of encryption.
const EncryptionKind = "encryption"

// Documents stores JSON documents by kind and name. Each write makes the next version of its
// document. Documents are never removed, so a version number never occurs twice.
type Documents interface {
	// Document reads a document. The error is [ErrNotFound] if it was never written.
	Document(ctx context.Context, kind, name string) (Document, error)

	// DocumentsOf reads the documents of a kind whose names have a prefix, ordered by name.
	DocumentsOf(ctx context.Context, kind, prefix string) ([]Document, error)

	// WriteDocuments writes either all documents or none, with the audit records, in one
	// transaction. It returns the new versions. The error is [ErrConflict] if a document does not
	// have the version that its write is based on, and [ErrFenced] if the node may no longer write.
	// Node 0 means no node and is never fenced.
	WriteDocuments(ctx context.Context, node int64, writes []DocumentWrite, audits []Audited) ([]int64, error)

	// Changed returns a channel that is closed when any document changes. It is a hint: this
	// process may miss a change.
	Changed() <-chan struct{}
}

// A Document is the latest version of a document.
type Document struct {
	Kind    string
	Name    string
	Version int64 // 1 for the first
	Value   []byte
	Changed time.Time
	Node    int64 // the node that wrote it; 0 for none
}

// A DocumentWrite is the new content of a document.
type DocumentWrite struct {
	Kind    string
	Name    string
	Version int64 // the version that it is based on; 0 for none, or [AnyVersion]
	Value   []byte
}

// documentPoll is the longest time until AwaitDocument sees a change whose hint was lost.
const documentPoll = time.Second

// AwaitDocument waits until a document has a version later than after, and reads it.
func AwaitDocument(ctx context.Context, store Documents, kind, name string, after int64) (Document, error) {
	for {
		changed := store.Changed()
		d, err := store.Document(ctx, kind, name)
		if err != nil && !errors.Is(err, ErrNotFound) || err == nil && d.Version > after {
			return d, err
		}
		t := time.NewTimer(documentPoll)
		select {
		case <-ctx.Done():
			t.Stop()
			return Document{}, ctx.Err()
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// A Broadcast notifies any number of listeners at once. The zero value is ready to use.
type Broadcast struct {
	mu   sync.Mutex // guards next
	next chan struct{}
}

// Next returns a channel that the next Send closes.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Send notifies all listeners.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
