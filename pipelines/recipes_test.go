package pipelines_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fewestRecipes is how many recipes the page has at least.
const fewestRecipes = 30

var linkOnPage = regexp.MustCompile(`\]\(([^)#]+)\)`)

// Each recipe is on the page, under what it says of itself, has a test, and each link
// of the page leads somewhere.
func TestRecipesAreInTheirReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("recipes/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var linked []string
	for _, m := range linkOnPage.FindAllSubmatch(page, -1) {
		to := string(m[1])
		if slices.Contains(linked, to) {
			t.Errorf("recipes/README.md has %s twice", to)
		}
		if _, err := os.Stat(filepath.Join("recipes", to)); err != nil {
			t.Errorf("recipes/README.md leads to what is not there: %v", err)
		}
		linked = append(linked, to)
	}
	recipes := 0
	files, _ := read(t, "recipes")
	for _, f := range files {
		recipes++
		name := strings.TrimPrefix(f.Name, "recipes/")
		if !slices.Contains(linked, name) {
			t.Errorf("recipes/README.md does not lead to %s", name)
		}
		if !strings.HasPrefix(string(f.Data), "# I want to … ") {
			t.Errorf("%s: want a first line that begins with # I want to …", f.Name)
		}
		if _, err := os.Stat(strings.TrimSuffix(f.Name, ".yaml") + ".test.yaml"); err != nil {
			t.Errorf("%s has no test of its own: %v", f.Name, err)
		}
	}
	if recipes < fewestRecipes {
		t.Errorf("want at least %d recipes, have %d", fewestRecipes, recipes)
	}
}
