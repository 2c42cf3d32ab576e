package main

import (
	"github.com/spf13/cobra"

	"procaas/dsl"
)

func schemaCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of pipeline files, for editors",
		Long: `schema prints the JSON Schema (draft 2020-12) of pipeline files. Point your
editor at it, and tell it about the expression tag, for example in VS Code:

  "yaml.schemas": {"pipeline.schema.json": "pipelines/**/*.yaml"},
  "yaml.customTags": ["!$ scalar", "!secret scalar"]`,
		Example: "  procaas schema > pipeline.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			schema, err := dsl.JSONSchema(languageTypes())
			if err != nil {
				return err
			}
			_, err = s.out.Write(schema)
			return err
		},
	}
}
