//go:build !without_sql

package addons

import (
	"procaas/engine/addon"
	sql "procaas/handlers/sql/addon"
)

func databases() []addon.Addon { return []addon.Addon{sql.New()} }
