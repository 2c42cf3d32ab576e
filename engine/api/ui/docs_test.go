package ui_test

import (
	"net/http"
	"testing"
	"testing/fstest"

	"procaas/engine/enginetest/pages"
)

// Recipes, the reference of handler types and the guarantees are pages, too, with links that lead on. What the program does
// not have is text.
func TestDocsLeadToFilesOfTheRepository(t *testing.T) {
	t.Parallel()
	o := options()
	o.Files = fstest.MapFS{
		"pipelines/recipes/README.md":     {Data: []byte("# Recipes\n\n[Ask](approval.yaml), [gone](gone.yaml), [state](../../docs/authoring/state.md)\n")},
		"pipelines/recipes/approval.yaml": {Data: []byte("pipelines: [<here>]\n")},
	}
	const files = "/console/docs/files/"
	pages.Open(t, o, "/console/docs", http.StatusOK, `href="`+files+`pipelines/recipes/README.md"`)
	pages.Open(t, o, files+"pipelines/recipes/README.md", http.StatusOK, "<h1", "Recipes</h1>", `<a href="`+files+`pipelines/recipes/approval.yaml">Ask</a>, gone,`,
		`<a href="/console/docs/authoring/state">state</a>`)
	pages.Open(t, o, files+"pipelines/recipes/approval.yaml", http.StatusOK, "pipelines: [&lt;here&gt;]")
	pages.Open(t, o, files+"handlers/README.md", http.StatusNotFound)
	pages.Open(t, o, "/console/docs/authoring/sending-events", http.StatusOK, `href="/openapi.json"`)
}
