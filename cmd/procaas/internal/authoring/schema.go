package authoring

import (
	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/engine/flowtest"
)

func schemaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of pipeline files, for editors",
		Long: `schema prints the JSON Schema (draft 2020-12) of pipeline files, or with --test
that of their tests. Set it up in your editor together with the expression tag.
In VS Code:

  "yaml.schemas": {
    "pipeline.schema.json": ["pipelines/**/*.yaml", "!**/*.test.yaml"],
    "test.schema.json": "pipelines/**/*.test.yaml"
  },
  "yaml.customTags": ["!$ scalar", "!secret scalar"]`,
		Example: "  procaas schema > pipeline.schema.json\n  procaas schema --test > test.schema.json",
		Args:    cobra.NoArgs,
	}
	test := c.Flags().Bool("test", false, "print the schema of *.test.yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		write := func() ([]byte, error) { return addons.Language().JSONSchema(addons.Types()) }
		if *test {
			write = flowtest.JSONSchema
		}
		schema, err := write()
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(schema)
		return err
	}
	return c
}
