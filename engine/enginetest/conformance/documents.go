package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

// write writes one document. It must succeed.
func (p *probe) write(node int64, w store.DocumentWrite, audits ...store.Audited) int64 {
	p.Helper()
	versions, err := p.Documents.WriteDocuments(p.Context(), node, []store.DocumentWrite{w}, audits)
	p.must(err)
	p.equal("versions", len(versions), 1)
	return versions[0]
}

// told reports whether a channel of Changed is closed. It waits for hints from the database.
func told(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-time.After(patience.For(time.Minute)):
		return false
	}
}

var documentCases = []storeCase{
	{"documents have versions that only grow", func(p *probe) {
		_, err := p.Documents.Document(p.Context(), "levers", "a")
		p.wantErr("what was never written", err, store.ErrNotFound)
		node := p.join()
		p.equal("first", p.write(node.id, store.DocumentWrite{Kind: "levers", Name: "a", Value: []byte(`{"n": 1}`)}), int64(1))
		p.equal("second", p.write(0, store.DocumentWrite{Kind: "levers", Name: "a", Version: 1, Value: []byte(`{"n": 2}`)}), int64(2))
		p.equal("any", p.write(node.id, store.DocumentWrite{Kind: "levers", Name: "a", Version: store.AnyVersion, Value: []byte(`{"n": 3}`)}),
			int64(3))
		p.equal("any, of none", p.write(0, store.DocumentWrite{Kind: "moves", Name: "a", Version: store.AnyVersion, Value: []byte("1")}),
			int64(1))
		for _, version := range []int64{0, 1, 2, 4} {
			_, err = p.Documents.WriteDocuments(p.Context(), 0,
				[]store.DocumentWrite{{Kind: "levers", Name: "a", Version: version, Value: []byte("0")}},
				nil)
			p.wantErr(fmt.Sprintf("version %d, where there is 3", version), err, store.ErrConflict)
		}
		_, err = p.Documents.WriteDocuments(p.Context(), 0, []store.DocumentWrite{{Kind: "levers", Name: "b", Version: 1, Value: []byte("0")}},
			nil)
		p.wantErr("a version, where there is none", err, store.ErrConflict)
		d, err := p.Documents.Document(p.Context(), "levers", "a")
		p.must(err)
		if since := time.Since(d.Changed); since > time.Hour || since < -time.Hour {
			p.Errorf("want it changed just now, have %s", d.Changed)
		}
		p.equal("document", d, store.Document{
			Kind: "levers", Name: "a", Version: 3, Value: []byte(`{"n": 3}`), Changed: d.Changed,
			Node: node.id,
		})
	}},
	{"documents are listed by kind and beginning of name", func(p *probe) {
		for _, name := range []string{"b/2", "a/1", "b/1", "b", "B/1", "b_1", "b%"} {
			p.write(0, store.DocumentWrite{Kind: "moves", Name: name, Value: []byte("1")})
		}
		p.write(0, store.DocumentWrite{Kind: "other", Name: "b/1", Value: []byte("1")})
		for prefix, want := range map[string][]string{
			"b/": {"b/1", "b/2"}, "": {"B/1", "a/1", "b", "b%", "b/1", "b/2", "b_1"}, "b_": {"b_1"},
			"c": nil,
		} {
			found, err := p.Documents.DocumentsOf(p.Context(), "moves", prefix)
			p.must(err)
			var names []string
			for _, d := range found {
				names = append(names, d.Name)
			}
			p.equal("names with "+prefix, names, want)
		}
	}},
	{"documents are written all or none, with their audit", func(p *probe) {
		record := store.Audited{
			Kind: store.AuditConfig, Name: "cluster", By: store.Actor{Name: "ann", Reason: "why"},
			After: []byte(`{"to": 1}`),
		}
		two := []store.DocumentWrite{{Kind: "a", Name: "x", Value: []byte("1")}, {Kind: "a", Name: "y", Version: 7, Value: []byte("1")}}
		_, err := p.Documents.WriteDocuments(p.Context(), 0, two, []store.Audited{record})
		p.wantErr("one of two", err, store.ErrConflict)
		_, err = p.Documents.Document(p.Context(), "a", "x")
		p.wantErr("the other one", err, store.ErrNotFound)
		audit, err := p.Audits.Audit(p.Context(), store.AuditFilter{Limit: 10})
		p.must(err)
		p.equal("records", len(audit), 0)
		p.write(0, two[0], record, record)
		audit, err = p.Audits.Audit(p.Context(), store.AuditFilter{Limit: 10})
		p.must(err)
		p.equal("records", len(audit), 2)
		p.equal("record", []any{audit[0].Name, audit[0].By.Reason, string(audit[0].After)}, []any{"cluster", "why", `{"to": 1}`})
	}},
	{"a node that was taken over writes no documents", func(p *probe) {
		node := p.join()
		node.leave(nil)
		_, err := p.Documents.WriteDocuments(p.Context(), node.id,
			[]store.DocumentWrite{{Kind: "a", Name: "x", Version: store.AnyVersion, Value: []byte("1")}}, nil)
		p.wantErr("a node that is gone", err, store.ErrFenced)
		_, err = p.Documents.Document(p.Context(), "a", "x")
		p.wantErr("what it wrote", err, store.ErrNotFound)
	}},
	{"of those who write the same version of a document, one does", func(p *probe) {
		const writers, rounds = 4, 5
		for round := range int64(rounds) {
			var wait sync.WaitGroup
			results := make(chan error, writers)
			for range writers {
				wait.Go(func() {
					_, err := p.Documents.WriteDocuments(p.Context(), 0, []store.DocumentWrite{
						{Kind: "a", Name: "x", Version: round, Value: []byte("1")},
						{Kind: "a", Name: "w", Version: store.AnyVersion, Value: []byte("1")},
					}, nil)
					results <- err
				})
			}
			wait.Wait()
			close(results)
			won := 0
			for err := range results {
				if err == nil {
					won++
					continue
				}
				p.wantErr("another one", err, store.ErrConflict)
			}
			p.equal("winners", won, 1)
		}
	}},
	{"changes of documents are told, and awaited", func(p *probe) {
		changed := p.Documents.Changed()
		p.write(0, store.DocumentWrite{Kind: "a", Name: "x", Value: []byte("1")})
		if !told(changed) {
			p.Fatal("the change was not told")
		}
		d, err := store.AwaitDocument(p.Context(), p.Documents, "a", "x", 0)
		p.must(err)
		p.equal("version", d.Version, int64(1))
		found := make(chan store.Document, 1)
		go func() {
			d, err := store.AwaitDocument(p.Context(), p.Documents, "a", "x", 1)
			if err == nil {
				found <- d
			}
			close(found)
		}()
		p.write(0, store.DocumentWrite{Kind: "a", Name: "x", Version: 1, Value: []byte("2")})
		p.equal("awaited", string((<-found).Value), "2")
		ctx, cancel := context.WithCancel(p.Context())
		cancel()
		_, err = store.AwaitDocument(ctx, p.Documents, "a", "y", 0)
		p.wantErr("waiting in vain", err, context.Canceled)
	}},
}
