package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// A finding is a figure of a part over all rounds.
type finding struct {
	name   string // as pages refer to it
	unit   string // empty for a ratio
	rounds []float64
	before []float64 // the same of the binary of -beside
}

// findings are the figures of all parts so far, in the order of the measurements.
type findings []*finding

// of returns a figure. It adds it if it is new.
func (f *findings) of(name, unit string) *finding {
	for _, one := range *f {
		if one.name == name {
			return one
		}
	}
	one := &finding{name: name, unit: unit}
	*f = append(*f, one)
	return one
}

// note keeps a figure of one or more rounds.
func (b *bench) note(name, unit string, rounds ...float64) {
	one := b.found.of(name, unit)
	if b.isBefore {
		one.before = append(one.before, rounds...)
	} else {
		one.rounds = append(one.rounds, rounds...)
	}
}

// before returns the bench for the binary of -beside.
func (b *bench) before() *bench {
	other := *b
	other.binary, other.isBefore = b.beside, true
	return &other
}

// eachRound measures the binary, and the one of -beside in turns with it.
func (b *bench) eachRound(ctx context.Context, measure func(context.Context, *bench) error) error {
	subjects := []*bench{b}
	if b.beside != "" {
		subjects = append(subjects, b.before())
	}
	for range b.rounds {
		for _, s := range subjects {
			if err := measure(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s.binary, err)
			}
		}
		slices.Reverse(subjects) // neither is always the first one
	}
	return nil
}

// report prints the figures whose names begin with a prefix.
func (b *bench) report(prefix string) {
	head := "\tmedian\t(lowest to highest)\t"
	if b.beside != "" {
		head += "before\tof that\t"
	}
	b.table(head, func(w *tabwriter.Writer) {
		for _, f := range *b.found {
			if strings.HasPrefix(f.name, prefix) && len(f.rounds) > 0 {
				fmt.Fprintf(w, "%s, %s\t%s\t(%s to %s)\t%s\n", strings.TrimPrefix(f.name, prefix), f.unit, short(median(f.rounds)),
					short(slices.Min(f.rounds)), short(slices.Max(f.rounds)), f.compared(b.beside != ""))
			}
		}
	})
}

// compared returns the cells about the binary of -beside.
func (f *finding) compared(wanted bool) string {
	switch {
	case !wanted:
		return ""
	case len(f.before) == 0:
		return "-\t-\t"
	}
	var ratios []float64
	for i := range min(len(f.rounds), len(f.before)) {
		ratios = append(ratios, f.rounds[i]/f.before[i])
	}
	return fmt.Sprintf("%s\t%.2f\t", short(median(f.before)), median(ratios))
}
