package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format deb
	_ "github.com/goreleaser/nfpm/v2/rpm" // the format rpm
)

// commandHead is the heading of a command in the reference.
var commandHead = regexp.MustCompile(`(?m)^## (procaas .*)$`)

// documents makes the man pages of all commands, and the completions of shells, which packages install.
func (r *release) documents(program []string) error {
	text, err := os.ReadFile(filepath.Join(r.root, "docs/reference/commands.md"))
	if err != nil {
		return err
	}
	_, after, ok := bytes.Cut(text, []byte("\n# Commands\n"))
	text = after
	if !ok || !commandHead.Match(text) {
		return errors.New("docs/reference/commands.md has no commands below its title")
	}
	man := r.in("build", "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	heads := commandHead.FindAllSubmatchIndex(text, -1)
	all := "# NAME\nprocaas - runs business workflows written in YAML\n\n# DESCRIPTION\n" + string(text[:heads[0][0]]) + "\n# SEE ALSO\n"
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		command := string(text[h[2]:h[3]])
		page := strings.ReplaceAll(command, " ", "-")
		all += page + "(1)\n"
		if err := r.page(man, page, "# NAME\n"+page+" - see **procaas --help**\n\n# DESCRIPTION\n"+string(text[h[1]:end])); err != nil {
			return err
		}
	}
	if err := r.page(man, "procaas", all); err != nil {
		return err
	}
	return r.completions(program)
}

// page writes one man page.
func (r *release) page(man, name, text string) error {
	title := fmt.Sprintf("%% %s 1 %q %q %q\n", strings.ToUpper(name), r.time.Format("January 2006"), "procaas "+r.version, "procaas")
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(md2man.Render([]byte(title + text))); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(man, name+".1.gz"), out.Bytes(), 0o644)
}

// completions asks the program of this machine for the completions of each shell.
func (r *release) completions(program []string) error {
	dir := r.in("build", "completions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := r.output(program[0], slices.Concat(program[1:], []string{"completion", shell})...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "procaas."+shell), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// archive packs the program with its licence and its pages.
func (r *release) archive(platform, program string) error {
	name := "procaas_" + r.version + "_" + strings.ReplaceAll(platform, "/", "_")
	dir := filepath.Join(filepath.Dir(program), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, from := range []string{program, filepath.Join(r.root, "LICENSE"), filepath.Join(r.root, "CHANGELOG.md"), filepath.Join(r.root, "README.md"),
		filepath.Join(r.root, "deploy/procaas.service"), filepath.Join(r.root, "deploy/node.yaml")} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if from == program {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), data, mode); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "completions"), os.DirFS(r.in("build", "completions"))); err != nil {
		return err
	}
	if strings.HasPrefix(platform, "windows/") {
		return r.zip(name+".zip", dir)
	}
	return r.pack(name+".tar.gz", dir, name)
}

// pack writes a folder as a tar archive, compressed if the name says so. All files belong to root.
func (r *release) pack(name, dir, top string) (err error) {
	f, err := os.Create(r.in(name))
	if err != nil {
		return err
	}
	defer func() { err = closed(f, err) }()
	var to io.Writer = f
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
		if err != nil {
			return err
		}
		defer func() { err = closed(z, err) }()
		to = z
	}
	t := tar.NewWriter(to)
	r.files = append(r.files, name)
	err = eachFile(dir, func(rel string, data []byte, mode fs.FileMode) error {
		h := &tar.Header{
			Name: filepath.ToSlash(filepath.Join(top, rel)), Size: int64(len(data)), Mode: int64(mode), ModTime: r.time, Format: tar.FormatPAX,
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return t.Close()
}

// zip writes a folder as a zip archive.
func (r *release) zip(name, dir string) (err error) {
	f, err := os.Create(r.in(name))
	if err != nil {
		return err
	}
	defer func() { err = closed(f, err) }()
	z := zip.NewWriter(f)
	r.files = append(r.files, name)
	err = eachFile(dir, func(rel string, data []byte, _ fs.FileMode) error {
		name := filepath.ToSlash(filepath.Join(filepath.Base(dir), rel))
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: r.time})
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return z.Close()
}

// eachFile visits the files of a folder in the order of their names, with their paths below it.
func eachFile(dir string, visit func(rel string, data []byte, mode fs.FileMode) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return visit(rel, data, info.Mode().Perm())
	})
}

// closed closes c, and returns the first error.
func closed(c io.Closer, err error) error {
	if e := c.Close(); err == nil {
		err = e
	}
	return err
}

var numbered = regexp.MustCompile(`^\d+\.`)

// packageVersion returns a version as packages order them: 1.2.3 for v1.2.3. What has no number yet is before all that have.
func packageVersion(version string) string {
	version = strings.ReplaceAll(strings.TrimPrefix(version, "v"), "-", ".")
	if !numbered.MatchString(version) {
		version = "0~" + version
	}
	return version
}

// packed makes the packages of one architecture, by deploy/nfpm.yaml.
func (r *release) packed(arch, program string) error {
	values := map[string]string{
		"VERSION": packageVersion(r.version), "ARCH": arch, "PROGRAM": program, "MAN": r.in("build", "man"), "COMPLETIONS": r.in("build", "completions"),
		"ROOT": r.root,
	}
	text, err := os.ReadFile(filepath.Join(r.root, "deploy/nfpm.yaml"))
	if err != nil {
		return err
	}
	config, err := nfpm.Parse(strings.NewReader(os.Expand(string(text), func(name string) string { return values[name] })))
	if err != nil {
		return fmt.Errorf("deploy/nfpm.yaml: %w", err)
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.write(format, &config); err != nil {
			return err
		}
	}
	return nil
}

// write writes the package of one format.
func (r *release) write(format string, config *nfpm.Config) error {
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.time
	if r.quick {
		info.Deb.Compression = "none"
		info.RPM.Compression = "gzip:0"
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	name := packager.ConventionalFileName(info)
	f, err := os.Create(r.in(name))
	if err != nil {
		return err
	}
	if err := closed(f, packager.Package(info, f)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.files = append(r.files, name)
	return nil
}
