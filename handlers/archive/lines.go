package archive

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"iter"

	"procaas/engine/records"
)

// writeLines writes each run as a line of JSON, as GET /v1/runs/{id} answers, a recorded one as GET /v1/recordings, and compresses all.
func writeLines(w io.Writer, runs iter.Seq[records.Archived]) error {
	z := gzip.NewWriter(w)
	lines := json.NewEncoder(z)
	lines.SetEscapeHTML(false)
	for r := range runs {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	return z.Close()
}
