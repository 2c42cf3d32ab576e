package tree

import (
	"embed"
	"reflect"
	"sync"

	"procaas/dsl/spec"
)

//go:embed tree.go await.go bound.go call.go choose.go contribution.go cluster.go compensate.go each.go error.go events.go loop.go
//go:embed queue.go shards.go template.go
var treeFiles embed.FS

// treeSources returns the files that hold the structs of the language.
func treeSources() []string {
	files, err := treeFiles.ReadDir(".")
	if err != nil {
		panic("tree: " + err.Error())
	}
	var sources []string
	for _, f := range files {
		source, err := treeFiles.ReadFile(f.Name())
		if err != nil {
			panic("tree: " + err.Error())
		}
		sources = append(sources, string(source))
	}
	return sources
}

// Language describes the top level of a file. It is made once: it is the
// same for all files and nobody changes it.
var Language = sync.OnceValue(func() *spec.Spec {
	return spec.OfFile(reflect.TypeFor[Document](), treeSources()...)
})
