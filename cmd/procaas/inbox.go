package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/store"
)

func inboxCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "inbox",
		Short: "Spread the inbox over several databases, and move keys between them",
		Long: `inbox asks a server whose inbox is over several PostgreSQL servers (serve --cell)
which of them has which keys, and moves keys while events come. Keys are spread over
4096 slots; what moves is slots, with all that their keys need.`,
		Args: onlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f clientFlags
	f.add(c)
	c.AddCommand(inboxStatus(s, &f), inboxSlots(s, &f), inboxMove(s, &f), inboxDrain(s, &f), inboxRemove(s, &f))
	return c
}

func inboxStatus(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the databases of the inbox, and what moves", Args: cobra.NoArgs,
		Example: "  procaas inbox status\n  procaas inbox status --format json",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		v, err := f.client().Inbox(c.Context())
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, v)
		}
		return printInbox(s.out, v)
	})
	return c
}

func printInbox(out io.Writer, v engine.InboxView) error {
	w := newTable(out, "CELL\tSLOTS\tSHARE\tWAITING\tOUTBOX\tNOTE")
	for _, cell := range v.Cells {
		fmt.Fprintf(w, "%s\t%d\t%.0f %%\t%d\t%d\t%s\n", cell.Name, cell.Slots, 100*float64(cell.Slots)/float64(v.Slots), cell.Waiting,
			cell.Outbox, dash(cell.Away))
	}
	if len(v.Moves) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintln(w, "MOVE\tFROM\tTO\tSLOTS\tSTEP\tROWS\tFROZEN\tNOTE")
	}
	for _, m := range v.Moves {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n", m.ID, m.From, m.To, m.Slots, m.Step, m.Rows, frozen(m), dash(m.Error))
	}
	return w.Flush()
}

// frozen writes for how long a move has stopped its slots.
func frozen(m engine.InboxMove) string {
	if m.FrozenS == 0 {
		return "-"
	}
	return strconv.FormatFloat(1000*m.FrozenS, 'f', 1, 64) + " ms"
}

// A slotAnswer says where a key is.
type slotAnswer struct {
	Key  string `json:"key"`
	Slot int    `json:"slot"`
	Cell string `json:"cell"`
}

func inboxSlots(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "slots [KEY…]", Short: "Show which database has which slots, or which keys",
		Example: "  procaas inbox slots\n  procaas inbox slots order-1 order-2",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, keys []string, out string) error {
		v, err := f.client().Inbox(c.Context())
		if err != nil {
			return err
		}
		answers := []slotAnswer{}
		for _, key := range keys {
			slot := store.InboxSlot(key)
			answers = append(answers, slotAnswer{key, slot, ownerIn(v, slot)})
		}
		w := newTable(s.out, "")
		switch {
		case out == "json" && len(keys) > 0:
			return printJSON(s.out, map[string]any{"items": answers, "next": nil})
		case out == "json":
			return printJSON(s.out, map[string]any{"items": v.Cells, "next": nil})
		case len(keys) > 0:
			fmt.Fprintln(w, "KEY\tSLOT\tCELL")
			for _, a := range answers {
				fmt.Fprintf(w, "%s\t%d\t%s\n", a.Key, a.Slot, a.Cell)
			}
		default:
			fmt.Fprintln(w, "CELL\tSLOTS\tWHICH")
			for _, cell := range v.Cells {
				fmt.Fprintf(w, "%s\t%d\t%s\n", cell.Name, cell.Slots, dash(cell.Spans))
			}
		}
		return w.Flush()
	})
	return c
}

// slotsIn reads the slots of a cell.
func slotsIn(cell engine.InboxCell) []int {
	if cell.Spans == "" {
		return nil
	}
	slots, _ := engine.ParseSlots(cell.Spans) // as the server wrote them
	return slots
}

// ownerIn finds the cell of a slot.
func ownerIn(v engine.InboxView, slot int) string {
	for _, cell := range v.Cells {
		if slices.Contains(slotsIn(cell), slot) {
			return cell.Name
		}
	}
	return ""
}

