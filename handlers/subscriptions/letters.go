package subscriptions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/remote"
)

// The documents of dead letters. The list of a subscription is one document. The messages are others, because they are large, and read
// one by one. Documents are never removed, so a message has the first slot that is free.
const (
	docLetters = "subscription-letters"
	docLetter  = "subscription-letter"
)

// errFull reports that a subscription has as many dead letters as it may have.
var errFull = errors.New("there is no room for another dead letter: retry or discard some, or raise dead-letters")

// A listed is a dead letter in the list.
type listed struct {
	remote.DeadLetter

	Slot int `json:"slot"`
}

// letters keeps the dead letters of subscriptions.
type letters struct{ docs store.Documents }

// list reads the dead letters of a subscription, oldest first, and the version of the list.
func (l letters) list(ctx context.Context, subscription string) (all []listed, version int64, err error) {
	d, err := l.docs.Document(ctx, docLetters, subscription)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(d.Value, &all)
	}
	return all, d.Version, err
}

func slotName(subscription string, slot int) string {
	return fmt.Sprintf("%s/%05d", subscription, slot)
}

// conflicts is how often a change of a list is tried while others change it.
const conflicts = 20

// change changes the list of a subscription. do may be called several times. It returns the new list, or nil for no change, and the
// messages to write.
func (l letters) change(ctx context.Context, subscription string, audits []store.Audited,
	do func(all []listed) ([]listed, []store.DocumentWrite, error),
) error {
	for range conflicts {
		all, version, err := l.list(ctx, subscription)
		if err != nil {
			return err
		}
		all, writes, err := do(all)
		if err != nil || all == nil {
			return err
		}
		writes = append(writes, store.DocumentWrite{Kind: docLetters, Name: subscription, Version: version, Value: model.EncodeJSON(all)})
		if _, err = l.docs.WriteDocuments(ctx, 0, writes, audits); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("dead letters of %s: others change them all the time, try again", subscription)
}

// A dead message could not become an event.
type dead struct {
	message broker.Message
	why     string
}

// add keeps messages, all or none. One that is kept already stays as it is. The error is errFull if there are most already.
func (l letters) add(ctx context.Context, subscription string, most int, messages []dead, now time.Time) (kept int, err error) {
	err = l.change(ctx, subscription, nil, func(all []listed) ([]listed, []store.DocumentWrite, error) {
		var writes []store.DocumentWrite
		for i := range messages {
			m := &messages[i].message
			if slices.ContainsFunc(all, func(x listed) bool { return x.ID == m.ID }) {
				continue
			}
			x := listed{DeadLetter: remote.DeadLetter{
				ID: m.ID, Subject: m.Subject, Key: m.Key, Sent: m.Time.UTC(), Since: now.UTC().Truncate(time.Millisecond),
				Bytes: len(m.Body), Reason: messages[i].why,
			}}
			for slices.ContainsFunc(all, func(y listed) bool { return y.Slot == x.Slot }) {
				x.Slot++
			}
			copied := *m
			copied.Receipt = nil
			if len(m.Body) > MaxBody {
				copied.Body, x.Cut = nil, true
			}
			all = append(all, x)
			writes = append(writes, store.DocumentWrite{
				Kind: docLetter, Name: slotName(subscription, x.Slot), Version: store.AnyVersion, Value: model.EncodeJSON(copied),
			})
		}
		if len(all) > most && len(writes) > 0 {
			return nil, nil, errFull
		}
		kept = len(all)
		if len(writes) == 0 {
			return nil, nil, nil
		}
		return all, writes, nil
	})
	return kept, err
}

// message reads a dead letter with its body.
func (l letters) message(ctx context.Context, subscription string, x listed) (m broker.Message, err error) {
	d, err := l.docs.Document(ctx, docLetter, slotName(subscription, x.Slot))
	if err == nil {
		err = json.Unmarshal(d.Value, &m)
	}
	return m, err
}

// settle removes the dead letters gone, and notes why others stay, with the audit of who did it.
func (l letters) settle(ctx context.Context, subscription string, gone []string, stay map[string]string, audits []store.Audited) error {
	return l.change(ctx, subscription, audits, func(all []listed) ([]listed, []store.DocumentWrite, error) {
		var writes []store.DocumentWrite
		left := []listed{}
		for _, x := range all {
			if slices.Contains(gone, x.ID) {
				writes = append(writes, store.DocumentWrite{
					Kind: docLetter, Name: slotName(subscription, x.Slot), Version: store.AnyVersion, Value: []byte("null"),
				})
				continue
			}
			x.Reason = cmp.Or(stay[x.ID], x.Reason)
			left = append(left, x)
		}
		return left, writes, nil
	})
}
