//go:build without_sql

package addons

import "procaas/engine/addon"

func databases() []addon.Addon { return nil }
