package dsl

import (
	_ "embed" // for the source of the tree
	"reflect"
	"sync"
)

//go:embed tree.go
var treeSource string

// languageSpec describes the top level of a file. It is made once: it is the
// same for all files and nobody changes it.
var languageSpec = sync.OnceValue(func() *Spec {
	s := SpecOf(reflect.TypeFor[Document](), treeSource)
	forbidExprs(s)
	return s
})

// forbidExprs notes that only fields of type Value take expressions: the rest
// of the language is fixed before anything runs.
func forbidExprs(s *Spec) {
	for _, f := range s.Fields {
		for ; f != nil; f = f.Elem {
			f.NoExpr = f.NoExpr || !f.value
			if f.Spec != nil {
				forbidExprs(f.Spec)
			}
		}
	}
}
