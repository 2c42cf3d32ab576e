//go:build without_sharding

package addons

import "procaas/engine/addon"

func sharded() []addon.Addon { return nil }
