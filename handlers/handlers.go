package handlers

import (
	"slices"

	"procaas/engine"
	"procaas/handlers/balancer"
	"procaas/handlers/queue"
	"procaas/handlers/sharding"
)

// All lists the built-in handler types, in the order of the reference.
func All() []engine.HandlerType {
	return slices.Concat([]engine.HandlerType{
		engine.Type[Request]("request", requestSource),
		engine.Type[Set]("set", setSource),
		engine.Type[Emit]("emit", emitSource),
		engine.Type[Wait]("wait", waitSource),
		engine.Type[Fail]("fail", failSource),
		balancer.ObserveType(),
		balancer.DecideType(),
		balancer.HandoffType(),
		balancer.ApplyType(),
	}, sharding.Types(), queue.Types())
}
