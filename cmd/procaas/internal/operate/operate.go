// Package operate has the commands for operators, which call a server.
package operate

import (
	"slices"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/operate/control"
	"procaas/cmd/procaas/internal/operate/runs"
	"procaas/cmd/procaas/internal/operate/top"
	"procaas/cmd/procaas/internal/operate/versions"
)

// Commands returns the commands for operators.
func Commands() []*cobra.Command {
	return slices.Concat(runs.Commands(), control.Commands(),
		[]*cobra.Command{configCommand(), tokenCommand(), auditCommand(), eraseCommand(), costsCommand(), nodesCommand(), healthCommand()},
		top.Commands(), []*cobra.Command{versions.Command(control.Rollout())})
}
