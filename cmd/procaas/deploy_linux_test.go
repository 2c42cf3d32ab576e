package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// An image is what the last stage of the Dockerfile makes, in a folder. Its process sees nothing else.
type image struct {
	t    *testing.T
	root string
	env  []string
	dir  string
	user uint32
	run  map[string][]string // by instruction: ENTRYPOINT, CMD, HEALTHCHECK
}

// makeImage follows the Dockerfile, without a daemon: it runs what builds the program, and copies what the stage copies.
func makeImage(t *testing.T) *image {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := &image{t: t, root: t.TempDir(), dir: "/", run: map[string][]string{}}
	built := t.TempDir() // the root of the stage that builds
	last := false
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "FROM":
			last = rest == "scratch"
		case !last && word == "RUN" && (strings.HasPrefix(rest, "CGO_ENABLED=0 go build") || strings.HasPrefix(rest, "mkdir")):
			rest = strings.NewReplacer("-o /", "-o "+built+"/", "mkdir /", "mkdir "+built+"/").Replace(rest)
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", rest)
			cmd.Dir, cmd.Env = "../..", append(os.Environ(), "VERSION=v1.2.3")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", rest, err, out)
			}
		case last:
			m.follow(word, rest, built)
		}
	}
	return m
}

// follow does an instruction of the last stage.
func (m *image) follow(word, rest, built string) {
	m.t.Helper()
	switch word {
	case "ENV":
		m.env = append(m.env, rest)
	case "WORKDIR":
		m.dir = rest
	case "USER":
		if _, err := fmt.Sscanf(rest, "%d", &m.user); err != nil {
			m.t.Fatalf("USER %s: %v", rest, err)
		}
	case "ENTRYPOINT", "CMD", "HEALTHCHECK":
		var args []string
		if err := json.Unmarshal([]byte(rest[strings.Index(rest, "["):]), &args); err != nil {
			m.t.Fatalf("%s %s: %v", word, rest, err)
		}
		m.run[word] = args
	case "COPY":
		fields := slices.DeleteFunc(strings.Fields(rest), func(f string) bool { return f == "--from=build" })
		owner := ""
		if of, owned := strings.CutPrefix(fields[0], "--chown="); owned {
			owner, fields = of, fields[1:]
		}
		m.copy(built+fields[0], fields[0], fields[1], owner)
	}
}

// copy copies what the stage before built, or else what its base image has.
func (m *image) copy(from, otherwise, to, owner string) {
	m.t.Helper()
	if _, err := os.Stat(from); err != nil {
		from = otherwise
	}
	if strings.HasSuffix(to, "/") {
		to += filepath.Base(from)
	}
	if _, err := os.Stat(from); err != nil {
		m.t.Logf("%s is not on this machine, and is left out", from) // of the base image: certificates, time zones
		return
	}
	to = filepath.Join(m.root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if out, err := exec.CommandContext(m.t.Context(), "cp", "-RL", from, to).CombinedOutput(); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	if owner != "" && os.Getuid() == 0 {
		if out, err := exec.CommandContext(m.t.Context(), "chown", "-R", owner, to).CombinedOutput(); err != nil {
			m.t.Fatalf("%v\n%s", err, out)
		}
	}
}

// command is a process of a container: it has the root and the user of the image, and only its environment.
func (m *image) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), args[0], args[1:]...)
	cmd.Path, cmd.Err = args[0], nil // it is looked for within the root
	cmd.Dir, cmd.Env = m.dir, slices.Concat(m.env, env)
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
	volume := filepath.Join(m.root, m.dir)
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

// The image starts with flows mounted, on a root that is read-only, as an ordinary user.
func TestImageStarts(t *testing.T) {
	t.Parallel()
	m := makeImage(t)
	if err := os.CopyFS(filepath.Join(m.root, "flows"), os.DirFS("../../deploy/flows")); err != nil {
		t.Fatal(err)
	}
	m.protect()
	serve := slices.Concat(m.run["ENTRYPOINT"], m.run["CMD"])

	refused, err := m.command(nil, serve...).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "set --admin-token-file") {
		t.Errorf("without a token: %v\n%s\nwant the remedy", err, refused)
	}

	address := freeAddress(t)
	env := []string{"PROCAAS_ADMIN_TOKEN=" + adminToken, "PROCAAS_LISTEN=" + address, "PROCAAS_SERVER=http://" + address}
	s := startSignalled(t, m.command(env, serve...))
	s.says(`"msg":"serving"`)
	patience.Until(t, "the health check", func() bool {
		out, err := m.command(env, m.run["HEALTHCHECK"]...).CombinedOutput()
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
	s.send(syscall.SIGTERM)
	if state := s.exits(); state != "exit status 0" {
		t.Errorf("SIGTERM: %s\n%s", state, s.text())
	}

	if err := os.Chmod(filepath.Join(m.root, m.dir), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(m.root, m.dir, ".procaas")); err != nil {
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
		Services map[string]struct{ Environment map[string]string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
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
