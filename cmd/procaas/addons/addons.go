// Package addons lists the add-ons of this program. Without one of them the program builds and works, but for what
// the add-on adds.
package addons

import (
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/handlers"
	balancer "procaas/handlers/balancer/addon"
	queue "procaas/handlers/queue/addon"
	sharding "procaas/handlers/sharding/addon"
)

// All lists the add-ons. Their handler types in the reference and their flags in the help have this order.
func All() []addon.Addon {
	return []addon.Addon{balancer.New(), sharding.New(), queue.New()}
}

// HandlerTypes lists all handler types: those of the core, then those of the add-ons.
func HandlerTypes() []engine.HandlerType {
	types := handlers.All()
	for _, a := range All() {
		types = append(types, a.Types...)
	}
	return types
}

// Types lists all handler types as the language sees them.
func Types() []tree.Type { return engine.Types(HandlerTypes()) }
