package dsl

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/tree"
)

// Options configures Load. The zero value knows no handler types and reads no further files.
type Options struct {
	// Language has the sections of add-ons. Nil is the core of the language alone.
	Language *tree.Language

	// Types lists the handler types that handlers may name.
	Types []tree.Type

	// Read returns the content of a file that another file names, such as an OpenAPI document. Names are
	// relative to the same root as those of the given files. If Read is nil, all files must be given. What it
	// returns becomes part of the bundle.
	Read func(name string) ([]byte, error)

	// ServiceURLs replaces addresses of declared services, by id. So the same files serve in tests and in
	// production. Unknown ids are ignored.
	ServiceURLs map[string]string

	// Stored says that the files were valid for the program that stored them. Errors with which they can run are
	// warnings then.
	Stored bool
}

// Load reads, merges and checks files. It returns all findings of one pass. The bundle is nil if and only if
// one of the findings is a [diag.Error].
//
// The order of the files does not matter: Load sorts them by name, and reads duplicates once.
func Load(files []diag.File, o Options) (*tree.Bundle, []diag.Diagnostic) {
	return load(decode.Read(files, o.Language, o.Types, o.Read), o)
}

// load merges and checks what was read.
func load(set *decode.Set, o Options) (*tree.Bundle, []diag.Diagnostic) {
	r := &diag.Reporter{Found: set.Found}
	w := merge.Documents(set, o.Types, r)
	checkAll(w, r)
	for _, s := range w.Bundle.Services {
		s.Instead = o.ServiceURLs[s.ID]
	}
	found := r.Diagnostics()
	for i := range found {
		if o.Stored && found[i].Runs {
			found[i].Severity = diag.Warning
		}
	}
	found = suppress(set.Given, found)
	if diag.HasErrors(found) {
		return nil, found
	}
	w.Bundle.Hash = Hash(set.Files)
	return w.Bundle, found
}

// Hash returns the hash of the ids and contents of files, in their order. A length precedes each of them, so different sets
// never yield the same input.
func Hash(files []diag.File) string {
	h := sha256.New()
	for _, f := range files {
		id := cmp.Or(f.ID, f.Name)
		fmt.Fprintf(h, "%d:%s%d:", len(id), id, len(f.Data))
		h.Write(f.Data) // not formatted, which would copy it
	}
	return hex.EncodeToString(h.Sum(nil))
}
