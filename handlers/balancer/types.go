package balancer

import (
	"embed"

	"procaas/dsl/spec"
	"procaas/engine"
)

//go:embed apply.go decide.go handoff.go observe.go
var typeFiles embed.FS

// Types lists the handler types of this package, in the order of a step. [Bind] sets how they reach workers.
func Types() []engine.HandlerType {
	own := spec.Read(typeFiles)
	return []engine.HandlerType{
		engine.Type[Observe]("balancer.observe", own),
		engine.Type[Decide]("balancer.decide", own),
		engine.Type[Handoff]("balancer.handoff", own),
		engine.Type[Apply]("balancer.apply", own),
	}
}
