//go:build !without_balancer

package addons

import (
	"procaas/engine/addon"
	balancer "procaas/handlers/balancer/addon"
)

func balancing() []addon.Addon { return []addon.Addon{balancer.New()} }
