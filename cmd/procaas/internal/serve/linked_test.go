package serve

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"procaas/docs"
)

// Pages link to recipes, the reference of handler types and the guarantees, which the console must have.
func TestConsoleHasWhatPagesLinkTo(t *testing.T) {
	t.Parallel()
	pages, err := docs.Pages()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, p := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)`).FindAllStringSubmatch(p.Text, -1) {
			file := path.Join("docs", path.Dir(p.Name), m[1])
			for _, kind := range []string{"pipelines/recipes/", "handlers/", "engine/"} {
				if !strings.HasPrefix(file, kind) {
					continue
				}
				found[kind]++
				if _, err := fs.Stat(linked{}, file); err != nil {
					t.Errorf("%s links to %s: %v", p.Name, file, err)
				}
			}
		}
	}
	if len(found) != 3 {
		t.Errorf("want links of three kinds, have %v", found)
	}
}
