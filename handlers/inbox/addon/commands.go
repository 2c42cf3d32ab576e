package addon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	inboxremote "procaas/handlers/inbox/remote"
)

func inboxCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "inbox",
		Short: "Show the databases of an inbox, and move keys between them",
		Long: `inbox works with a server that spreads its inbox over several PostgreSQL servers
(serve --cell). It shows which of them has which keys, and moves keys while events
arrive. Every key belongs to one of 4096 slots. A move takes whole slots with
everything that their keys need.`,
	}, inboxStatus(), inboxSlots(), inboxMove(), inboxSpread(), inboxDrain(), inboxRemove())
}

func inboxStatus() *cobra.Command {
	return cli.Shows(&cobra.Command{
		Use: "status", Short: "Show the databases of the inbox, and current moves", Args: cobra.NoArgs,
		Example: "  procaas inbox status\n  procaas inbox status --format json",
	}, func(q *cli.Call) (inbox.View, error) { return inboxremote.Read(q.Ctx, q.Client) }, printInbox)
}

func printInbox(q *cli.Call, v inbox.View) error {
	err := cli.Table(q.Out, "CELL\tSLOTS\tSHARE\tWAITING\tOUTBOX\tNOTE", v.Cells, func(c inbox.Cell) cli.Row {
		return cli.Row{c.Name, c.Slots, cli.Percent(float64(c.Slots) / float64(v.Slots)), c.Waiting, c.Outbox, cli.Dash(c.Away)}
	})
	if err != nil || len(v.Moves) == 0 {
		return err
	}
	fmt.Fprintln(q.Out)
	return cli.Table(q.Out, "MOVE\tFROM\tTO\tSLOTS\tSTEP\tROWS\tFROZEN\tNOTE", v.Moves, func(m inbox.Move) cli.Row {
		return cli.Row{m.ID, m.From, m.To, m.Slots, m.Step, m.Rows, frozen(m), cli.Dash(m.Error)}
	})
}

// frozen formats how long a move has stopped its slots.
func frozen(m inbox.Move) string {
	if m.FrozenS == 0 {
		return "-"
	}
	return strconv.FormatFloat(1000*m.FrozenS, 'f', 1, 64) + " ms"
}

// A slotAnswer is the location of a key.
type slotAnswer struct {
	Key  string `json:"key"`
	Slot int    `json:"slot"`
	Cell string `json:"cell"`
}

