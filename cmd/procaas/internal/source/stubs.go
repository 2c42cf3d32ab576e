package source

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/stub"
)

// IsStub reports whether a file describes stub services.
func IsStub(name string) bool { return IsYAML(name) && strings.Contains(baseOf(name), ".stub.") }

// StubsBeside reads the files of stub services below paths that also have pipelines. A file that is named counts only
// if its name says that it has stub services.
func StubsBeside(paths []string) ([]diag.File, error) {
	paths = slices.DeleteFunc(slices.Clone(paths), isStream)
	files, err := Files(paths, nil, IsStub)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return slices.DeleteFunc(files, func(f diag.File) bool { return !IsStub(f.Name) }), nil
}

// NamedStubs reads all files that a person has named as stub services, and those of stub services below the
// directories.
func NamedStubs(paths []string, stdin io.Reader) ([]diag.File, error) {
	return NamedStubsIn(openGiven, paths, stdin)
}

// NamedStubsIn is NamedStubs with an opener.
func NamedStubsIn(open opener, paths []string, stdin io.Reader) (all []diag.File, err error) {
	for _, path := range paths { // one by one: beside a *.stub.yaml, FilesIn takes another name for one of a shell's pattern
		files, err := FilesIn(open, []string{path}, stdin, IsStub)
		if err != nil {
			return nil, cli.Usage(err)
		}
		if len(files) == 0 {
			return nil, cli.Usagef("no stub services (*.stub.yaml) in %s", path)
		}
		for _, f := range files {
			if !slices.ContainsFunc(all, func(have diag.File) bool { return have.Name == f.Name }) {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// CheckStubs checks files of stub services, each by itself: a test chooses which of them belong together.
func CheckStubs(files []diag.File) (found []diag.Diagnostic) {
	for _, f := range files {
		_, problems := stub.Parse([]diag.File{f})
		found = append(found, problems...)
	}
	return found
}

// Stubs checks stub files and serves them on free ports.
func Stubs(ctx context.Context, s cli.Streams, files []diag.File) (*stub.Server, error) {
	spec, err := StubSpec(s, files)
	if err != nil {
		return nil, err
	}
	return stub.Start(ctx, spec, stub.Options{FreePorts: true})
}

// StubSpec checks stub files.
func StubSpec(s cli.Streams, files []diag.File) (*stub.Spec, error) {
	set, found := stub.Parse(files)
	if err := s.Findings(files, found); err != nil {
		return nil, err
	}
	if set == nil {
		return nil, cli.ErrFindings
	}
	return set, nil
}

// Unplayed describes stub services that play no service of the pipelines, as after a mistyped id. Calls reach them
// only by their addresses. at has the addresses by id.
func Unplayed(b *tree.Bundle, at map[string]string) (notes []string) {
	var known []string
	for _, s := range b.Services {
		known = append(known, s.ID)
	}
	for id, url := range at {
		if !slices.Contains(known, id) {
			notes = append(notes, fmt.Sprintf("stub service %s: the pipelines declare no service of this id, so only calls to %s reach it%s",
				id, url, cli.Meant(id, known, "; did you mean %q?", "")))
		}
	}
	slices.Sort(notes)
	return notes
}
