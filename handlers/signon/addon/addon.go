// Package addon plugs sign-on by an issuer of tokens into procaas.
package addon

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/cli"
	"procaas/engine/api/problem"
	"procaas/handlers/signon"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "signon", Problems: []problem.Kind{signOnOff}, New: newProcess, Commands: commands, Alerts: alerts,
		ServeHelp: `With --access FILE, people sign in at issuers of OpenID Connect, and their tokens are
accepted. The file says who they are here; see procaas access test.`,
	}
}

// issuerPause is how long a node asks an issuer nothing after failures.
const issuerPause = 5 * time.Second

// A process is sign-on in one process.
type process struct {
	file string
	desk *signon.Desk // nil without a file
	api  api.Server
}

// newProcess returns the sign-on of one process.
func newProcess() *addon.Process {
	p := &process{}
	return &addon.Process{
		ServeFlags: func(f *pflag.FlagSet) {
			f.StringVar(&p.file, "access", "", "YAML file that says which issuers sign people on, and what they may do; read again when it changes")
		},
		Identifier: p.identifier,
		Open:       p.open,
		Calls:      func(*engine.Engine) api.Group { return p.calls() },
	}
}

// identifier reads the file.
func (p *process) identifier() (access.Identifier, error) {
	if p.file == "" {
		return nil, nil
	}
	desk, err := signon.Open(p.file)
	if err != nil {
		return nil, cli.Usagef("--access: %w", err)
	}
	p.desk = desk
	return desk, nil
}

func (p *process) open(_ context.Context, h *addon.Host) (*addon.Part, error) {
	h.Metrics.MustRegister(issuers{p.desk})
	if p.desk == nil {
		return &addon.Part{}, nil
	}
	p.desk.Use(h.HTTP("the issuer of tokens", issuerPause), h.Log)
	return &addon.Part{
		Degraded: func() error { return away(p.desk) },
		Run: func(ctx context.Context, _ addon.Running) error {
			p.desk.Run(ctx)
			return nil
		},
	}, nil
}
