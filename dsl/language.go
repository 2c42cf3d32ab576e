package dsl

import (
	"embed"
	"reflect"
	"sync"

	"procaas/dsl/spec"
)

//go:embed tree.go tree_*.go
var treeFiles embed.FS

// treeSources gives the files that hold the structs of the language.
func treeSources() []string {
	files, err := treeFiles.ReadDir(".")
	if err != nil {
		panic("dsl: " + err.Error())
	}
	var sources []string
	for _, f := range files {
		source, err := treeFiles.ReadFile(f.Name())
		if err != nil {
			panic("dsl: " + err.Error())
		}
		sources = append(sources, string(source))
	}
	return sources
}

// languageSpec describes the top level of a file. It is made once: it is the
// same for all files and nobody changes it.
var languageSpec = sync.OnceValue(func() *spec.Spec {
	return FileSpec(reflect.TypeFor[Document](), treeSources()...)
})