// noCell says that an inbox has no database of a name.
func noCell(v engine.InboxView, name string) error {
	var known []string
	for _, cell := range v.Cells {
		known = append(known, cell.Name)
	}
	return usagef("the inbox has no cell %q; it has %s", name, strings.Join(known, ", "))
}

// moveFlags are those of all commands that move slots.
type moveFlags struct {
	wait   time.Duration
	atOnce int
	dry    bool
	reason string
	format func() (string, error)
}

func (m *moveFlags) add(c *cobra.Command) {
	m.format = formatFlag(c, "text", "json")
	c.Flags().DurationVar(&m.wait, "wait", 10*time.Second,
		"how long runs under way get to end or to pause, while nothing of the slots is taken in")
	c.Flags().IntVar(&m.atOnce, "at-once", 512, "slots of one move, which is undone or ended by itself")
	c.Flags().BoolVar(&m.dry, "dry-run", false, "only say what would be done")
	c.Flags().StringVar(&m.reason, "reason", "", "why, for the audit")
}

func inboxMove(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "move", Short: "Move slots to another database", Args: cobra.NoArgs,
		Long: `move takes slots to another database in parts of some thousand runs and keys. It stops
a part for as long as its way takes, usually a fraction of a second, and lets it go on at
the target; the others work meanwhile, so that many runs that wait make a move longer,
and stop no slot for longer. Events wait for a slot that is stopped. What cannot be
moved stays where it is, and works there again. Slots that are there already are left
alone, so that the command may be repeated.`,
		Example: "  procaas inbox move --slots 2048-4095 --to b\n  procaas inbox move --slots 7 --to home --dry-run",
	}
	var m moveFlags
	slots := c.Flags().String("slots", "", "which slots, such as 0-99,200 (required)")
	to := c.Flags().String("to", "", "the cell that gets them (required)")
	m.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *slots == "" || *to == "" {
			return usagef("inbox move needs --slots and --to")
		}
		wanted, err := engine.ParseSlots(*slots)
		if err != nil {
			return usagef("--%w", err)
		}
		return m.move(c.Context(), s, f, func(v engine.InboxView) (map[string][]int, error) {
			if !slices.ContainsFunc(v.Cells, func(cell engine.InboxCell) bool { return cell.Name == *to }) {
				return nil, noCell(v, *to)
			}
			return map[string][]int{*to: wanted}, nil
		})
	}
	return c
}

func inboxDrain(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "drain CELL", Short: "Move all slots of a database to the others", Args: cobra.ExactArgs(1),
		Long:    "drain gives the slots of a cell to the others, evenly. Runs that have ended stay, so the\ndatabase has to be there until nobody asks for them any more; then, procaas inbox remove.",
		Example: "  procaas inbox drain b --dry-run\n  procaas inbox drain b --to home",
	}
	var m moveFlags
	to := c.Flags().StringSlice("to", nil, "only to these cells")
	m.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return m.move(c.Context(), s, f, func(v engine.InboxView) (map[string][]int, error) {
			at := slices.IndexFunc(v.Cells, func(cell engine.InboxCell) bool { return cell.Name == args[0] })
			if at < 0 {
				return nil, noCell(v, args[0])
			}
			targets := *to
			for _, cell := range v.Cells {
				if len(*to) == 0 && cell.Name != args[0] && cell.Away == "" {
					targets = append(targets, cell.Name)
				}
			}
			if len(targets) == 0 || slices.Contains(targets, args[0]) {
				return nil, usagef("want other cells than %s that can be reached, have %v", args[0], targets)
			}
			out := map[string][]int{}
			all := slotsIn(v.Cells[at])
			for i, target := range targets {
				out[target] = all[i*len(all)/len(targets) : (i+1)*len(all)/len(targets)]
			}
			return out, nil
		})
	}
	return c
}

