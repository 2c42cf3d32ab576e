// Package authoring has the commands for those who write pipelines: they need no server.
package authoring

import "github.com/spf13/cobra"

// Commands are those of authors, but for those that run events.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		validateCommand(), testCommand(), replayCommand(), planCommand(), triggersCommand(), ownersCommand(), diffCommand(), evalCommand(),
		explainCommand(), docsCommand(), schemaCommand(), genCommand(), initCommand(), newCommand(), fmtCommand(), upgradeCommand(),
	}
}

// here is the current directory where no path is given.
func here(paths []string) []string {
	if len(paths) == 0 {
		return []string{"."}
	}
	return paths
}