func inboxSlots() *cobra.Command {
	return cli.Formatted(&cobra.Command{
		Use: "slots [KEY…]", Short: "Show which database has which slots, or which keys",
		Example: "  procaas inbox slots\n  procaas inbox slots order-1 order-2",
	}, func(q *cli.Call) error {
		v, err := inboxremote.Read(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		if len(q.Args) == 0 {
			return cli.ShowTable(q, "CELL\tSLOTS\tWHICH", v.Cells, func(c inbox.Cell) cli.Row {
				return cli.Row{c.Name, c.Slots, cli.Dash(c.Spans)}
			})
		}
		var answers []slotAnswer
		for _, key := range q.Args {
			slot := store.InboxSlot(key)
			answers = append(answers, slotAnswer{key, slot, ownerIn(v, slot)})
		}
		return cli.ShowTable(q, "KEY\tSLOT\tCELL", answers, func(a slotAnswer) cli.Row { return cli.Row{a.Key, a.Slot, a.Cell} })
	})
}

// slotsIn returns the slots of a cell.
func slotsIn(cell inbox.Cell) []int {
	if cell.Spans == "" {
		return nil
	}
	slots, _ := inbox.ParseSlots(cell.Spans) // the server's own format
	return slots
}

// ownerIn returns the cell of a slot.
func ownerIn(v inbox.View, slot int) string {
	for _, cell := range v.Cells {
		if slices.Contains(slotsIn(cell), slot) {
			return cell.Name
		}
	}
	return ""
}

// noCell returns the error for an unknown cell.
func noCell(v inbox.View, name string) error {
	known := cli.Names(v.Cells, func(c inbox.Cell) string { return c.Name })
	return cli.Usagef("the inbox has no cell %q; it has %s", name, strings.Join(known, ", "))
}

// slotMoves are the flags of all commands that move slots.
type slotMoves struct {
	*cli.Call
	wait   time.Duration
	atOnce int
	dry    bool
	reason string
}

// moves makes c move slots. plan returns the slots that each cell gets.
func moves(c *cobra.Command, plan func(q *cli.Call, v inbox.View) (map[string][]int, error)) *cobra.Command {
	var m slotMoves
	c.Flags().DurationVar(&m.wait, "wait", 10*time.Second,
		"how long runs in flight have to end or pause; meanwhile events of the slots wait")
	c.Flags().IntVar(&m.atOnce, "at-once", 512, "slots per move; each move succeeds or is undone as a whole")
	c.Flags().BoolVar(&m.dry, "dry-run", false, "only show the plan")
	c.Flags().StringVar(&m.reason, "reason", "", "reason, for the audit")
	return cli.Formatted(c, func(q *cli.Call) error {
		m.Call = q
		if m.atOnce < 1 {
			return cli.Usagef("--at-once: want 1 or more, have %d", m.atOnce)
		}
		v, err := inboxremote.Read(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		targets, err := plan(q, v)
		if err != nil {
			return err
		}
		return m.move(m.orders(v, targets))
	})
}

func inboxMove() *cobra.Command {
	c := &cobra.Command{
		Use: "move", Short: "Move slots to another database", Args: cobra.NoArgs,
		Long: `move takes slots to another database, in parts of some thousand runs and keys. A part
stops while it moves, usually for a fraction of a second, and then resumes at the
target. The other parts work meanwhile. So a move with many waiting runs takes longer,
but no slot stops for longer.

Events wait for a slot that is stopped. A slot that cannot move stays where it is and
works there again. You can repeat the command: it skips slots that are already there.`,
		Example: "  procaas inbox move --slots 2048-4095 --to b\n  procaas inbox move --slots 7 --to home --dry-run",
	}
	slots := c.Flags().String("slots", "", "the slots, such as 0-99,200 (required)")
	to := c.Flags().String("to", "", "the cell that receives them (required)")
	var wanted []int
	c.PreRunE = func(*cobra.Command, []string) (err error) {
		if *slots == "" || *to == "" {
			return cli.Usagef("inbox move needs --slots and --to")
		}
		if wanted, err = inbox.ParseSlots(*slots); err != nil {
			return cli.Usagef("--%w", err)
		}
		return nil
	}
	return moves(c, func(_ *cli.Call, v inbox.View) (map[string][]int, error) {
		if !slices.ContainsFunc(v.Cells, func(cell inbox.Cell) bool { return cell.Name == *to }) {
			return nil, noCell(v, *to)
		}
		return map[string][]int{*to: wanted}, nil
	})
}

func inboxSpread() *cobra.Command {
	c := &cobra.Command{
		Use: "spread", Short: "Move slots until all databases have the same load", Args: cobra.NoArgs,
		Long: `spread moves slots from the databases with the most load to those with the least,
such as a new empty one. The load of a slot is the number of its runs that have not
ended, its entities and its tasks. One move runs at a time.

Nothing moves by itself, and nothing moves back. If loads change later, run the command
again. It moves nothing if that would not help.`,
		Example: "  procaas inbox spread --dry-run\n  procaas inbox spread --at-once 64",
	}
	return moves(c, func(q *cli.Call, _ inbox.View) (map[string][]int, error) {
		v, err := inboxremote.ReadLoads(q.Ctx, q.Client)
		return spread(v), err
	})
}

// spread moves slots from cells with much load to those with the least.
func spread(v inbox.View) map[string][]int {
	loads, of := map[string]int64{}, map[string][]int{}
	weigh := func(slot int) int64 { return store.InboxSlots*v.Loads[slot] + 1 } // empty slots are spread too, but have almost no weight
	var there []string
	total := int64(0)
	for _, cell := range v.Cells {
		if cell.Away != "" {
			continue
		}
		there = append(there, cell.Name)
		of[cell.Name] = slotsIn(cell)
		for _, slot := range of[cell.Name] {
			loads[cell.Name] += weigh(slot)
		}
		total += loads[cell.Name]
	}
	out := map[string][]int{}
	heavier := func(a, b int) int { return cmp.Compare(v.Loads[b], v.Loads[a]) }
	for _, from := range there {
		mean := total / int64(len(there))
		for _, slot := range slices.SortedStableFunc(slices.Values(of[from]), heavier) {
			to := slices.MinFunc(there, func(a, b string) int { return cmp.Compare(loads[a], loads[b]) })
			// No cell falls below the mean or rises above it. So the next spread moves nothing.
			if n := weigh(slot); loads[from]-n >= mean && loads[to]+n <= mean+store.InboxSlots {
				loads[from], loads[to], out[to] = loads[from]-n, loads[to]+n, append(out[to], slot)
			}
		}
	}
	return out
}

func inboxDrain() *cobra.Command {
	c := &cobra.Command{
		Use: "drain CELL", Short: "Move all slots of a database to the others", Args: cobra.ExactArgs(1),
		Long: "drain moves the slots of a cell evenly to the others. Ended runs stay, so keep the\ndatabase until nobody needs " +
			"them. Then use procaas inbox remove.",
		Example: "  procaas inbox drain b --dry-run\n  procaas inbox drain b --to home",
	}
	to := c.Flags().StringSlice("to", nil, "only to these cells")
	return moves(c, func(q *cli.Call, v inbox.View) (map[string][]int, error) {
		from := q.Args[0]
		at := slices.IndexFunc(v.Cells, func(cell inbox.Cell) bool { return cell.Name == from })
		if at < 0 {
			return nil, noCell(v, from)
		}
		targets := *to
		for _, cell := range v.Cells {
			if len(*to) == 0 && cell.Name != from && cell.Away == "" {
				targets = append(targets, cell.Name)
			}
		}
		if len(targets) == 0 || slices.Contains(targets, from) {
			return nil, cli.Usagef("want other cells than %s that can be reached, have %v", from, targets)
		}
		out := map[string][]int{}
		all := slotsIn(v.Cells[at])
		for i, target := range targets {
			out[target] = all[i*len(all)/len(targets) : (i+1)*len(all)/len(targets)]
		}
		return out, nil
	})
}

func inboxRemove() *cobra.Command {
	c := &cobra.Command{
		Use: "remove CELL", Short: "Remove a database without slots from the inbox for good", Args: cobra.ExactArgs(1),
		Long: `remove takes an empty database out of the inbox. Drain it first. Then wait until the
server has deleted its ended runs, or pass --forget: no list shows these runs any more.
All nodes drop the database within a second. Restart them without its --cell when
convenient. No other database can reuse its name.`,
		Example: "  procaas inbox remove b\n  procaas inbox remove b --forget --reason 'server is sold'",
	}
	var r inboxremote.InboxRemovalRequest
	c.Flags().BoolVar(&r.Forget, "forget", false, "remove it although it has ended runs or cannot be reached")
	c.Flags().StringVar(&r.Reason, "reason", "", "reason, for the audit")
	return cli.Shows(c, func(q *cli.Call) (inbox.View, error) {
		r.Cell = q.Args[0]
		return inboxremote.Remove(q.Ctx, q.Client, r)
	}, printInbox)
}

// move makes moves one after the other.
func (m *slotMoves) move(orders []inboxremote.InboxMoveRequest) error {
	done := []inbox.Move{}
	err := func() error {
		for _, order := range orders {
			moved, err := inboxremote.Move(m.Ctx, m.Client, order)
			if err == nil && !m.dry {
				moved, err = m.await(moved)
			}
			if err != nil {
				return err
			}
			done = append(done, moved)
			if !m.JSON() {
				fmt.Fprintf(m.Out, "%d slots from %s to %s: %s\n", moved.Slots, moved.From, moved.To,
					strings.TrimSpace(moved.Step+" "+movedNote(moved)))
			}
			if moved.Step == "undone" {
				return cli.ErrFindings
			}
		}
		return nil
	}()
	shown := m.Show(cli.Items(done), func() error {
		if err == nil && len(done) == 0 {
			fmt.Fprintln(m.Out, "nothing to move")
		}
		return nil
	})
	return errors.Join(shown, err)
}

// orders returns a request per source, target and part of the slots.
func (m *slotMoves) orders(v inbox.View, targets map[string][]int) (all []inboxremote.InboxMoveRequest) {
	owners := map[int]string{}
	for _, cell := range v.Cells {
		for _, slot := range slotsIn(cell) {
			owners[slot] = cell.Name
		}
	}
	for _, cell := range v.Cells {
		for _, to := range slices.Sorted(maps.Keys(targets)) {
			var slots []int
			for _, slot := range slices.Sorted(slices.Values(targets[to])) {
				if owners[slot] == cell.Name && to != cell.Name {
					slots = append(slots, slot)
				}
			}
			for part := range slices.Chunk(slices.Compact(slots), m.atOnce) {
				all = append(all, inboxremote.InboxMoveRequest{
					Slots: inbox.FormatSlots(part), To: to, Wait: wire.Duration(m.wait), DryRun: m.dry, Reason: m.reason,
				})
			}
		}
	}
	return all
}

// await waits for the end of a move.
func (m *slotMoves) await(begun inbox.Move) (inbox.Move, error) {
	for {
		v, err := inboxremote.Read(m.Ctx, m.Client)
		if err != nil {
			return begun, err
		}
		at := slices.IndexFunc(v.Moves, func(x inbox.Move) bool { return x.ID == begun.ID })
		if at < 0 {
			return begun, fmt.Errorf("the inbox does not know move %s any more", begun.ID)
		}
		if v.Moves[at].Ended != nil {
			return v.Moves[at], nil
		}
		if !clock.Pause(m.Ctx, 100*time.Millisecond) {
			return begun, m.Ctx.Err()
		}
	}
}

// movedNote describes a move.
func movedNote(m inbox.Move) string {
	switch {
	case m.Error != "":
		return "because " + m.Error
	case m.Ended != nil:
		return fmt.Sprintf("with %d rows, frozen for %s", m.Rows, frozen(m))
	}
	return ""
}
