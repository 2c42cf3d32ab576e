package handlers

import (
	"embed"
	"slices"

	"procaas/dsl/spec"
	"procaas/engine"
	"procaas/handlers/balancer"
	"procaas/handlers/queue"
	"procaas/handlers/sharding"
)

//go:embed emit.go fail.go request.go set.go wait.go
var typeFiles embed.FS

// Alone lists the types that reach only their run, and services by HTTP. A program that answers
// their requests can run them safely.
func Alone() []string { return []string{"request", "set", "emit", "wait", "fail"} }

// All lists the built-in handler types, in the order of the reference.
func All() []engine.HandlerType {
	own := spec.Read(typeFiles)
	return slices.Concat([]engine.HandlerType{
		engine.Type[Request]("request", own),
		engine.Type[Set]("set", own),
		engine.Type[Emit]("emit", own),
		engine.Type[Wait]("wait", own),
		engine.Type[Fail]("fail", own),
	}, balancer.Types(), sharding.Types(), queue.Types())
}
