package top

import (
	"fmt"
	"slices"

	"procaas/engine/api/ui/words"
	"procaas/engine/records"
)

// A nodeMemory shows how much of its memory a node uses.
type nodeMemory struct {
	Node int64  `json:"node"`
	Name string `json:"name"`
	records.MemoryView
}

// addMemory adds the memory of the node that has listed these nodes.
func (v *topView) addMemory(nodes []records.NodeView) {
	for _, n := range nodes {
		if n.Memory != nil && !slices.ContainsFunc(v.memory, func(m nodeMemory) bool { return m.Node == n.Node }) {
			v.memory = append(v.memory, nodeMemory{n.Node, n.Name, *n.Memory})
		}
	}
}

// memoryText shows the nodes first for which most work waits. waits reports whether any does.
func (v *topView) memoryText() (text string, waits bool) {
	if len(v.memory) == 0 {
		return "", false
	}
	sorted := slices.Clone(v.memory)
	slices.SortStableFunc(sorted, func(a, b nodeMemory) int { return b.Waiting - a.Waiting })
	parts := make([]string, len(sorted))
	for i, m := range sorted {
		parts[i] = fmt.Sprintf("%s %s of %s", m.Name, words.Bytes(m.Used), words.Bytes(m.Budget))
		if m.Waiting > 0 {
			waits = true
			parts[i] += fmt.Sprintf(" (%d waiting)", m.Waiting)
		}
	}
	return "memory: " + someOf(parts), waits
}
