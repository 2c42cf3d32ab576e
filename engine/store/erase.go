package store

import "context"

// This file has the port by which all data of a key is removed.

// An Eraser removes the data of keys for good.
type Eraser interface {
	// KeyData counts what the store has of a key.
	KeyData(ctx context.Context, flow, key string) (KeyData, error)

	// EraseKey removes the entity of a key, its failed and ended runs, and the ids of their events. A later event with such an
	// id is a new one. The latest firing of a trigger stays known, as for [Trimmer]. The error is [ErrConflict], and nothing is
	// removed, while the key has an unfinished run. An event that is accepted meanwhile begins the key anew, and stays whole. Many
	// runs go in parts: after an error some may be gone, and a retry removes the rest. gone counts what was removed, also
	// then. Events is set only here.
	EraseKey(ctx context.Context, flow, key string) (gone KeyData, err error)

	// Scrub removes copies of removed data from the files of the store, as far as it can while nodes work. With whole it
	// writes the file anew if that is the way to remove them, and other writes wait. It returns where copies may remain, for
	// people.
	Scrub(ctx context.Context, whole bool) (remains []string, err error)
}

// KeyData counts what a store has of a key.
type KeyData struct {
	Unfinished int // runs that have neither ended nor failed
	Failed     int // failed runs, which could be retried
	Ended      int // other runs that have ended
	Entities   int // 1 if the key has a state, 0 if not
	Events     int // ids of events that would be recognised again
}

// Add adds other counts.
func (k *KeyData) Add(o KeyData) {
	k.Unfinished += o.Unfinished
	k.Failed += o.Failed
	k.Ended += o.Ended
	k.Entities += o.Entities
	k.Events += o.Events
}

// A TaskEraser removes the tasks of a key for good.
type TaskEraser interface {
	// KeyTasks counts the tasks of some types that have a key.
	KeyTasks(ctx context.Context, types []string, key string) (TaskData, error)

	// EraseTasks removes the dead letters and the ended tasks of a key, and what is known of them, and with waiting also the
	// tasks that no worker holds. It removes no task that a worker holds. A retry after an error removes the rest.
	EraseTasks(ctx context.Context, types []string, key string, waiting bool) (gone TaskData, err error)
}

// TaskData counts tasks of a key.
type TaskData struct {
	Held    int // by workers
	Waiting int // scheduled, ready or waiting for others
	Dead    int // dead letters
	Ended   int
}

// Add adds other counts.
func (d *TaskData) Add(o TaskData) {
	d.Held += o.Held
	d.Waiting += o.Waiting
	d.Dead += o.Dead
	d.Ended += o.Ended
}

// An Erasing is a key to erase, as an add-on sees it.
type Erasing struct {
	Flow, Key string
	Pipelines []string // of the flow, by the present definition
	Cancel    bool     // what waits to be done goes, too
	Preview   bool     // counts only, and changes nothing
}

// An Erased is what an add-on has removed of a key, or has of it.
type Erased struct {
	Unfinished int            // what is still to be done, which an erasure refuses to remove
	Counts     map[string]int // of the rest, by kind
}

// An EraseFunc removes what an add-on has stored of a key. A retry after an error removes the rest.
type EraseFunc func(context.Context, Erasing) (Erased, error)
