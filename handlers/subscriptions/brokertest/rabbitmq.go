package brokertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"procaas/engine/enginetest/ports"
)

// rabbitScript runs the server and the name service of Erlang, and ends both when its input ends, also if the test is killed. That of Debian
// on the PATH would run as another user.
const rabbitScript = `
PATH="/usr/lib/rabbitmq/bin:$PATH"
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & names=$!
rabbitmq-server & server=$!
read -r _
kill "$server"
wait "$server"
kill "$names"`

// A Rabbit is a server of RabbitMQ on loopback.
type Rabbit struct {
	URL string

	dir     string
	release []func() // of its ports
	process *exec.Cmd
	input   io.Closer
	output  output
}

// An output collects what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.text.Bytes(), []byte(text))
}

// StartRabbit starts a server with tables, a name and ports of its own. It takes seconds of a processor, so tests share it.
func StartRabbit() (*Rabbit, error) {
	dir, err := os.MkdirTemp("", "procaas-rabbitmq-")
	if err != nil {
		return nil, err
	}
	r := &Rabbit{dir: dir, process: exec.Command("sh", "-c", rabbitScript)}
	var reserved [3]int
	for i := range reserved {
		at, release, err := ports.Reserve()
		if err != nil {
			return nil, err
		}
		reserved[i], r.release = at, append(r.release, release)
	}
	port, between, names := reserved[0], reserved[1], reserved[2]
	r.URL = fmt.Sprint("amqp://127.0.0.1:", port)
	plugins := filepath.Join(dir, "plugins")
	if err := os.WriteFile(plugins, []byte("[]."), 0o600); err != nil {
		return nil, err
	}
	r.process.Env = append(os.Environ(), "HOME="+dir, "ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprint("ERL_EPMD_PORT=", names),
		"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_LOGS=-", "RABBITMQ_ENABLED_PLUGINS_FILE="+plugins,
		"RABBITMQ_CONF_ENV_FILE="+filepath.Join(dir, "none"), "RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "none"),
		fmt.Sprintf("RABBITMQ_NODENAME=test-%d@localhost", port), fmt.Sprint("RABBITMQ_NODE_PORT=", port), fmt.Sprint("RABBITMQ_DIST_PORT=", between),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}")
	r.process.Stdout, r.process.Stderr = &r.output, &r.output
	r.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r.input, err = r.process.StdinPipe(); err == nil {
		err = r.process.Start()
	}
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		switch {
		case r.output.has("Server startup complete"):
			return r, nil
		case r.output.has("BOOT FAILED"), time.Now().After(until):
			r.Stop()
			return nil, fmt.Errorf("rabbitmq-server has not started:\n%s", r.output.text.String())
		}
	}
}

// Stop stops the server, and removes what it has stored.
func (r *Rabbit) Stop() {
	r.input.Close()
	_ = r.process.Wait()
	_ = os.RemoveAll(r.dir)
	for _, release := range r.release {
		release()
	}
}
