package runs

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/definitions"
	"procaas/engine/replay"
	"procaas/engine/store"
)

func runsExport() *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the recorded runs of a server to a file, for procaas replay",
		Long: `export writes the ended runs that the server recorded, oldest first: JSON, one run on each
line. procaas serve --record 5% records 5 % of the runs. Each version of the pipelines comes
before its first run, so that the file is all that procaas replay --from needs.

A file contains payloads of events and replies of services. Secrets are hidden in it.`,
		Example: "  procaas runs export --since 24h > recorded.ndjson",
		Args:    cobra.NoArgs,
	}
	var filter store.RunFilter
	var when cli.Span
	c.Flags().StringVar(&filter.Pipeline, "pipeline", "", "only runs of this pipeline")
	c.Flags().StringVar(&filter.Bundle, "version", "", "only runs on this version of the pipelines: at least its first 4 digits")
	when.Add(c, "only runs accepted at this time or later", "only runs accepted before")
	return cli.Calls(c, func(q *cli.Call) error {
		if err := when.Read(&filter.Since, &filter.Until); err != nil {
			return err
		}
		out := bufio.NewWriter(q.Out)
		w := replay.NewWriter(out)
		next := q.Recordings(filter)
		version := func(hash string) (definitions.VersionDetail, error) { return q.Version(q.Ctx, hash) }
		for {
			run, err := next()
			if err != nil {
				return err
			}
			if run == nil {
				break
			}
			if err := w.Write(run, version); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(q.Err, "%d recorded runs\n", w.Runs)
		return nil
	})
}
