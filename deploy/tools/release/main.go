// Command release makes all files of a release: archives for each platform, packages for Debian and Red Hat, an image, the
// list of what is in them, and checksums. The same commit and Go give the same files, bit for bit.
//
//	make release
package main

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	r := release{root: "../.."}
	flag.StringVar(&r.out, "o", "../../dist", "folder to write; it is emptied first")
	flag.StringVar(&r.version, "version", "", "version; git describe if empty")
	built := flag.String("built", "", "program of this machine that is built already: makes only its packages, quickly; for tests")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "what to build for")
	flag.Parse()
	work := func() error { return r.run(strings.Split(*platforms, ",")) }
	if *built != "" {
		work = func() error { return r.packages(*built) }
	}
	if err := work(); err != nil {
		log.Fatal(err)
	}
}

// A release is being made. Its files have the time of the commit.
type release struct {
	root, out, version string
	time               time.Time
	files              []string // of the release, in out
	quick              bool     // packages are not compressed
}

func (r *release) run(platforms []string) error {
	if r.version == "" {
		text, err := r.output("git", "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return err
		}
		r.version = text
	}
	text, err := r.output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(seconds, 0).UTC()
	if err := r.begin("go", "run", "-trimpath", "-buildvcs=false", "./cmd/procaas"); err != nil {
		return err
	}
	var images []string
	first := ""
	for _, p := range platforms {
		program, err := r.build(p)
		if err != nil {
			return err
		}
		if first == "" {
			first = program
		}
		if err := r.archive(p, program); err != nil {
			return err
		}
		if goos, arch, _ := strings.Cut(p, "/"); goos == "linux" {
			if err := r.packed(arch, program); err != nil {
				return err
			}
			images = append(images, p+"="+program)
		}
	}
	if err := r.image(images); err != nil {
		return err
	}
	if err := r.materials(first); err != nil {
		return err
	}
	return r.sums()
}

// packages makes only the packages of this machine's architecture, around a program that is built already.
func (r *release) packages(program string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	r.time = time.Unix(0, 0).UTC()
	if err := r.begin(program); err != nil {
		return err
	}
	r.quick = true
	return r.packed(runtime.GOARCH, program)
}

// begin empties the folder, and makes the documents in it. The command is the program of this machine.
func (r *release) begin(command ...string) (err error) {
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.in("build"), 0o755); err != nil {
		return err
	}
	return r.documents(command)
}

// in returns a path in the folder of the release.
func (r *release) in(names ...string) string {
	return filepath.Join(append([]string{r.out}, names...)...)
}

// output runs a command in the tree, and returns what it prints.
func (r *release) output(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Stderr = r.root, os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// build compiles the program for a platform, stripped, and without paths and times of this machine.
func (r *release) build(platform string) (program string, err error) {
	goos, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return "", fmt.Errorf("want platforms such as linux/amd64, have %q", platform)
	}
	program = r.in("build", goos+"-"+arch, "procaas")
	if goos == "windows" {
		program += ".exe"
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X procaas/engine/api/cli.stamp="+r.version,
		"-o", program, "./cmd/procaas")
	c.Dir, c.Stderr = r.root, os.Stderr
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build for %s: %w", platform, err)
	}
	log.Printf("built %s %s", platform, r.version)
	return program, nil
}

// image makes one image for all architectures, and packs it as skopeo and others read it.
func (r *release) image(programs []string) error {
	if len(programs) == 0 {
		return nil
	}
	layout := r.in("build", "image")
	args := append([]string{"run", "-trimpath", "-buildvcs=false", "./image", "-o", layout, "-version", r.version}, programs...)
	c := exec.Command("go", args...)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.pack("procaas_"+r.version+"_image.tar", layout, "")
}

// materials lists the modules in a program. Those for other platforms have the same, except for few.
func (r *release) materials(program string) error {
	name := "procaas_" + r.version + "_sbom.cdx.json"
	c := exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-version", r.version, "-output", r.in(name), program)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("list of materials: %w", err)
	}
	data, err := os.ReadFile(r.in(name))
	if err != nil {
		return err
	}
	var list map[string]any
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if about, ok := list["metadata"].(map[string]any); ok {
		about["timestamp"] = r.time.Format(time.RFC3339)
		delete(about, "tools") // it has the hash of a program of this machine
	}
	if data, err = json.MarshalIndent(list, "", " "); err != nil {
		return err
	}
	r.files = append(r.files, name)
	return os.WriteFile(r.in(name), append(data, '\n'), 0o644)
}

// sums writes the checksums of all files, as sha256sum -c reads them.
func (r *release) sums() error {
	slices.Sort(r.files)
	var text strings.Builder
	for _, name := range r.files {
		f, err := os.Open(r.in(name))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", h.Sum(nil), name)
	}
	log.Printf("%d files of version %s in %s", len(r.files), r.version, r.out)
	return os.WriteFile(r.in("SHA256SUMS"), []byte(text.String()), 0o644)
}
