package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// This file shows the reports of simulations.

// A Report is the result of a simulation.
type Report interface{ WriteText(w io.Writer) error }

// ShowReport prints a report, and draws it to the file svg if that is set. It omits samples unless they are wanted.
func ShowReport(s Streams, r Report, format, svg string, draw func(io.Writer) error, samples bool) error {
	if svg != "" {
		if err := writeFile(svg, draw); err != nil {
			return err
		}
	}
	if format == "text" {
		return r.WriteText(s.Out)
	}
	if x, ok := r.(interface{ Strip() }); ok && !samples {
		x.Strip()
	}
	return s.PrintJSON(r)
}

// writeFile writes a file with the given function.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return Usage(err)
	}
	// A full disk may be noticed on close.
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// mostSeeds limits the cost of a simulation.
const mostSeeds = 1000

// SeedsFlag declares how often a simulation runs, each time with another seed.
func SeedsFlag(c *cobra.Command) *int {
	return c.Flags().Int("seeds", 1, "number of runs of each, with different seeds")
}

// CheckSeeds refuses a number that would take too long.
func CheckSeeds(n int) error {
	if n < 1 || n > mostSeeds {
		return Usagef("--seeds %d: want 1 to %d", n, mostSeeds)
	}
	return nil
}
