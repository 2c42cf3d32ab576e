package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"procaas/dsl/contracts"
	"procaas/engine/api/cli"
)

// This file reads the arguments of commands, and the files that files name. Files and links may come from
// anybody. So it reads nothing outside the given directories, only regular files, and only up to a size.

// Limits of reading.
const (
	MaxFile  = 1 << 20   // bytes of one file of a tree, as in dsl
	maxTrees = 256 << 20 // bytes of all files together
)

// Trees are the directories whose files may be read.
type Trees []string

// TreesOf returns the trees for the paths of a command: directories, directories of files, and the working
// directory if a path leads down from it. So files may name others beside them.
func TreesOf(paths []string) Trees {
	var out Trees
	for _, path := range paths {
		if path == "-" {
			continue
		}
		out = append(out, dirOf(path))
		if dir, err := os.Getwd(); err == nil && filepath.IsLocal(path) && dir != filepath.Dir(dir) {
			out = append(out, ".")
		}
	}
	// Inner directories come first, since they may be links.
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	if i := slices.Index(out, "."); i >= 0 {
		out = append(slices.DeleteFunc(out, func(dir string) bool { return dir == "." }), ".")
	}
	return slices.Compact(out)
}

// dirOf returns the directory itself, or that of a file.
func dirOf(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Clean(path)
	}
	return filepath.Dir(path)
}

// Dirs returns the paths that are directories.
func Dirs(paths []string) []string {
	var out []string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			out = append(out, filepath.ToSlash(filepath.Clean(path)))
		}
	}
	return out
}

// open opens the tree that contains a name, and returns the name in it.
func (t Trees) open(name string) (*os.Root, string, error) {
	name = filepath.FromSlash(name)
	for _, dir := range t {
		rel, err := filepath.Rel(dir, name)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		root, err := os.OpenRoot(dir)
		return root, rel, err
	}
	return nil, "", fmt.Errorf("it is outside of %s, and nothing else is read: name a directory that has it on the command line, too",
		strings.Join(t, ", "))
}

// Read reads a file that another file names.
func (t Trees) Read(name string) ([]byte, error) {
	root, rel, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readRegular(root, rel)
}

// Enter opens a directory or a file's directory that a file names. base is empty for a directory.
func (t Trees) Enter(path string) (dir *os.Root, base string, err error) {
	root, rel, err := t.open(path)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	defer root.Close()
	info, err := root.Stat(rel)
	if err != nil {
		return nil, "", notReadable(path, err)
	}
	if !info.IsDir() {
		rel, base = filepath.Dir(rel), filepath.Base(rel)
	}
	dir, err = root.OpenRoot(rel)
	return dir, base, err
}

// readRegular reads a file of a tree. It follows links only within the tree.
func readRegular(root *os.Root, name string) ([]byte, error) {
	// Before opening, since opening a pipe waits for a writer.
	info, err := root.Stat(name)
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, cli.WithoutPath(err)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, cli.WithoutPath(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil { // it may have been replaced
		err = checkRegular(info)
	}
	if err != nil {
		return nil, cli.WithoutPath(err)
	}
	return cli.AtMost(f, MaxFile)
}

// checkRegular refuses irregular and large files.
func checkRegular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return errors.New("it is a directory, want a regular file")
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is no regular file (%s)", info.Mode().Type())
	case info.Size() > MaxFile:
		return tooLargeError{info.Size()}
	}
	return nil
}

// A tooLargeError is [contracts.ErrTooLarge] with the size of the file, in bytes.
type tooLargeError struct{ size int64 }

// Error implements error.
func (e tooLargeError) Error() string {
	return fmt.Sprintf("it has %d bytes, want a file of at most 1 MiB: split it into several", e.size)
}

// Is implements the interface of [errors.Is].
func (e tooLargeError) Is(target error) bool { return target == contracts.ErrTooLarge }

// notReadable returns the error for an unreadable file.
func notReadable(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", path)
	}
	return fmt.Errorf("%s: %w", path, cli.WithoutPath(err))
}
