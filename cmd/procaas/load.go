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
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/engine"
	"procaas/engine/planner"
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
func readFiles(paths []string, stdin io.Reader, want func(string) bool) ([]diag.File, error) {
	return readFilesIn(openGiven, paths, stdin, want)
}

// openGiven opens a directory, or that of a file, that a person has named: links of that name
// are followed.
func openGiven(path string) (dir *os.Root, base string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", notReadable(path, err)
	}
	at := path
	if !info.IsDir() {
		at, base = filepath.Dir(path), filepath.Base(path)
	}
	dir, err = os.OpenRoot(at)
	return dir, base, err
}

// readFilesIn is readFiles for paths that open leads to.
func readFilesIn(open func(string) (*os.Root, string, error), paths []string, stdin io.Reader,
	want func(string) bool,
) ([]diag.File, error) {
	var files []diag.File
	seen, size := map[string]bool{}, 0
	add := func(name, id string, data []byte) error {
		name = filepath.ToSlash(filepath.Clean(name))
		if !seen[name] {
			seen[name] = true
			files = append(files, diag.File{Name: name, ID: filepath.ToSlash(id), Data: data})
			size += len(data)
		}
		if size > maxTrees {
			return fmt.Errorf("the files have more than %d MiB together", maxTrees>>20)
		}
		return nil
	}
	for _, path := range paths {
		if path == "-" || path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") {
			name, data, err := readStream(path, stdin)
			if err != nil {
				return nil, err
			}
			if err := add(name, "", data); err != nil {
				return nil, err
			}
			continue
		}
		dir, base, err := open(path)
		if err != nil {
			return nil, err
		}
		err = readTree(dir, base, path, want, add)
		if err = errors.Join(err, dir.Close()); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b diag.File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// readStream reads standard input, or what a shell gives in place of a file.
func readStream(path string, stdin io.Reader) (name string, data []byte, err error) {
	name = stdinName
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", nil, err
		}
		defer f.Close()
		name, stdin = path, f
	}
	if data, err = readAtMost(stdin, maxFile); err != nil {
		return "", nil, fmt.Errorf("read %s: %w", map[bool]string{true: "standard input", false: path}[path == "-"], err)
	}
	return name, data, nil
}

// readTree reads the files below a directory, or the one of that name.
func readTree(dir *os.Root, base, root string, want func(string) bool, add func(name, id string, data []byte) error) error {
	if base != "" {
		data, err := readRegular(dir, base)
		if err != nil {
			return notReadable(root, err)
		}
		return add(root, base, data)
	}
	return fs.WalkDir(dir.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		name := filepath.Join(root, filepath.FromSlash(path))
		switch {
		case err != nil:
			return notReadable(name, err)
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !want(d.Name()):
			return nil
		}
		data, err := readRegular(dir, filepath.FromSlash(path))
		if err != nil {
			return notReadable(name, err)
		}
		return add(name, path, data)
	})
}

// readFS reads what want chooses from an embedded directory.
func readFS(fsys fs.FS, want func(string) bool) ([]diag.File, error) {
	var files []diag.File
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !want(d.Name()) {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		files = append(files, diag.File{Name: path, Data: data})
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
	if o.Read == nil {
		o.Read = treesOf(paths).read
	}
	return checkBundle(s, files, o)
}

func checkBundle(s streams, files []diag.File, o dsl.Options) (*dsl.Bundle, error) {
	o.Types = languageTypes()
	bundle, found := dsl.Load(files, o)
	if len(found) > 0 {
		if err := render.Write(s.err, render.Text, files, found, colorful(s.err)); err != nil {
			return nil, err
		}
	}
	if bundle == nil {
		return nil, errFindings
	}
	return bundle, nil
}

// plansOf makes the plans of all pipelines of a bundle.
func plansOf(b *dsl.Bundle) ([]*planner.Plan, error) {
	types := engine.Types(handlers.All())
	var plans []*planner.Plan
	for _, p := range b.Pipelines {
		plan, err := planner.New(b, p, types)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}
