package handlers

import (
	"embed"

	"procaas/dsl/spec"
	"procaas/engine"
)

//go:embed emit.go fail.go request.go set.go wait.go
var typeFiles embed.FS

// Readme has README.md, the reference of the handler types.
//
//go:embed README.md
var Readme embed.FS

// Alone lists the types that reach only their run, and services by HTTP. A program that answers
// their requests can run them safely.
func Alone() []string { return []string{"request", "set", "emit", "wait", "fail"} }

// All lists the handler types of the core, in the order of the reference. Those of add-ons follow them.
func All() []engine.HandlerType {
	own := spec.Read(typeFiles)
	return []engine.HandlerType{
		engine.Type[Request]("request", own),
		engine.Type[Set]("set", own),
		engine.Type[Emit]("emit", own),
		engine.Type[Wait]("wait", own),
		engine.Type[Fail]("fail", own),
	}
}
