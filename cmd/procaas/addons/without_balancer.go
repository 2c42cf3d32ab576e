//go:build without_balancer

package addons

import "procaas/engine/addon"

func balancing() []addon.Addon { return nil }
