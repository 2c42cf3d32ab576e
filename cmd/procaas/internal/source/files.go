// Package source reads the files of commands: pipelines, events and stub services.
package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
)

// IsPipeline reports whether a file belongs to a bundle: YAML that is neither a test nor a stub service, or a
// CODEOWNERS file.
func IsPipeline(name string) bool {
	return IsYAML(name) && !IsTest(name) && !IsStub(name) || decode.IsCodeOwners(name)
}

// IsTest reports whether a file has tests of pipelines.
func IsTest(name string) bool { return IsYAML(name) && strings.Contains(baseOf(name), ".test.") }

// besidePipelines says what checks a file among paths that has no pipelines.
func besidePipelines(paths []string) string {
	for _, p := range paths {
		switch name := filepath.Base(p); {
		case IsTest(name):
			return fmt.Sprintf(": %s has tests, which procaas test checks and runs", p)
		case IsStub(name):
			return fmt.Sprintf(": %s has stub services, which procaas validate checks", p)
		}
	}
	return ""
}

// Stdin is the name of standard input in findings.
const Stdin = "stdin.yaml"

// baseOf returns the name of a file without its directories.
func baseOf(name string) string { return filepath.Base(filepath.FromSlash(name)) }

// IsYAML reports whether a file has the name of a YAML file.
func IsYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// Files reads the files below paths for which want returns true, sorted by name. It reads a path that is a file
// in any case, unless its name says that it is of another kind. "-" is stdin.
func Files(paths []string, stdin io.Reader, want func(string) bool) ([]diag.File, error) {
	return FilesIn(openGiven, paths, stdin, want)
}

// FilesBut is Files that goes on after a file of a directory that cannot be read, and returns the errors of those.
func FilesBut(paths []string, stdin io.Reader, want func(string) bool) (files []diag.File, unread []error, err error) {
	files, err = filesIn(openGiven, paths, stdin, want, func(err error) error {
		unread = append(unread, err)
		return nil
	})
	return files, unread, err
}

// An opener opens the directory of a path. base is the name of the file in it, or empty for a directory.
type opener = func(path string) (dir *os.Root, base string, err error)

// openGiven opens a directory or a file's directory that a person named. It follows links.
func openGiven(path string) (dir *os.Root, base string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", notReadable(path, err)
	}
	if isRoot(info) {
		return nil, "", fmt.Errorf("%s is the root of the file system, and is not read as a whole: name the directory that has the "+
			"files, for serve with --pipelines DIR", path)
	}
	at := path
	if !info.IsDir() {
		at, base = filepath.Dir(path), filepath.Base(path)
	}
	dir, err = os.OpenRoot(at)
	return dir, base, err
}

// isRoot reports whether a directory is the root of the file system. That is the working directory in an empty image.
func isRoot(info fs.FileInfo) bool {
	root, err := os.Stat(string(filepath.Separator))
	return err == nil && os.SameFile(info, root)
}

// FilesIn is Files with an opener.
func FilesIn(open opener, paths []string, stdin io.Reader, want func(string) bool) ([]diag.File, error) {
	return filesIn(open, paths, stdin, want, func(err error) error { return err })
}

// filesIn is FilesIn. It calls unread for a file of a directory that cannot be read, and goes on if that returns nil.
func filesIn(open opener, paths []string, stdin io.Reader, want func(string) bool, unread func(error) error) ([]diag.File, error) {
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
	some := slices.ContainsFunc(paths, func(path string) bool { return want(filepath.Base(path)) })
	for _, path := range paths {
		// *.yaml in a shell names all kinds. Without any of the wanted kind, a person has named the file.
		if name := filepath.Base(path); IsYAML(name) && !want(name) && (some || IsTest(name) || IsStub(name)) {
			continue
		}
		if isStream(path) {
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
		err = readTree(dir, base, path, want, add, unread)
		if err = errors.Join(err, dir.Close()); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b diag.File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// isStream reports whether a path is standard input, or a pipe that a shell passes as a file.
func isStream(path string) bool {
	return path == "-" || path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
}

// readStream reads standard input, or a pipe that a shell passes as a file.
func readStream(path string, stdin io.Reader) (name string, data []byte, err error) {
	name = Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", nil, err
		}
		defer f.Close()
		name, stdin = path, f
	}
	if data, err = cli.AtMost(stdin, MaxFile); err != nil {
		return "", nil, fmt.Errorf("read %s: %w", map[bool]string{true: "standard input", false: path}[path == "-"], err)
	}
	return name, data, nil
}

// readTree reads the files below a directory, or the file base.
func readTree(
	dir *os.Root, base, root string, want func(string) bool, add func(name, id string, data []byte) error, unread func(error) error,
) error {
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
			return unreadable(name, root, d, err)
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !want(d.Name()):
			return nil
		}
		data, err := readRegular(dir, filepath.FromSlash(path))
		if err != nil {
			return unread(notReadable(name, err))
		}
		return add(name, path, data)
	})
}

// unreadable returns the error for a name below root. A directory that is left out silently would remove its pipelines.
func unreadable(name, root string, d fs.DirEntry, err error) error {
	switch {
	case d == nil || !d.IsDir():
		return notReadable(name, err)
	case d.Name() == "lost+found": // the system's own, at the top of a volume
		return fs.SkipDir
	}
	return fmt.Errorf("%w: all directories below %s are read; let this user read it, or name only those that have the files",
		notReadable(name, err), root)
}

// FS reads the files of an embedded directory for which want returns true.
func FS(fsys fs.FS, want func(string) bool) ([]diag.File, error) {
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

// Pipelines reads the pipelines below paths. Without any, it returns an error.
func Pipelines(paths []string, stdin io.Reader) ([]diag.File, error) {
	return pipelinesIn(openGiven, TreesOf(paths), paths, stdin)
}

// PipelinesIn is Pipelines for paths in trees.
func PipelinesIn(t Trees, paths []string, stdin io.Reader) ([]diag.File, error) {
	return pipelinesIn(t.Enter, t, paths, stdin)
}

// ErrNoFiles reports that paths have no pipelines.
var ErrNoFiles = errors.New("no pipeline files (*.yaml, *.yml)")

func pipelinesIn(open opener, t Trees, paths []string, stdin io.Reader) ([]diag.File, error) {
	files, err := FilesIn(open, paths, stdin, IsPipeline)
	if err == nil && !slices.ContainsFunc(files, func(f diag.File) bool { return !decode.IsCodeOwners(f.Name) }) {
		err = fmt.Errorf("%w in %s%s", ErrNoFiles, strings.Join(paths, ", "), besidePipelines(paths))
	}
	if err == nil {
		files, err = t.withCodeOwners(files)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	return files, nil
}

// withCodeOwners adds the CODEOWNERS files at the usual places, including hidden directories.
func (t Trees) withCodeOwners(files []diag.File) ([]diag.File, error) {
	for _, dir := range t {
		for _, place := range decode.CodeOwnersPlaces {
			name := filepath.ToSlash(filepath.Join(dir, place))
			if slices.ContainsFunc(files, func(f diag.File) bool { return f.Name == name }) {
				continue
			}
			data, err := t.Read(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			files = append(files, diag.File{Name: name, ID: place, Data: data})
		}
	}
	return files, nil
}
