package tree

import (
	"embed"
	"reflect"
	"sync"

	"procaas/dsl/spec"
)

//go:embed tree.go await.go bound.go call.go choose.go contribution.go cluster.go compensate.go each.go error.go events.go flow.go
//go:embed handler.go loop.go pipeline.go queue.go retry.go shards.go template.go trigger.go
var treeFiles embed.FS

// Language describes the top level of a file. It is made once: it is the
// same for all files and nobody changes it.
var Language = sync.OnceValue(func() *spec.Spec {
	return spec.OfFile(reflect.TypeFor[Document](), spec.Read(treeFiles))
})
