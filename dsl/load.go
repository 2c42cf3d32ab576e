package dsl

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"procaas/dsl/diag"
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
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b diag.File) int { return cmp.Compare(a.Name, b.Name) })
	files = slices.CompactFunc(files, func(a, b diag.File) bool { return a.Name == b.Name })

	given := make([]*reading, len(files))
	diag.InParallel(len(files), new(diag.Reporter), func(i int, _ *diag.Reporter) {
		given[i] = readFile(files[i])
	})
	templates := mouldsOf(given)
	partial := slices.ContainsFunc(given, func(r *reading) bool { return diag.HasErrors(r.Found) && r.Root == nil })
	diag.InParallel(len(files), new(diag.Reporter), func(i int, _ *diag.Reporter) {
		given[i].decode(o.Types, templates, partial)
	})
	set := &fileset{Reporter: new(diag.Reporter), read: o.Read}
	set.gather(given)
	r := new(diag.Reporter)
	docs := make([]*tree.Document, 0, len(given))
	for _, was := range given {
		file := set.byName[was.Name]
		r.Found = append(r.Found, file.Found...)
		switch {
		case file.broken():
			docs = append(docs, nil)
		case !file.Foreign:
			docs = append(docs, file.doc)
		}
	}
	r.Found = append(r.Found, set.Found...)
	files = set.withReferred(files)

	c := newChecker(files, o.Types, r)
	c.files = set.contractFiles()
	c.merge(docs)
	c.check()
	for _, s := range c.bundle.Services {
		s.Instead = o.ServiceURLs[s.ID]
	}
	found := suppress(given, r.Diagnostics())
	if diag.HasErrors(found) {
		return nil, found
	}
	c.bundle.Hash = hashFiles(files)
	return c.bundle, found
}

// empty tells whether nothing at all was understood of a file.
func empty(d *tree.Document) bool {
	return d.Configs == nil && d.ConfigSchemas == nil && d.Schemas == nil &&
		len(d.Services)+len(d.Flows)+len(d.Pipelines)+len(d.Handlers)+len(d.Triggers)+len(d.Events)+len(d.Templates)+len(d.ShardMaps)+
			len(d.Clusters) == 0
}

// hashFiles gives the hash of names and contents, each preceded by its length
// so that no two sets of files can run together.
func hashFiles(files []diag.File) string {
	h := sha256.New()
	for _, f := range files {
		id := cmp.Or(f.ID, f.Name)
		fmt.Fprintf(h, "%d:%s%d:%s", len(id), id, len(f.Data), f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
