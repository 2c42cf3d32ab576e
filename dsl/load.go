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

// Options says what Load may take for granted.
type Options struct {
	// Types lists the handler types that handlers may name.
	Types []tree.Type

	// Read gives the content of a file that others name and that was not given,
	// such as an OpenAPI document. The name is as those of the files. Without it,
	// all files must be given. What is read belongs to the bundle.
	Read func(name string) ([]byte, error)

	// ServiceURLs gives declared services another address, by their ids, so
	// that the same files serve in tests and in production. Ids that no file
	// declares are left alone.
	ServiceURLs map[string]string
}

// Load reads, merges and checks files. It gives every finding in one pass. The
// bundle is nil exactly when one of the findings is an [diag.Error].
//
// The order of the files does not matter: they are read in the order of their
// names, and a file that comes twice counts once.
func Load(files []diag.File, o Options) (*tree.Bundle, []diag.Diagnostic) {
	set := decode.Read(files, o.Types, o.Read)
	r := &diag.Reporter{Found: set.Found}
	w := merge.Documents(set, o.Types, r)
	checkAll(w, r)
	for _, s := range w.Bundle.Services {
		s.Instead = o.ServiceURLs[s.ID]
	}
	found := suppress(set.Given, r.Diagnostics())
	if diag.HasErrors(found) {
		return nil, found
	}
	w.Bundle.Hash = hashFiles(set.Files)
	return w.Bundle, found
}

// hashFiles returns the hash of names and contents, each preceded by its length
// so that no two sets of files can run together.
func hashFiles(files []diag.File) string {
	h := sha256.New()
	for _, f := range files {
		id := cmp.Or(f.ID, f.Name)
		fmt.Fprintf(h, "%d:%s%d:%s", len(id), id, len(f.Data), f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
