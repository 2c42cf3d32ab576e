// Package triggers fires the events of triggers at their times, once on all nodes.
package triggers
