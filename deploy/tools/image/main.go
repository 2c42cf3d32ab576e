// Command image makes container images of procaas without a daemon: the last stage of the Dockerfile around programs that
// are built already. It writes a folder in the layout of OCI, which skopeo, crane and others push.
//
//	go -C deploy/tools run ./image -o /tmp/image -version v1.2.3 linux/amd64=/tmp/procaas-amd64 linux/arm64=/tmp/procaas-arm64
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	out := flag.String("o", "", "folder to write, which must not exist")
	version := flag.String("version", "", "version, for the label of the image")
	dockerfile := flag.String("dockerfile", "../../Dockerfile", "file whose last stage to make")
	level := flag.Int("level", gzip.BestCompression, "level of compression, from 1 to 9")
	partial := flag.Bool("partial", false, "leave out what this machine does not have, such as certificates: for tests")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		log.Fatal("want -o FOLDER and programs such as linux/amd64=FILE")
	}
	if err := build(*out, *version, *dockerfile, *level, *partial, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// build writes an index with an image for each program.
func build(out, version, dockerfile string, level int, partial bool, programs []string) error {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return err
	}
	index := v1.ImageIndex(empty.Index)
	for _, given := range programs {
		name, program, ok := strings.Cut(given, "=")
		platform, err := v1.ParsePlatform(name)
		if err != nil || !ok {
			return fmt.Errorf("want a program such as linux/amd64=FILE, have %q", given)
		}
		s := stage{program: program, partial: partial, config: v1.Config{
			Labels:       map[string]string{"org.opencontainers.image.title": "procaas", "org.opencontainers.image.version": version},
			ExposedPorts: map[string]struct{}{}, Volumes: map[string]struct{}{},
		}}
		if err := s.follow(string(text)); err != nil {
			return err
		}
		image, err := s.image(platform, level)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	_, err = layout.Write(out, index)
	return err
}

// A stage is the last one of the Dockerfile: the configuration of the image, and its files.
type stage struct {
	program string
	partial bool // what is not on this machine is left out
	config  v1.Config
	files   bytes.Buffer
	tar     *tar.Writer
}

// follow does the instructions of the last stage. It refuses what it does not know, so that no image lacks it silently.
func (s *stage) follow(dockerfile string) error {
	s.tar = tar.NewWriter(&s.files)
	last := false
	for line := range strings.Lines(dockerfile) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		if word == "FROM" {
			last = rest == "scratch"
		}
		if !last || word == "FROM" || word == "" || word[0] == '#' {
			continue
		}
		if err := s.do(word, rest); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return s.tar.Close()
}

func (s *stage) do(word, rest string) error {
	switch word {
	case "ENV":
		s.config.Env = append(s.config.Env, rest)
	case "WORKDIR":
		s.config.WorkingDir = rest
	case "USER":
		s.config.User = rest
	case "VOLUME":
		s.config.Volumes[rest] = struct{}{}
	case "EXPOSE":
		s.config.ExposedPorts[rest+"/tcp"] = struct{}{}
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &s.config.Entrypoint)
	case "CMD":
		return json.Unmarshal([]byte(rest), &s.config.Cmd)
	case "HEALTHCHECK":
		return s.healthcheck(rest)
	case "COPY":
		return s.copy(rest)
	default:
		return fmt.Errorf("this program does not know %s", word)
	}
	return nil
}

var checkOption = regexp.MustCompile(`--(interval|timeout|start-period)=(\S+)`)

func (s *stage) healthcheck(rest string) error {
	options, command, _ := strings.Cut(rest, "CMD ")
	h := &v1.HealthConfig{Test: []string{"CMD"}}
	for _, o := range checkOption.FindAllStringSubmatch(options, -1) {
		d, err := time.ParseDuration(o[2])
		if err != nil {
			return err
		}
		*map[string]*time.Duration{"interval": &h.Interval, "timeout": &h.Timeout, "start-period": &h.StartPeriod}[o[1]] = d
	}
	var args []string
	err := json.Unmarshal([]byte(command), &args)
	h.Test = append(h.Test, args...)
	s.config.Healthcheck = h
	return err
}

var copyLine = regexp.MustCompile(`^--from=build (?:--chown=(\d+):(\d+) )?(\S+) (\S+)$`)

// copy adds a file or an empty directory. What the stage before builds is the given program. The rest is of this machine.
func (s *stage) copy(rest string) error {
	m := copyLine.FindStringSubmatch(rest)
	if m == nil {
		return fmt.Errorf("want --from=build [--chown=USER:GROUP] FROM TO")
	}
	user, _ := strconv.Atoi(m[1])
	group, _ := strconv.Atoi(m[2])
	from, to := m[3], m[4]
	if strings.HasSuffix(to, "/") {
		to += path.Base(from)
	}
	mode := int64(0o644)
	switch {
	case from == "/data":
		return s.add(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(to, "/") + "/", Mode: 0o700, Uid: user, Gid: group}, nil)
	case from == "/procaas":
		from, mode = s.program, 0o755
	case strings.HasPrefix(from, "/usr/local/go/"):
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("go env GOROOT: %w", err)
		}
		from = filepath.Join(strings.TrimSpace(string(root)), strings.TrimPrefix(from, "/usr/local/go/"))
	}
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) && from != s.program && s.partial {
		log.Printf("%s is not on this machine, and is left out", from)
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.parents(to); err != nil {
		return err
	}
	return s.add(&tar.Header{Name: strings.TrimPrefix(to, "/"), Mode: mode, Size: int64(len(data)), Uid: user, Gid: group}, data)
}

// parents adds the directories above a file.
func (s *stage) parents(name string) error {
	parts := strings.Split(strings.Trim(path.Dir(name), "/"), "/")
	for i := range parts {
		if parts[i] == "" {
			continue
		}
		h := &tar.Header{Typeflag: tar.TypeDir, Name: strings.Join(parts[:i+1], "/") + "/", Mode: 0o755}
		if err := s.add(h, nil); err != nil {
			return err
		}
	}
	return nil
}

// add adds an entry without a time, so that equal inputs make equal images.
func (s *stage) add(h *tar.Header, data []byte) error {
	h.Format, h.ModTime = tar.FormatPAX, time.Unix(0, 0)
	if err := s.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := s.tar.Write(data)
	return err
}

// image makes the image of one platform.
func (s *stage) image(platform *v1.Platform, level int) (v1.Image, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s.files.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(level), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS = platform.OS
	file.Architecture = platform.Architecture
	file.Variant = platform.Variant
	file.Config = s.config
	return mutate.ConfigFile(image, file)
}
