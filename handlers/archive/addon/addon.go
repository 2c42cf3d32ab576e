// Package addon plugs the archive of ended runs into procaas.
package addon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"procaas/dsl/tree"
	"procaas/engine/addon"
	"procaas/engine/alert"
	"procaas/engine/api/cli"
	"procaas/engine/records"
	"procaas/handlers/archive"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "archive", New: newProcess, Alerts: alerts,
		ServeHelp: `With --archive, ended runs go to a folder or a bucket before they leave the store. The store
notes that it has an archive: from then on no node removes runs that are not archived,
until a node ends it by --archive none. Recordings are archived with their runs. Ended tasks
of the queue are not archived, and leave after --retention.`,
	}
}

// alerts are the rules of the archive.
func alerts(server string) []alert.Rule {
	return []alert.Rule{{
		Name: "ProcaasArchiveFailing", For: "15m", Labels: alert.Severity("warning"), Expr: "max(procaas_archive_failing) == 1",
		Annotations: alert.Explain("ended runs cannot be archived, so they stay in the store",
			"The folder is full or gone, or the bucket does not answer; /readyz says which. Nothing is lost, and nothing leaves the store, which "+
				"grows meanwhile.",
			"procaas doctor"+alert.ServerFlag(server)),
	}}
}

// none is the address that ends the archive of a store.
const none = "none"

// checkTime bounds how long the archive may take to answer at the start.
const checkTime = 10 * time.Second

// A process is the archive of one process.
type process struct {
	address, format string
	every           time.Duration
	archive         *archive.Archive // nil without an address
	away            error            // why it does not answer at the start
}

func newProcess() *addon.Process {
	p := &process{}
	return &addon.Process{
		ServeFlags: func(f *pflag.FlagSet) {
			f.StringVar(&p.address, "archive", "", "archive ended runs before they leave the store: file:///FOLDER, or "+
				"s3://BUCKET/PREFIX?region=REGION&endpoint=HOST, with credentials as in AWS_ACCESS_KEY_ID; none ends the archive of the store")
			f.StringVar(&p.format, "archive-format", archive.Formats()[0].Name, "jsonl or parquet")
			f.DurationVar(&p.every, "archive-every", 10*time.Minute, "how often to archive what may leave: less often makes larger files")
		},
		Check: p.check,
		Open:  p.open,
	}
}

// check reads the flags, and asks the archive whether it works.
func (p *process) check(*tree.Bundle) error {
	if p.every < time.Second {
		return cli.Usagef("--archive-every: want 1s or more, have %s", p.every)
	}
	address := p.address
	if address == "" || address == none {
		address = "file:///"
	}
	a, err := archive.Open(address, p.format)
	if err != nil && address == p.address {
		return cli.Usagef("--archive: %w", err)
	}
	if err != nil {
		return cli.Usagef("--archive-format: %w", err)
	}
	if address != p.address {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	err = a.Check(ctx)
	if err != nil && !errors.Is(err, archive.ErrAway) {
		return cli.Usagef("--archive %s: %w", p.address, err)
	}
	p.archive, p.away = a, err
	return nil
}

func (p *process) open(_ context.Context, h *addon.Host) (*addon.Part, error) {
	o := records.ArchiveOptions{Every: p.every, End: p.address == none}
	if p.archive != nil {
		o.Archive = p.archive
	}
	if p.away != nil {
		h.Log.Warn("the archive does not answer, so ended runs stay in the store until it does", "archive", p.address, "error", fmt.Sprint(p.away))
	}
	return &addon.Part{Archive: o}, nil
}