func inboxRemove(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "remove CELL", Short: "Remove a database without slots from the inbox for good", Args: cobra.ExactArgs(1),
		Long: `remove takes a database out of the inbox that has nothing left: drain it first, and wait
until its runs that have ended are trimmed, or say --forget, and they are in no list any
more. All nodes leave it within a second; start them anew without its --cell when there is
time. Its name does not come again.`,
		Example: "  procaas inbox remove b\n  procaas inbox remove b --forget --reason 'server is sold'",
	}
	var r wire.InboxRemovalRequest
	c.Flags().BoolVar(&r.Forget, "forget", false, "also with runs that have ended, or when the database cannot be reached")
	c.Flags().StringVar(&r.Reason, "reason", "", "why, for the audit")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		r.Cell = args[0]
		v, err := f.client().RemoveCell(c.Context(), r)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, v)
		}
		return printInbox(s.out, v)
	})
	return c
}

// move makes moves one after the other, of which plan says which slots each cell gets.
func (m *moveFlags) move(ctx context.Context, s streams, f *clientFlags, plan func(engine.InboxView) (map[string][]int, error)) error {
	out, err := m.format()
	if err != nil {
		return err
	}
	if m.atOnce < 1 {
		return usagef("--at-once: want 1 or more, have %d", m.atOnce)
	}
	client := f.client()
	v, err := client.Inbox(ctx)
	if err != nil {
		return err
	}
	targets, err := plan(v)
	if err != nil {
		return err
	}
	moves := []engine.InboxMove{}
	say := func(done engine.InboxMove) {
		moves = append(moves, done)
		if out == "text" {
			fmt.Fprintf(s.out, "%d slots from %s to %s: %s\n", done.Slots, done.From, done.To, strings.TrimSpace(done.Step+" "+movedNote(done)))
		}
	}
	err = func() error {
		for _, order := range m.orders(v, targets) {
			begun, err := client.MoveSlots(ctx, order)
			if err != nil {
				return err
			}
			if !m.dry {
				if begun, err = awaitMove(ctx, client, begun); err != nil {
					return err
				}
			}
			say(begun)
			if begun.Step == "undone" {
				return errFindings
			}
		}
		return nil
	}()
	if out == "json" {
		err = errors.Join(printJSON(s.out, map[string]any{"items": moves, "next": nil}), err)
	} else if err == nil && len(moves) == 0 {
		fmt.Fprintln(s.out, "nothing to move")
	}
	return err
}

// orders makes a request for each source, target and part of the slots.
func (m *moveFlags) orders(v engine.InboxView, targets map[string][]int) (all []wire.InboxMoveRequest) {
	owners := map[int]string{}
	for _, cell := range v.Cells {
		for _, slot := range slotsIn(cell) {
			owners[slot] = cell.Name
		}
	}
	for _, cell := range v.Cells {
		for _, to := range sortedKeys(targets) {
			var slots []int
			for _, slot := range slices.Sorted(slices.Values(targets[to])) {
				if owners[slot] == cell.Name && to != cell.Name {
					slots = append(slots, slot)
				}
			}
			for part := range slices.Chunk(slices.Compact(slots), m.atOnce) {
				all = append(all, wire.InboxMoveRequest{
					Slots: engine.FormatSlots(part), To: to, Wait: wire.Duration(m.wait), DryRun: m.dry, Reason: m.reason,
				})
			}
		}
	}
	return all
}

// awaitMove waits for the end of a move.
func awaitMove(ctx context.Context, client *client.Client, begun engine.InboxMove) (engine.InboxMove, error) {
	for {
		v, err := client.Inbox(ctx)
		if err != nil {
			return begun, err
		}
		at := slices.IndexFunc(v.Moves, func(m engine.InboxMove) bool { return m.ID == begun.ID })
		if at < 0 {
			return begun, fmt.Errorf("the inbox does not know move %s any more", begun.ID)
		}
		if v.Moves[at].Ended != nil {
			return v.Moves[at], nil
		}
		select {
		case <-ctx.Done():
			return begun, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// movedNote says what people want to know of a move.
func movedNote(m engine.InboxMove) string {
	switch {
	case m.Error != "":
		return "because " + m.Error
	case m.Ended != nil:
		return fmt.Sprintf("with %d rows, frozen for %s", m.Rows, frozen(m))
	}
	return ""
}
