// Package authoring has the commands for authors of pipelines. They need no server.
package authoring

import "github.com/spf13/cobra"

// Commands returns the commands for authors, except those that run events. triggers are those for the triggers of a server.
func Commands(triggers []*cobra.Command) []*cobra.Command {
	return []*cobra.Command{
		validateCommand(), testCommand(), replayCommand(), planCommand(), triggersCommand(triggers), ownersCommand(), diffCommand(), evalCommand(),
		explainCommand(), docsCommand(), schemaCommand(), genCommand(), initCommand(), newCommand(), fmtCommand(), upgradeCommand(),
	}
}

// here returns paths, or the current directory if there are none.
func here(paths []string) []string {
	if len(paths) == 0 {
		return []string{"."}
	}
	return paths
}
