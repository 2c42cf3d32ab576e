package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

// An image is unpacked in a folder. Its process sees nothing else.
type image struct {
	t    *testing.T
	root string
	user uint32

	Config struct {
		User, WorkingDir     string
		Env, Entrypoint, Cmd []string
		Labels               map[string]string
		Healthcheck          struct{ Test []string }
	}
}

// What is released starts, as an image and as a package. Its program is built once.
func TestReleaseStarts(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "procaas")
	compile := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w -X procaas/engine/api/cli.stamp=v1.2.3", "-o", program, ".")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0") // it needs no libraries of this machine
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("image", func(t *testing.T) {
		t.Parallel()
		imageStarts(t, program)
	})
	t.Run("packages", func(t *testing.T) {
		t.Parallel()
		packagesAreInstalled(t, program)
	})
}

// packagesAreInstalled makes the packages of Debian and Red Hat, and installs, updates and removes each in a folder.
func packagesAreInstalled(t *testing.T, program string) {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		t.Logf("%s", out)
	}
	run("go", "-C", "../../deploy/tools", "run", "-trimpath", "-buildvcs=false", "./release", "-built", program, "-version", "v1.2.3", "-o", dir)
	for _, pattern := range []string{"*.deb", "*.rpm"} {
		made, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(made) != 1 {
			t.Fatalf("have %q, %v, want one package", made, err)
		}
		run("sh", "../../deploy/install.sh", made[0], "v1.2.3")
	}
}

// makeImage makes the image without a daemon, and unpacks it as a runtime does.
func makeImage(t *testing.T, program string) *image {
	t.Helper()
	layout := filepath.Join(t.TempDir(), "layout")
	build := exec.CommandContext(t.Context(), "go", "-C", "../../deploy/tools", "run", "-trimpath", "-buildvcs=false", "./image", "-o", layout,
		"-version", "v1.2.3", "-level", "1", "-partial", "linux/"+runtime.GOARCH+"="+program)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := &image{t: t, root: t.TempDir()}
	type part struct{ Digest string }
	var index struct{ Manifests []part }
	var manifest struct {
		Config part
		Layers []part
	}
	read := func(name string, into any) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(layout, name))
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	blob := func(p part) string { return filepath.Join("blobs", strings.Replace(p.Digest, ":", "/", 1)) }
	read("index.json", &index)
	read(blob(index.Manifests[0]), &manifest)
	read(blob(manifest.Config), m)
	for _, l := range manifest.Layers {
		unpack := exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(layout, blob(l)), "-C", m.root)
		if out, err := unpack.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if _, err := fmt.Sscanf(m.Config.User, "%d", &m.user); err != nil {
		t.Fatalf("user %q: %v", m.Config.User, err)
	}
	return m
}

// command is a process of a container: it has the root and the user of the image, and only its environment.
func (m *image) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), args[0], args[1:]...)
	cmd.Path, cmd.Err = args[0], nil // it is looked for within the root
	cmd.Dir, cmd.Env = m.Config.WorkingDir, slices.Concat(m.Config.Env, env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Credential: &syscall.Credential{Uid: m.user, Gid: m.user}}
	if os.Getuid() != 0 { // an ordinary user becomes that of the image in a namespace
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.Credential.NoSetGroups = true
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: int(m.user), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: int(m.user), HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// protect lets the image's user write only to its volume, as with a root that is read-only.
func (m *image) protect() {
	m.t.Helper()
	volume := filepath.Join(m.root, m.Config.WorkingDir)
	out, err := exec.CommandContext(m.t.Context(), "chmod", "-R", "a-w,a+rX", m.root).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(volume, 0o700); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", m.root).Run() })
}

const adminToken = "a-token-of-an-admin-that-is-long-enough-1"

// imageStarts starts the image with flows mounted, on a root that is read-only, as an ordinary user.
func imageStarts(t *testing.T, program string) {
	t.Helper()
	m := makeImage(t, program)
	if err := os.CopyFS(filepath.Join(m.root, "flows"), os.DirFS("../../deploy/flows")); err != nil {
		t.Fatal(err)
	}
	m.protect()
	serve := slices.Concat(m.Config.Entrypoint, m.Config.Cmd)

	refused, err := m.command(nil, serve...).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "set --admin-token-file") {
		t.Errorf("without a token: %v\n%s\nwant the remedy", err, refused)
	}

	address := freeAddress(t)
	env := []string{"PROCAAS_ADMIN_TOKEN=" + adminToken, "PROCAAS_LISTEN=" + address, "PROCAAS_SERVER=http://" + address}
	s := startSignalled(t, m.command(env, serve...))
	s.says(`"msg":"serving"`)
	patience.Until(t, "the health check", func() bool {
		out, err := m.command(env, m.Config.Healthcheck.Test[1:]...).CombinedOutput()
		return err == nil && string(out) == "ready\n"
	})
	c := client.New("http://"+address, adminToken)
	result, _, err := c.SubmitAndWait(t.Context(), []byte(`{"type": "ping", "id": "e-1"}`), 10*time.Second)
	if err != nil || result.Status != string(model.Succeeded) {
		t.Errorf("have %+v, %v, want a run that succeeded", result, err)
	}
	h, err := c.Health(t.Context(), false)
	if err != nil || h.Version != "v1.2.3" {
		t.Errorf("have %+v, %v; want the version that the build was given", h, err)
	}
	if have := m.Config.Labels["org.opencontainers.image.version"]; have != "v1.2.3" {
		t.Errorf("the image has the version %q, want that of the build", have)
	}
	s.send(syscall.SIGTERM)
	if state := s.exits(); state != "exit status 0" {
		t.Errorf("SIGTERM: %s\n%s", state, s.text())
	}

	if err := os.Chmod(filepath.Join(m.root, m.Config.WorkingDir), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(m.root, m.Config.WorkingDir, ".procaas")); err != nil {
		t.Fatal(err)
	}
	cmd := m.command(env, serve...)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != cli.ExitBroken || !strings.Contains(string(out), "want --store sqlite:FILE in a directory") {
		t.Errorf("without a volume that it may write to: exit code %d, want %d and the remedy\n%s", code, cli.ExitBroken, out)
	}
}

