//go:build !without_sharding

package addons

import (
	"procaas/engine/addon"
	sharding "procaas/handlers/sharding/addon"
)

func sharded() []addon.Addon { return []addon.Addon{sharding.New()} }
