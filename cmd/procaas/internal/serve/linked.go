package serve

import (
	"io/fs"
	"strings"

	"procaas/engine"
	"procaas/handlers"
	"procaas/pipelines"
)

// linked has the files of the repository that the documentation links to, beside its own pages.
type linked struct{}

// Open implements [fs.FS].
func (linked) Open(name string) (fs.File, error) {
	folder, file, _ := strings.Cut(name, "/")
	switch folder {
	case "engine":
		return engine.Guarantees.Open(file)
	case "handlers":
		return handlers.Readme.Open(file)
	case "pipelines":
		return pipelines.Recipes.Open(file)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
