package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

// This file is the part of the ports that speaks of documents: what handler types
// keep besides runs, such as the assignment of a cluster.

// AnyVersion lets a write replace whatever there is.
const AnyVersion = -1

// Documents keeps JSON documents by kind and name. Each write makes the next version
// of its document, and none is ever removed, so that a version is never there twice.
type Documents interface {
	// Document reads one; [ErrNotFound] when it was never written.
	Document(ctx context.Context, kind, name string) (Document, error)

	// DocumentsOf reads those of a kind whose names begin with a prefix, in the order
	// of their names.
	DocumentsOf(ctx context.Context, kind, prefix string) ([]Document, error)

	// WriteDocuments writes all or none, with the audit records, in one transaction,
	// and returns the new versions. The error is [ErrConflict] when a document has not
	// the version that its write builds on, and [ErrFenced] when the node may not
	// write any more; node 0 is nobody's and is not fenced.
	WriteDocuments(ctx context.Context, node int64, writes []DocumentWrite, audits []Audited) ([]int64, error)

	// Changed returns a channel that is closed when any document has changed, as far
	// as this process hears of it: a hint, which may be lost.
	Changed() <-chan struct{}
}

// A Document is what was written last under a kind and a name.
type Document struct {
	Kind    string
	Name    string
	Version int64 // 1 for the first
	Value   []byte
	Changed time.Time
	Node    int64 // that wrote it; 0 for none
}

// A DocumentWrite is what shall be in a document.
type DocumentWrite struct {
	Kind    string
	Name    string
	Version int64 // that it builds on; 0 for none, or [AnyVersion]
	Value   []byte
}

// documentPoll is how long a change may stay unnoticed whose hint was lost.
const documentPoll = time.Second

// AwaitDocument waits for a later version of a document than the one given, and reads
// it.
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

// A Broadcast tells any number of listeners at once. The zero value is ready.
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

// Send tells all who listen.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