// The unit of systemd is sound, and gives the node no more than it needs.
func TestUnitOfSystemd(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/procaas.service")
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("procaas")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "procaas.service")
	if err := os.WriteFile(unit, []byte(strings.Replace(string(text), "/usr/bin/procaas", program, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", unit},
		{"security", "--offline=yes", "--no-pager", "--threshold=20", unit}, // an exposure of 2.0; 5.0 would be MEDIUM
	} {
		if out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze %s: %v (engine/enginetest/install.sh installs it)\n%s", args[0], err, out)
		}
	}
}

// A supervisor that speaks the protocol of systemd hears when the node is ready, that it is alive, and that it ends.
func TestSupervisorIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store string
		hears []string
	}{
		"serving": {
			"sqlite:" + filepath.Join(t.TempDir(), "s.db"),
			[]string{"READY=1\nSTATUS=serving at http://127.0.0.1:", "WATCHDOG=1", "WATCHDOG=1"},
		},
		"waiting for the store": {"postgres://procaas@" + freeAddress(t) + "/procaas", []string{storeAway, storeAway}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "notify")
			supervisor, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer supervisor.Close()
			cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--pipelines", "../../deploy/flows", "--listen", "127.0.0.1:0",
				"--store", c.store)
			cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
			s := startSignalled(t, cmd)
			hears := func(want string) {
				t.Helper()
				told := make([]byte, 4096)
				n, err := supervisor.Read(told)
				if have := string(told[:n]); err != nil || !strings.HasPrefix(have, want) {
					t.Fatalf("have %q, %v, want %q\n%s", have, err, want, s.text())
				}
			}
			for _, want := range c.hears {
				hears(want)
			}
			s.send(syscall.SIGTERM)
			if state := s.exits(); state != "exit status 0" {
				t.Errorf("SIGTERM: %s", state)
			}
		})
	}
}

const storeAway = "STATUS=waiting for the store\nEXTEND_TIMEOUT_USEC=30000000"

// The Compose file sets only flags that serve has.
func TestComposeSetsKnownFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Entrypoint  []string
		}
		Configs map[string]struct{ Content string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	board := file.Services["board"].Entrypoint
	if len(board) < 3 {
		t.Fatalf("the board is made by %q", board)
	}
	made, rest, err := newRoot(cli.Streams{}).Find(board[1:])
	if err != nil || made.Name() != "dashboard" {
		t.Fatalf("%q is no command: %v", board, err)
	}
	if err := made.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", board, err)
	}
	for name, c := range file.Configs {
		if err := yaml.Unmarshal([]byte(c.Content), new(map[string]any)); err != nil {
			t.Errorf("the config %s: %v", name, err)
		}
	}
	serve, _, err := newRoot(cli.Streams{}).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node-1", "node-2"} {
		env := file.Services[node].Environment
		if len(env) == 0 {
			t.Errorf("%s has no environment", node)
		}
		for name := range env {
			flag, ours := strings.CutPrefix(name, "PROCAAS_")
			flag = strings.ToLower(strings.ReplaceAll(flag, "_", "-"))
			if !ours || serve.Flag(flag) == nil {
				t.Errorf("%s sets %s, but serve has no flag --%s", node, name, flag)
			}
		}
	}
}
