package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"procaas/dsl"
	"procaas/engine"
	"procaas/handlers"
)

// isPipelineFile tells whether a file belongs to a bundle: YAML that is neither
// a test nor a stub service.
func isPipelineFile(name string) bool {
	return isYAML(name) && !strings.Contains(name, ".test.") && !isStubFile(name)
}

// stdinName is the name of what comes from standard input.
const stdinName = "stdin.yaml"

// isStubFile tells whether a file describes stub services.
func isStubFile(name string) bool { return isYAML(name) && strings.Contains(name, ".stub.") }

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// readFiles reads the files below paths that want chooses, in the order of their
// names. A path that is a file is read whatever its name; "-" is stdin.
func readFiles(paths []string, stdin io.Reader, want func(string) bool) ([]dsl.File, error) {
	var files []dsl.File
	seen := map[string]bool{}
	add := func(name, id string, data []byte) {
		name = filepath.ToSlash(filepath.Clean(name))
		if !seen[name] {
			seen[name] = true
			files = append(files, dsl.File{Name: name, ID: filepath.ToSlash(id), Data: data})
		}
	}
	for _, path := range paths {
		if path == "-" {
			data, err := io.ReadAll(stdin)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			add(stdinName, "", data)
			continue
		}
		if err := readTree(path, want, add); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b dsl.File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

func readTree(root string, want func(string) bool, add func(name, id string, data []byte)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s does not exist", path)
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || path != root && !want(d.Name()):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		id, err := filepath.Rel(root, path)
		if err != nil || path == root {
			id = filepath.Base(path)
		}
		add(path, id, data)
		return nil
	})
}

// readReferred reads a file that pipelines name, such as the OpenAPI document of
// a service, wherever it lies.
func readReferred(name string) ([]byte, error) {
	info, err := os.Stat(filepath.FromSlash(name))
	if err != nil {
		return nil, withoutPath(err)
	}
	const most = 1 << 20 // as for all files
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("want a file of at most 1 MiB")
	}
	data, err := os.ReadFile(filepath.FromSlash(name))
	return data, withoutPath(err)
}

// withoutPath gives the reason alone: the path is told beside it.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// readFS reads what want chooses from an embedded directory.
func readFS(fsys fs.FS, want func(string) bool) ([]dsl.File, error) {
	var files []dsl.File
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !want(d.Name()) {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		files = append(files, dsl.File{Name: path, Data: data})
		return err
	})
	return files, err
}

// languageTypes are the built-in handler types as the language sees them.
func languageTypes() []dsl.Type {
	var types []dsl.Type
	for _, t := range handlers.All() {
		types = append(types, t.Type)
	}
	return types
}

// loadBundle reads and checks pipelines for a command that needs them in order.
// Findings are shown; errors among them end the command.
func loadBundle(s streams, paths []string, o dsl.Options) (*dsl.Bundle, error) {
	files, err := readFiles(paths, s.in, isPipelineFile)
	if err != nil {
		return nil, usageError{err}
	}
	if len(files) == 0 {
		return nil, usagef("no pipeline files (*.yaml, *.yml) in %s", strings.Join(paths, ", "))
	}
	return checkBundle(s, files, o)
}

func checkBundle(s streams, files []dsl.File, o dsl.Options) (*dsl.Bundle, error) {
	o.Types = languageTypes()
	if o.Read == nil {
		o.Read = readReferred
	}
	bundle, found := dsl.Load(files, o)
	if len(found) > 0 {
		if err := dsl.WriteDiagnostics(s.err, dsl.Text, files, found, colorful(s.err)); err != nil {
			return nil, err
		}
	}
	if bundle == nil {
		return nil, errFindings
	}
	return bundle, nil
}

// plansOf makes the plans of all pipelines of a bundle.
func plansOf(b *dsl.Bundle) ([]*engine.Plan, error) {
	types := map[string]engine.HandlerType{}
	for _, t := range handlers.All() {
		types[t.Name] = t
	}
	var plans []*engine.Plan
	for _, p := range b.Pipelines {
		plan, err := engine.NewPlan(b, p, types)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}
